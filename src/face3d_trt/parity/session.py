"""What comparisons of several plans share: pictures are aligned, models read, and the truth computed, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.model.load import FaceModel, load_model
from face3d_trt.model.reference import reference_module
from face3d_trt.parity.pictures import Chosen, choose_pictures
from face3d_trt.parity.runners import TorchRunner
from face3d_trt.parity.truth import Reference
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.records import Manifest


class Session:
    """Models, pictures and truths by what they depend on.

    Args:
        report: Told what is read and computed.
    """

    def __init__(self, report: Reporter = SILENT) -> None:
        self._report = report
        self._models: dict[tuple[str, bool], FaceModel] = {}
        self._chosen: dict[tuple[object, ...], Chosen] = {}
        self._references: dict[tuple[object, ...], Reference] = {}

    def model(self, source: str, *, morphable: bool) -> FaceModel:
        """The model of a directory or ModelScope id; raises as `load_model`."""
        key = (source, morphable)
        if key not in self._models:
            self._models[key] = load_model(source, morphable=morphable)
        return self._models[key]

    def pictures(self, images: Path | None, manifest: Manifest, limit: int) -> Chosen:
        """The pictures; raises as `choose_pictures`."""
        info = manifest.model
        key = (images, limit, info.template, info.input)
        if key not in self._chosen:
            self._chosen[key] = choose_pictures(images, info, limit, self._report)
        return self._chosen[key]

    def reference(self, model: FaceModel, manifest: Manifest, chosen: Chosen) -> Reference:
        """Float32 PyTorch over the pictures. `model` and `chosen` come from this object."""
        info = manifest.model
        key = (id(model), id(chosen), info.outputs, info.input)
        if key not in self._references:
            names = [output.name for output in manifest.outputs]
            runner = TorchRunner(reference_module(model, info.outputs, info.input), names, info.input)
            self._references[key] = Reference(runner, chosen.pictures, self._report)
        return self._references[key]
