"""The command that builds once more, with a list of nodes to keep and every option that the first build was given."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.engine.options import BuildOptions
from face3d_trt.engine.typed import NEXT, built_from
from face3d_trt.graph.precision import record_path
from face3d_trt.records import Manifest, TypedRecord, manifest_path

if TYPE_CHECKING:
    from face3d_trt.bisect.files import BisectOptions
    from face3d_trt.bisect.run import Graphs


def build_command(options: BisectOptions, graphs: Graphs, keep: Path) -> str:
    """With `keep`, from the manifest of the plan, or of one that was built from the typed graph; else from its record.

    Args:
        options: What was bisected, and on what it was judged: the build's own gate is told the same.
        graphs: What was bisected.
        keep: The list.
    """
    typed = graphs.typed_path
    plan = options.plan or next(built_from(typed), None)
    manifest = Manifest.read(manifest_path(plan)) if plan is not None else None
    if manifest is not None and "--typed" not in shlex.split(manifest.command):
        return shlex.join([*_without(shlex.split(manifest.command), "--keep"), "--keep", str(keep), *_judged(options)])
    if not record_path(typed).is_file():
        calib = " --calib DIR --calib-method METHOD" if graphs.precision == "int8" else ""
        onnx, listed = shlex.quote(str(graphs.onnx)), shlex.quote(str(keep))
        return f"face3d-trt build --onnx {onnx} --{graphs.precision}{calib} --keep {listed}"
    record = TypedRecord.read(record_path(typed))
    asked = _asked(record, graphs, keep)
    if manifest is not None or not record.strongly_typed:
        made = asked.typed_command("10" if record.strongly_typed else "8.6")
        moved = f", once {plan} is elsewhere" if plan is not None else ""
        return f"{made}    # then build --typed from it, as before{moved}"
    words = shlex.join([*shlex.split(asked.command), *_judged(options)])
    return f"{words}    # and --profile and the like, where the plan had them"


def _asked(record: TypedRecord, graphs: Graphs, keep: Path) -> BuildOptions:
    stem, calibration = graphs.typed_path.name.removesuffix(".onnx").removesuffix(NEXT), record.calibration
    return BuildOptions(
        graphs.onnx,
        record.precision,
        Path(calibration.folder) if calibration else None,
        calibration.method if calibration else "output",
        output=graphs.typed_path.with_name(f"{stem}.plan"),
        keep=keep,
    )


def _judged(options: BisectOptions) -> list[str]:
    named = (("--images", options.images), ("--model", options.model), ("--limits", options.limits))
    return [word for name, value in named if value is not None for word in (name, str(value))]


def _without(words: list[str], option: str) -> list[str]:
    """Without an option and its value."""
    if option not in words:
        return words
    at = words.index(option)
    return words[:at] + words[at + 2 :]
