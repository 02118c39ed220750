"""Who says what is right: a saved reference, else float32 PyTorch, else the float32 graph on ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from face3d_trt.bench.error import MOST, Truth, pictures
from face3d_trt.bench.spawn import Ended, TimedOut, answer_of
from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.names import COEFFS
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.bench.options import BenchOptions
    from face3d_trt.bench.subject import Subject
    from face3d_trt.faces.images import Pixels
    from face3d_trt.runtime.interface import HostArray

_PATIENCE_S = 240.0


def find_truth(options: BenchOptions, subject: Subject, report: Reporter = SILENT) -> Truth | None:
    """What is right for some pictures at the size of the run; None, with a warning, where nobody can say.

    Raises:
        UsageError: The reference file is damaged, of another model or without this size.
    """
    height, width = options.height, options.width
    if options.reference is not None:
        return _saved(options.reference, subject, height, width)
    crops = pictures(height, width)
    reasons = []
    if subject.directory is None or importlib.util.find_spec("torch") is None:
        reasons.append("no torch here, or no model directory")
    elif (found := _asked(by_torch, subject.directory, crops, reasons)) is not None:
        return Truth(crops, found, "float32 PyTorch")
    if subject.onnx is None or importlib.util.find_spec("onnxruntime") is None:
        reasons.append("no ONNX Runtime here, or no float32 graph")
    elif (found := _asked(by_onnxruntime, subject.onnx, crops, reasons)) is not None:
        return Truth(crops, found, "the float32 graph on ONNX Runtime")
    report.warn(
        f"nobody here says what is right ({'; '.join(reasons)}), so the rows have no error; where torch is, "
        "`face3d-trt compare --save-reference FILE` writes what --reference takes"
    )
    return None


def by_torch(directory: Path, crops: Pixels) -> HostArray:
    """Coefficients of float32 PyTorch on the CPU."""
    import torch

    from face3d_trt.faces.tensor import to_input
    from face3d_trt.model.load import load_model

    network = load_model(directory, morphable=False).network.eval()
    with torch.inference_mode():
        found: HostArray = network(torch.from_numpy(to_input(crops, "float32"))).numpy()
    return found


def by_onnxruntime(path: Path, crops: Pixels) -> HostArray:
    """Coefficients of the float32 graph on the CPU."""
    from face3d_trt.faces.tensor import to_input
    from face3d_trt.runtime.ort import OrtEngine

    with OrtEngine(path) as engine:
        found: HostArray = engine(to_input(crops, engine.model.input), outputs=[COEFFS])[COEFFS]
    return found


def _asked(who: object, where: Path, crops: Pixels, reasons: list[str]) -> HostArray | None:
    """In a process of its own, as frameworks stay in memory."""
    try:
        return np.asarray(answer_of(_PATIENCE_S, who, where, crops), np.float32)  # type: ignore[arg-type]
    except (Face3DError, Ended) as error:
        reasons.append(str(error).splitlines()[0])
    except TimedOut:
        reasons.append(f"no answer in {_PATIENCE_S:.0f} s")
    return None


def _saved(path: Path, subject: Subject, height: int, width: int) -> Truth:
    from face3d_trt.parity.reference_file import read_reference, size_name

    file, size = read_reference(path), (height, width)
    theirs = file.record.model.checkpoint_sha256
    if subject.sha256 is not None and theirs != subject.sha256:
        raise UsageError(
            f"{path} is of another model: checkpoint {theirs[:12]}…, and here {subject.sha256[:12]}…",
            allowed="a reference of the model that is benched",
        )
    if size not in file.crops:
        raise UsageError(
            f"{path} has no outputs at {size_name(size)}",
            allowed=", ".join(map(size_name, file.record.sizes)),
            run=f"face3d-trt compare --save-reference {path} --model MODEL --size {size_name(size)}",
        )
    return Truth(file.crops[size][:MOST], file.outputs[size][COEFFS][:MOST], f"float32 PyTorch, saved in {path.name}")
