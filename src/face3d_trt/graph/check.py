"""Proof of an exported file: ONNX Runtime against PyTorch at several batches and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from face3d_trt.errors import GraphError
from face3d_trt.faces.samples import sample_crops
from face3d_trt.graph.export import OUTPUTS, ExportOptions, check_dynamic
from face3d_trt.graph.info import read_graph
from face3d_trt.names import COEFFS, CROP, GROUPS
from face3d_trt.optional import require
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from face3d_trt.model.reference import Reference

# (batch, height, width); exporters have baked in batch 1, the example's batch, and square sizes
SHAPES = ((1, CROP, CROP), (2, CROP, CROP), (3, CROP, CROP), (8, CROP, CROP), (2, 512, 384), (1, 1024, 1024))
TOLERANCE = 1e-4  # of a coefficient group's (or an output's) root mean square over the pictures


def check_export(path: Path, reference: Reference, options: ExportOptions, report: Reporter = SILENT) -> float:
    """Run the file and the module on the same pictures.

    Returns:
        The largest error met, relative to the root mean square of its group or output.

    Raises:
        GraphError: A dimension is fixed, the file does not run at some shape, or an output differs by more than 1e-4.
        MissingError: ONNX Runtime is not installed.
    """
    import torch

    runtime = require("onnxruntime", "cpu", "the check after export")
    check_dynamic(read_graph(path), options)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = OUTPUTS[options.outputs]
    worst = 0.0
    for shape in report.track(SHAPES, "check    ONNX Runtime against PyTorch"):
        pixels = faces(shape, options)
        try:
            found = session.run(list(names), {session.get_inputs()[0].name: pixels})
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise GraphError(f"the exported graph does not run at (batch, height, width) {shape}: {error}") from error
        with torch.inference_mode():
            expected = [t.numpy() for t in reference(torch.from_numpy(pixels))]
        for name, got, want in zip(names, found, expected, strict=True):
            deviation, part = relative_error(name, got, want)
            worst = max(worst, deviation)
            if not deviation <= TOLERANCE:
                raise GraphError(
                    f"{part} of the exported graph differs from PyTorch by {deviation:.1e} "
                    f"at (batch, height, width) {shape}",
                    allowed=f"{TOLERANCE:.0e} of its root mean square",
                )
    report.stage(f"check    equal to PyTorch within {worst:.1e} at {', '.join('x'.join(map(str, s)) for s in SHAPES)}")
    return worst


def faces(shape: tuple[int, int, int], options: ExportOptions) -> NDArray[np.generic]:
    """The sample faces at another size, as many as the batch: what the graph takes as input."""
    import torch
    from torch.nn import functional

    batch, height, width = shape
    crops = np.resize(sample_crops(), (batch, CROP, CROP, 3))
    pictures = torch.from_numpy(crops).permute(0, 3, 1, 2).to(torch.float32) / 255
    sized = functional.interpolate(pictures, size=(height, width), mode="bilinear", align_corners=False)
    if options.input == "uint8":
        return np.asarray((sized * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy())
    return np.asarray(sized.numpy())


def relative_error(name: str, got: NDArray[np.float32], want: NDArray[np.float32]) -> tuple[float, str]:
    """Largest absolute error over the root mean square, and what it was found in; infinite for another shape or NaN."""
    if got.shape != want.shape:
        return float("inf"), f"{name}, of shape {got.shape} instead of {want.shape},"
    parts = {f"{name}.{group}": part for group, part in GROUPS.items()} if name == COEFFS else {name: slice(None)}
    worst, where = 0.0, name
    for label, part in parts.items():
        difference = np.abs(got[:, part].astype(np.float64) - want[:, part])
        scale = np.sqrt(np.mean(np.square(want[:, part], dtype=np.float64)))
        error = float(difference.max() / scale) if scale > 0 else float(difference.max())
        if not error <= worst:  # NaN included
            worst, where = (error if np.isfinite(error) else float("inf")), label
    return worst, where
