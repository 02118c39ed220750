"""What comparisons of several plans share: pictures are aligned, models read, and the truth computed, once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.faces.samples import sample_crops
from face3d_trt.model.load import FaceModel, load_model
from face3d_trt.model.reference import reference_module
from face3d_trt.names import COEFFS, TEXTURE, VERTEX
from face3d_trt.parity.basis import Basis
from face3d_trt.parity.pictures import Chosen, calibration_note, choose_pictures
from face3d_trt.parity.places import exported_model
from face3d_trt.parity.runners import TorchRunner
from face3d_trt.parity.truth import Reference
from face3d_trt.parity.verdict import Check, ReferenceSource
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.parity.compare import CompareOptions
    from face3d_trt.records import Manifest, ModelInfo

OUTPUTS = {"coeffs": (COEFFS,), "mesh": (COEFFS, VERTEX, TEXTURE)}  # in the order of `reference_module`


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

    def basis(self, options: CompareOptions, manifest: Manifest) -> Basis:
        """Float32 PyTorch over the pictures, here; raises as `model` and `pictures`."""
        info = manifest.model
        model = self.model(options.model or exported_model(manifest, options.plan), morphable=info.outputs == "mesh")
        chosen = self.pictures(options.images, info, options.limit)
        same = model.checkpoint_sha256 == info.checkpoint_sha256
        text = "has the checkpoint" if same else "has another checkpoint than the one"
        return Basis(
            truths=self.reference(model, info, chosen),
            source=ReferenceSource(
                file=None,
                sha256=None,
                checkpoint_sha256=model.checkpoint_sha256,
                inputs_sha256=inputs_sha256(chosen),
                torch=torch_version(),
                created=None,
                version=__version__,
            ),
            model=model.source,
            checkpoint=Check("checkpoint", same, f"{model.source} {text} that was exported"),
            skipped=chosen.skipped,
            origin=chosen.origin,
            notes=(*chosen.notes, *calibration_note(chosen, options.images, manifest, options.plan)),
        )

    def model(self, source: str, *, morphable: bool) -> FaceModel:
        """The model of a directory or ModelScope id; raises as `load_model`."""
        key = (source, morphable)
        if key not in self._models:
            self._models[key] = load_model(source, morphable=morphable)
        return self._models[key]

    def pictures(self, images: Path | None, info: ModelInfo, limit: int) -> Chosen:
        """The pictures; raises as `choose_pictures`."""
        key = (images, limit, info.template, info.input)
        if key not in self._chosen:
            self._chosen[key] = choose_pictures(images, info, limit, self._report)
        return self._chosen[key]

    def reference(self, model: FaceModel, info: ModelInfo, chosen: Chosen) -> Reference:
        """Float32 PyTorch over the pictures. `model` and `chosen` come from this object."""
        key = (id(model), id(chosen), info.outputs, info.input)
        if key not in self._references:
            module = reference_module(model, info.outputs, info.input)
            runner = TorchRunner(module, OUTPUTS[info.outputs], info.input)
            samples = None if chosen.samples else sample_crops()
            self._references[key] = Reference(runner, chosen.pictures, self._report, samples)
        return self._references[key]


def inputs_sha256(chosen: Chosen) -> str:
    """SHA-256 of the pictures' pixels, in their order."""
    return hashlib.sha256(chosen.pictures.crops.tobytes()).hexdigest()


def torch_version() -> str:
    """Of the PyTorch that computes here."""
    import torch

    return str(torch.__version__)
