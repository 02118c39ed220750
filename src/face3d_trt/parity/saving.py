"""`compare --save-reference`: float32 PyTorch's outputs into a file, for machines that have no torch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from face3d_trt import __version__
from face3d_trt.errors import ModelError, UsageError
from face3d_trt.files import check_output
from face3d_trt.names import CROP
from face3d_trt.optional import require
from face3d_trt.parity.candidates import present
from face3d_trt.parity.compare import PICTURES
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from face3d_trt.model.load import FaceModel
    from face3d_trt.parity.pictures import Chosen
    from face3d_trt.parity.reference_file import ReferenceRecord, SeenPictures, Size
    from face3d_trt.parity.session import Session
    from face3d_trt.records import ModelInfo

Outputs = Literal["coeffs", "mesh"]
Input = Literal["float32", "uint8"]


@dataclass(frozen=True)
class SaveOptions:
    """What to save.

    Attributes:
        file: Where to.
        plans: Whose model, outputs, input and image sizes are meant; (): what the other options say.
        images: As in CompareOptions.
        model: As in CompareOptions; without plans it has to be given.
        limit: As in CompareOptions.
        outputs: `coeffs` unless plans tell.
        input: `float32` unless plans tell.
        bases: Put the morphable model into the file too, where the model directory has it: errors in mm and px need it.
        sizes: (height, width) in pixels, beside those of the plans; the training crop's where there are none.
    """

    file: Path
    plans: tuple[Path, ...] = ()
    images: Path | None = None
    model: str | None = None
    limit: int = PICTURES
    outputs: Outputs | None = None
    input: Input | None = None
    sizes: tuple[Size, ...] = ()
    bases: bool = True


def save_reference(options: SaveOptions, report: Reporter = SILENT) -> ReferenceRecord:
    """Compute float32 PyTorch's outputs on the pictures, and write them.

    Raises:
        UsageError: Plans of different models; options that contradict a plan; neither a plan nor a model.
        PlanError: A manifest is missing or damaged.
        ModelError: The model cannot be loaded, or is not the plans'.
        ImageError, FaceError, CalibrationError: No picture can be used.
        MissingError: A package or the model is missing here.
        StorageError: The file cannot be written.
    """
    check_output(options.file)
    present(options.plans, options.images)
    for module in ("torch", "polygraphy"):
        require(module, "export", "computing float32 PyTorch's outputs")
    from face3d_trt.decode import Decoder
    from face3d_trt.parity.reference_file import write_reference
    from face3d_trt.parity.session import Session

    manifests = [Manifest.read(manifest_path(plan)) for plan in options.plans]
    session = Session(report)
    model, info = _model(options, manifests, session)
    sizes = _sizes(options, manifests)
    chosen = session.pictures(options.images, info, options.limit)
    reference = session.reference(model, info, chosen)
    truths = {size: reference.at(*size) for size in sizes}
    usual = tuple(truths[size].usual for size in sizes)
    record = _record(info, chosen, _seen(options, manifests, chosen), sizes, usual)
    decoder = Decoder.of(model.morphable) if options.bases and model.morphable is not None else None
    write_reference(options.file, record, truths, decoder)
    return record


def _model(options: SaveOptions, manifests: Sequence[Manifest], session: Session) -> tuple[FaceModel, ModelInfo]:
    """The model, and its facts: the plans' where there are plans."""
    optional = None if options.bases else False  # the morphable model of a graph without a mesh
    from face3d_trt.graph.export import ExportOptions, model_info
    from face3d_trt.parity.places import exported_model

    if not manifests:
        if options.model is None:
            raise UsageError(
                "there is neither a plan nor a model whose outputs could be saved",
                allowed="--plan or --model",
                run=f"face3d-trt compare --save-reference {options.file} --model MODEL",
            )
        wanted = ExportOptions(
            model=options.model, outputs=options.outputs or "coeffs", input=options.input or "float32"
        )
        model = session.model(options.model, morphable=wanted.outputs == "mesh" or optional)
        return model, model_info(model, wanted)
    info = _common(options, manifests)
    source = options.model or exported_model(manifests[0], options.plans[0])
    model = session.model(source, morphable=info.outputs == "mesh" or optional)
    if model.checkpoint_sha256 != info.checkpoint_sha256:
        raise ModelError(
            f"{source} has another checkpoint than the one that {options.plans[0]} was built from",
            allowed=f"the model with checkpoint {info.checkpoint_sha256[:12]}…",
            run=f"face3d-trt compare --save-reference {options.file} --plan {options.plans[0]} --model MODEL",
        )
    return model, info


def _common(options: SaveOptions, manifests: Sequence[Manifest]) -> ModelInfo:
    """The facts that all plans share, since a file holds one model."""
    first = manifests[0].model
    for what in ("checkpoint_sha256", "outputs", "input"):
        wanted = getattr(first, what)
        for plan, manifest in zip(options.plans, manifests, strict=True):
            if getattr(manifest.model, what) != wanted:
                raise UsageError(
                    f"{options.plans[0]} and {plan} differ in {what}, and a reference file holds one model",
                    allowed="plans of one model with the same outputs and input",
                    run=f"face3d-trt compare --save-reference {options.file} --plan {options.plans[0]}",
                )
        asked = getattr(options, what, None)
        if asked not in (None, wanted):
            raise UsageError(
                f"--{what} {asked}: {options.plans[0]} has {wanted}",
                allowed=f"--{what} {wanted}, or --model without --plan",
                run=f"face3d-trt compare --save-reference {options.file} --plan {options.plans[0]}",
            )
    return first


def _sizes(options: SaveOptions, manifests: Sequence[Manifest]) -> tuple[Size, ...]:
    from face3d_trt.parity.batches import batches

    every = [batch for manifest in manifests for batch in batches(manifest.profiles, manifest.model.input)]
    found = {*options.sizes, *((batch.height, batch.width) for batch in every)}
    return tuple(sorted(found or {(CROP, CROP)}))


def _seen(options: SaveOptions, manifests: Sequence[Manifest], chosen: Chosen) -> SeenPictures:
    from face3d_trt.parity.pictures import calibration_note
    from face3d_trt.parity.reference_file import SeenPictures

    calibrated = {
        manifest.calibration.fingerprint
        for plan, manifest in zip(options.plans, manifests, strict=True)
        if manifest.calibration is not None and calibration_note(chosen, options.images, manifest, plan)
    }
    folder = options.images if options.images is not None and options.images.is_dir() else None
    return SeenPictures(
        fingerprint=chosen.fingerprint,
        folder=str(folder.resolve()) if folder is not None else None,
        seen_from=str(Path.cwd().resolve()),
        calibrated=tuple(sorted(calibrated)),
    )


def _record(
    info: ModelInfo, chosen: Chosen, seen: SeenPictures, sizes: tuple[Size, ...], usual: tuple[float | None, ...]
) -> ReferenceRecord:
    import numpy as np

    from face3d_trt.parity.reference_file import ReferenceRecord
    from face3d_trt.parity.session import inputs_sha256, torch_version

    return ReferenceRecord(
        model=info,
        sizes=sizes,
        usual=usual,
        names=chosen.pictures.names,
        skipped=chosen.skipped,
        origin=chosen.origin,
        notes=chosen.notes,
        seen=seen,
        inputs_sha256=inputs_sha256(chosen),
        tools={"torch": torch_version(), "numpy": np.__version__},
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=__version__,
    )
