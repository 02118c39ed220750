"""`face3d-trt build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from face3d_trt.cli.judged import Limits, Model  # noqa: TC001  # typer reads them at run time
from face3d_trt.names import DEFAULT_ONNX

if TYPE_CHECKING:
    from face3d_trt.bisect.until import Until
    from face3d_trt.engine.options import BuildOptions
    from face3d_trt.records import GateRecord, Manifest, TypedRecord
    from face3d_trt.report import Reporter

_SHAPES = "Shapes to build for, 'min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224'; repeat for several profiles."

_TIMINGS = "Keeps measurements between builds; default: a file in the user's cache folder; none keeps nothing."


def command(
    onnx: Annotated[
        Path | None,
        typer.Option("--onnx", metavar="FILE", help=f"The float32 graph of `export`; default {DEFAULT_ONNX}."),
    ] = None,
    fp32: Annotated[bool, typer.Option("--fp32", help="Build in float32.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Build in fp16; this is the default.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Build in int8; needs --calib.")] = False,
    calib: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Faces to calibrate on: aligned crops, or photos.")
    ] = None,
    calib_method: Annotated[
        str | None, typer.Option(metavar="METHOD", help="How int8 ranges are found: output (default), entropy or max.")
    ] = None,
    profile: Annotated[list[str] | None, typer.Option(metavar="SHAPES", help=_SHAPES)] = None,
    workspace: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Limit of the builder's scratch memory, like 1GiB.")
    ] = None,
    timing_cache: Annotated[str | None, typer.Option(metavar="FILE", help=_TIMINGS)] = None,
    optimization_level: Annotated[
        int | None,
        typer.Option(metavar="0..5", help="How long to look for faster kernels; 3 is the default. Not TensorRT-RTX."),
    ] = None,
    hardware_compat: Annotated[
        bool, typer.Option("--hardware-compat", help="A plan for every GPU of Ampere and newer. Not TensorRT-RTX.")
    ] = False,
    version_compat: Annotated[
        bool, typer.Option("--version-compat", help="A plan for later TensorRTs too. Not TensorRT-RTX.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="CC", help="Compute capability to build for, like 8.9; repeatable; TensorRT-RTX only."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The plan; default <onnx>.<precision>.plan.")
    ] = None,
    typed_only: Annotated[
        bool, typer.Option("--typed-only", help="Stop after the typed graph, for a machine that builds with --typed.")
    ] = False,
    generation: Annotated[
        str | None,
        typer.Option("--for", metavar="TENSORRT", help="With --typed-only: 8.6, 10, 11 or rtx; default: what is here."),
    ] = None,
    typed: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Build from a typed graph and its record alone; needs no onnx, no ModelOpt."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Nodes that stay in higher precision: a list of `bisect`.")
    ] = None,
    until_passes: Annotated[
        bool,
        typer.Option("--until-passes", help="With --int8: try calibrations, then keep nodes higher, until it passes."),
    ] = False,
    most: Annotated[
        int | None, typer.Option(min=1, help="With --until-passes: the most nodes to keep higher; default 12.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Pictures that judge the engine. Default: --calib; with --until-passes, the samples."),
    ] = None,
    model: Model = None,
    limits: Limits = None,
    no_gate: Annotated[
        bool, typer.Option("--no-gate", help="Do not hold the engine against float32 PyTorch before it gets its name.")
    ] = False,
) -> None:
    """Build a TensorRT plan, with its typed ONNX and its manifest beside it.

    What is there already for the same content is reused.
    """
    given = dict(locals())  # every option by its name, before anything else has one
    import time

    from face3d_trt.bisect.until import MOST, Until
    from face3d_trt.cli.build_words import check_words, method_of, one_of
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.engine.build import BuildOptions, build_engine
    from face3d_trt.engine.profile import Profile
    from face3d_trt.engine.sizes import parse_size
    from face3d_trt.engine.typed import named_for, write_typed
    from face3d_trt.parity.build_gate import BuildGate

    begun = time.monotonic()
    report = RichReporter()
    precision = one_of(fp32=fp32, fp16=fp16, int8=int8)
    words = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    check_words(precision, {**words, "--for": generation})
    options = BuildOptions(
        onnx=onnx or Path(DEFAULT_ONNX),
        precision=precision,
        calibration=calib,
        method=method_of(calib_method or "output"),
        profiles=tuple(Profile.parse(text) for text in profile or ()),
        workspace=parse_size(workspace) if workspace is not None else None,
        timing_cache=None if timing_cache is None else _timings(timing_cache),
        targets=tuple(target or ()),
        output=output,
        optimization_level=optimization_level,
        hardware_compat=hardware_compat,
        version_compat=version_compat,
        from_typed=typed,
        keep=keep,
    )
    gate = BuildGate(images, model, limits, report, held_out=until_passes)
    if typed_only:
        options = named_for(options, generation)
    if until_passes:
        options = _until_passes(options, Until(most or MOST, images, model, limits), generation, typed_only, report)
    if typed_only:
        _print_typed(write_typed(options, generation, report), options, time.monotonic() - begun)
        return
    manifest = build_engine(options, report, None if no_gate else gate)
    _print(manifest, options.plan, options.typed, time.monotonic() - begun)


def _until_passes(
    options: BuildOptions, until: Until, generation: str | None, typed_only: bool, report: Reporter
) -> BuildOptions:
    """The options of the try that passes, after a table of all tries."""
    from face3d_trt.bisect.show import TRIES_WIDTH, show_tries
    from face3d_trt.bisect.until import fewest_beyond, until_passes
    from face3d_trt.cli.console import results
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.engine.typed import takes_of, unneeded
    from face3d_trt.errors import BuildError

    takes = takes_of(generation, report)
    if typed_only:
        unneeded(options.typed)
    outcome = until_passes(options, takes, until, None if typed_only else find_flavour(report), report)
    show_tries(outcome, results(TRIES_WIDTH))
    if outcome.options is None:
        more = fewest_beyond(outcome, until.most)
        hint = "--most with more nodes" if more is None else f"--most {len(more.kept)}, which {more.method} needs"
        raise BuildError(
            f"no int8 graph passes with at most {until.most} nodes kept higher; nothing was left under {options.plan}",
            allowed=f"better calibration pictures, {hint}, or --fp16",
            run="face3d-trt build --fp16",
        )
    return outcome.options


def _timings(text: str) -> Any:
    return "none" if text == "none" else Path(text)


def _print_typed(record: TypedRecord, options: BuildOptions, seconds: float) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in record.nodes.items())
    kind = "its types decide" if record.strongly_typed else "TensorRT's flags decide"
    rows = [
        ("typed", f"{options.typed}, record {options.typed.name}.json"),
        ("precision", f"{record.precision} ({kind}); opset {record.opset}; nodes: {counts}"),
        ("next", f"copy both to the machine that builds; there: face3d-trt build --typed {options.typed.name}"),
        ("time", f"{seconds:.1f} s"),
    ]
    for name, text in rows:
        typer.echo(f"{name:<10} {text}")


def _gate(gate: GateRecord) -> str:
    if gate.passed is None:
        return f"not run: {gate.reason}"
    return f"passed on {gate.pictures} pictures ({gate.origin}): {gate.worst}"


def _print(manifest: Manifest, plan: Path, typed: Path, seconds: float) -> None:
    from face3d_trt.engine.shares import shares
    from face3d_trt.engine.sizes import format_size
    from face3d_trt.graph.counts import Tally

    counts = ", ".join(f"{count} {name}" for name, count in manifest.layers.items())
    found = Tally(manifest.layers, manifest.convolutions).share(manifest.precision)
    if manifest.int8_macs:
        found += f", {manifest.int8_macs:.1%} of the multiply-adds"
    rows = [
        ("plan", f"{plan} ({format_size(plan.stat().st_size)}), manifest {plan.name}.json"),
        ("typed", str(typed)),
        ("precision", f"{found}; layers: {counts}"),
    ]
    if manifest.engine_layers:
        rows.append(("engine", shares(manifest.engine_layers).describe(manifest.precision)))
    for each in manifest.profiles:
        shapes = (f"{name}={'x'.join(map(str, getattr(each, name)))}" for name in ("min", "opt", "max"))
        rows.append(("profile", ",".join(shapes)))
    if manifest.gate is not None:
        rows.append(("gate", _gate(manifest.gate)))
    made_for = manifest.gpu.name if manifest.gpu else ", ".join(manifest.targets)
    rows.append(("for", f"{made_for} ({manifest.flavour} {manifest.flavour_version})"))
    rows.append(("time", f"{seconds:.1f} s"))
    for name, text in rows:
        typer.echo(f"{name:<10} {text}")
