"""What a run measures: which backends this machine can run, from which files, at which cases."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from face3d_trt.bench.backend import Case, Source
from face3d_trt.bench.options import CPU_BATCHES, GPU_BATCHES
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.optional import install_command
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.bench.options import BenchOptions
    from face3d_trt.bench.records import Mode
    from face3d_trt.bench.subject import Subject
    from face3d_trt.errors import Face3DError
    from face3d_trt.records import ModelInfo

_ARTICLES = 4  # the batch that articles about this model compare at, besides 1
_ON_CPU = "--device cpu    # measures the CPU's backends, in a file of their own"


@dataclass(frozen=True)
class Planned:
    """One backend, from one file.

    Attributes:
        backend: A key of registry.BACKENDS.
        source: What it is made from.
        cases: In order: modes, then batches; with a budget the telling ones of either mode before all others.
        named: Whether the user asked for it by name.
        module: That makes it; None: the registry's.
    """

    backend: str
    source: Source
    cases: tuple[Case, ...]
    named: bool
    module: str | None = None


def choose(
    options: BenchOptions, subject: Subject, device: int | None, folder: Path, report: Reporter = SILENT
) -> list[Planned]:
    """Everything that is to be measured.

    Args:
        options: Of the run.
        subject: What there is of the model.
        device: Index of the GPU; None: the CPU.
        folder: Of this run.
        report: Told what is left out, and why.

    Raises:
        MissingError: A backend that was asked for by name cannot run here.
        UsageError: Likewise; or nothing can.
    """
    usual = tuple(name for name, each in BACKENDS.items() if (each.cpu if device is None else each.gpu))
    names = options.backends or usual
    planned: list[Planned] = []
    for name in names:
        if (problem := _why_not(name, subject, device)) is not None:
            if name in options.backends:
                raise problem
            report.warn(f"{name} is left out: {problem.problem}")
            continue
        base = Source(
            model=subject.directory,
            onnx=subject.onnx,
            device=device,
            compile_limit_s=options.compile_limit_s,
            calib=options.calib,
            folder=folder,
        )
        planned += _of_backend(name, base, options, subject, report)
    if not planned:
        raise UsageError("no backend can run here", allowed="see the warnings above", run="face3d-trt doctor")
    return planned


def _of_backend(name: str, base: Source, options: BenchOptions, subject: Subject, report: Reporter) -> list[Planned]:
    named = name in options.backends
    if BACKENDS[name].needs != "plan":
        plan = _typed(subject.onnx, name) if name.startswith("ort-") else None
        facts = subject.facts if name.startswith("ort-") else None
        source = Source(**{**vars(base), "plan": plan})
        return [Planned(name, source, _cases(options, facts, subject, base.device), named)]
    found = []
    for path, manifest in subject.plans:
        facts = manifest.model
        if facts.outputs != options.outputs or (options.input is not None and facts.input != options.input):
            report.warn(f"{path} is left out: it takes {facts.input} and gives {facts.outputs}")
            continue
        source = Source(**{**vars(base), "plan": path})
        found.append(Planned(name, source, _cases(options, facts, subject, base.device), named))
    return found


def _cases(options: BenchOptions, facts: ModelInfo | None, subject: Subject, device: int | None) -> tuple[Case, ...]:
    """In both modes where a GPU makes a difference between them."""
    usual = facts or subject.facts
    layout: Literal["float32", "uint8"] = options.input or (usual.input if usual else "float32")
    batches = options.batches or (CPU_BATCHES if device is None else GPU_BATCHES)
    by_mode: dict[Mode, tuple[int, ...]] = {"engine": batches}
    if device is not None and (options.transfers or options.transfers_at):
        by_mode["host"] = options.transfers_at or batches
    order = [(mode, batch) for mode, those in by_mode.items() for batch in those]
    if options.budget_s is not None:  # it may be cut off anywhere
        first = {mode: telling(those) for mode, those in by_mode.items()}
        order = [(mode, batch) for mode in first for batch in first[mode]] + [
            (mode, batch) for mode, batch in order if batch not in first[mode]
        ]
    return tuple(Case(batch, options.height, options.width, mode, options.outputs, layout) for mode, batch in order)


def telling(batches: tuple[int, ...]) -> tuple[int, ...]:
    """What to measure first where not all may be: the smallest, the largest, and one between, 4 where it is there.

    Args:
        batches: Ascending.
    """
    middle = _ARTICLES if _ARTICLES in batches else batches[len(batches) // 2]
    return tuple(dict.fromkeys((batches[0], batches[-1], middle)))


def _typed(onnx: Path | None, name: str) -> Path | None:
    """What `build` leaves beside a graph: `face3d_resnet50.onnx` → `face3d_resnet50.fp16.onnx`."""
    if onnx is None or name == "ort-fp32":
        return None
    path = onnx.with_suffix(f".{name.partition('-')[2]}.onnx")
    return path if path.is_file() else None


def _why_not(name: str, subject: Subject, device: int | None) -> Face3DError | None:
    """Why a backend cannot run here; nothing is imported for it, ONNX Runtime on a GPU machine aside."""
    if name.startswith("torch-"):
        return _needs("torch", name, "export") or _no_file(
            subject.directory, f"{name} needs the model's directory", "--model DIRECTORY"
        )
    if name.startswith("ort-"):
        return _why_not_ort(name, subject, device)
    if device is None:
        return MissingError(f"{name} needs a GPU", allowed="a machine with an NVIDIA GPU", run="face3d-trt doctor")
    missing = _needs("pycuda", name, "gpu") or _needs("tensorrt", name, "gpu")
    return missing or _no_file(next(iter(subject.plans), None), f"{name} needs a plan", "--plan FILE")


def _why_not_ort(name: str, subject: Subject, device: int | None) -> Face3DError | None:
    from face3d_trt.runtime.ort import has_cuda

    missing: Face3DError | None = _needs("onnxruntime", name, "cpu" if device is None else "gpu")
    missing = missing or _no_file(subject.onnx, f"{name} needs the float32 graph", "--onnx FILE")
    if missing is not None:
        return missing
    if device is not None and not has_cuda():
        return MissingError(
            f"{name}: the ONNX Runtime here has no CUDA, and figures of a CPU do not belong beside those of a GPU",
            allowed="onnxruntime-gpu, or the CPU in a run of its own",
            run=_ON_CPU,
        )
    if name == "ort-int8" and device is None:
        return _needs("onnx", name, "export")
    if name != "ort-fp32" and _typed(subject.onnx, name) is None:
        precision = name.partition("-")[2]
        return UsageError(
            f"{name} needs the typed graph beside {subject.onnx}",
            run=f"face3d-trt build --{precision} --onnx {subject.onnx}"
            + (" --calib DIR" if precision == "int8" else ""),
        )
    return None


def _needs(module: str, name: str, extra: str) -> MissingError | None:
    if importlib.util.find_spec(module) is not None:
        return None
    return MissingError(f"{name} needs the package {module}, which is not installed", run=install_command(extra))


def _no_file(found: object, problem: str, option: str) -> UsageError | None:
    return None if found is not None else UsageError(f"{problem}, which is not here", allowed=option)
