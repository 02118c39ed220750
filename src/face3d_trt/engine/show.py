"""An inspected plan for people: facts, layers, and whether it runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.engine.sizes import format_size
from face3d_trt.graph.counts import Tally
from face3d_trt.records import manifest_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from face3d_trt.engine.inspect import Inspection
    from face3d_trt.records import LayerRecord, Manifest, TensorRecord

WIDTH = 80
LAYERS_SHOWN = 12  # without --layers
_TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}


def print_inspection(inspection: Inspection, console: Console, *, every_layer: bool) -> None:
    """Print facts, layers and verdict; commands stand on lines of their own, unwrapped, to be copied."""

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    manifest, here = inspection.manifest, inspection.here
    if manifest is not None:
        console.print(_facts(inspection, manifest))
        say(f"built by: {manifest.command}\n")
        _print_layers(manifest, console, every_layer)
    if manifest is not None and inspection.typed == "replaced":
        typed = inspection.plan.parent / manifest.typed
        say(
            f"warning: {typed} is another graph than this plan was built from: compare fails, nothing stands in",
            "yellow",
        )
        say(f"  run: {manifest.command}    # or copy the graph from where the plan was built\n")
    if manifest is not None and not inspection.sealed:
        name = manifest_path(inspection.plan).name
        say(f"note: {name} is of an earlier version and has no digest, so edits of it would not be noticed")
        say(f"  run: {manifest.command}    # adds one; the plan is reused\n")
    if here is not None and inspection.trouble is None:
        say(f"runs here: {'yes' if here.runs else 'no'}, {here.why}", "green" if here.runs else "yellow")
        if here.run:
            say(f"  run: {here.run}")


def _facts(inspection: Inspection, manifest: Manifest) -> Table:
    table = _table(inspection.plan.name, "")
    table.columns[1].ratio = 1
    for name, fact in _rows(inspection, manifest):
        table.add_row(name, fact)
    return table


def _rows(inspection: Inspection, manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "plan", _state(inspection)
    version = f"{_TITLES[manifest.flavour]} {manifest.flavour_version}"
    yield "built with", f"{version}, face3d-trt {manifest.version}, {manifest.created}, {manifest.seconds:.0f} s"
    yield "built for", _for(manifest)
    if options := ", ".join(_options(manifest)):
        yield "options", options
    yield "precision", _asked(manifest)
    if manifest.kept:
        yield "kept higher", ", ".join(each.node for each in manifest.kept)
    if found := inspection.shares:
        yield "engine", found.describe(manifest.precision)
    for tensor in manifest.inputs:
        yield "input", _tensor(tensor)
    for tensor in manifest.outputs:
        yield "output", _tensor(tensor)
    for profile in manifest.profiles:
        shapes = (f"{name}={_shape(getattr(profile, name))}" for name in ("min", "opt", "max"))
        yield "profile", "  ".join(shapes)
    if (faces := manifest.calibration) is not None:
        yield "calibration", f"{faces.method} on {faces.images} pictures of {faces.folder}"
    model = manifest.model
    yield "model", f"{model.source}{f'@{model.revision}' if model.revision else ''}, weights: {model.weights}"
    yield "graphs", f"{manifest.typed}, from {manifest.onnx}"


def _state(inspection: Inspection) -> str:
    try:
        size = format_size(inspection.plan.stat().st_size)
    except OSError:
        return "the file is not there"
    sound = inspection.trouble is None
    return f"{size}, {'its bytes are those' if sound else 'NOT the file'} that build wrote"


def _for(manifest: Manifest) -> str:
    if manifest.gpu is None:
        return f"compute capability {', '.join(manifest.targets)}" if manifest.targets else "no GPU in particular"
    gpu = f"{manifest.gpu.name} ({manifest.gpu.compute_capability}), driver {manifest.gpu.driver}"
    return gpu + ("; runs on Ampere and newer" if manifest.hardware_compat else "")


def _options(manifest: Manifest) -> Iterator[str]:
    if manifest.optimization_level is not None:
        yield f"optimization level {manifest.optimization_level}"
    if manifest.hardware_compat:
        yield "hardware compatible"
    if manifest.version_compat:
        yield "version compatible"
    if manifest.workspace_bytes is not None:
        yield f"workspace {format_size(manifest.workspace_bytes)}"


def _asked(manifest: Manifest) -> str:
    share = Tally(manifest.layers, manifest.convolutions).share(manifest.precision)
    macs = f", {manifest.int8_macs:.1%} of the multiply-adds" if manifest.int8_macs else ""
    return f"{manifest.precision}; of the network {share}{macs}"


def _tensor(tensor: TensorRecord) -> str:
    return f"{tensor.name}  {tensor.dtype}  ({', '.join('any' if size < 0 else str(size) for size in tensor.shape)})"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _print_layers(manifest: Manifest, console: Console, every_layer: bool) -> None:
    layers = manifest.engine_layers
    if not layers:
        console.print("layers: not listed; no GPU could load the engine where it was built\n", highlight=False)
        return
    timed = manifest.timed_at is not None
    chosen = layers if every_layer else _foremost(layers, timed)
    title = f"{len(layers)} layers"
    if len(chosen) < len(layers):
        title = f"{len(chosen)} of {title}, {'the longest' if timed else 'the first'}; --layers shows all"
    if timed and manifest.timed_at:
        total = sum(layer.time_ms or 0.0 for layer in layers)
        title += f". Times at {_shape(manifest.timed_at)}, {total:.3f} ms in all"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    console.print(_layer_table(chosen, layers, timed))
    others = [each for each in layers if each.convolution and each.precision != manifest.precision]
    if others and not every_layer:
        console.print(f"convolutions not in {manifest.precision}:", highlight=False)
        for layer in others[:LAYERS_SHOWN]:
            console.print(f"  {layer.precision}  {_short(layer.name)}", markup=False, highlight=False, soft_wrap=True)
        if len(others) > LAYERS_SHOWN:
            console.print(f"  and {len(others) - LAYERS_SHOWN} more", highlight=False)
    console.print()


def _foremost(layers: tuple[LayerRecord, ...], timed: bool) -> tuple[LayerRecord, ...]:
    if timed:
        layers = tuple(sorted(layers, key=lambda layer: -(layer.time_ms or 0.0)))
    return layers[:LAYERS_SHOWN]


def _layer_table(chosen: tuple[LayerRecord, ...], layers: tuple[LayerRecord, ...], timed: bool) -> Table:
    from rich.text import Text

    table = _table(*(("ms", "share") if timed else ()), "type", "kind", "layer")
    table.columns[-1].ratio = 1
    total = sum(layer.time_ms or 0.0 for layer in layers) or 1.0
    for layer in chosen:
        time = layer.time_ms or 0.0
        cells = [f"{time:.4f}", f"{time / total:.1%}"] if timed else []
        table.add_row(*cells, layer.precision, Text(layer.kind), Text(_short(layer.name)))
    return table


def _short(name: str) -> str:
    """A layer's name without the weights that TensorRT 8.6 puts before the operations that use them."""
    parts = name.split(" + ")
    operations = [part for part in parts if not part.endswith((".weight", ".weight_QuantizeLinear"))]
    return " + ".join(operations or parts)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in ("ms", "share") else "left")
    return table
