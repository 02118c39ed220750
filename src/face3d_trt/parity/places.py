"""Folders that a manifest names, as they were called where `export` and `build` ran."""

from __future__ import annotations

from pathlib import Path

from face3d_trt.errors import ModelError
from face3d_trt.records import Manifest, ModelInfo, manifest_path


def find_directory(named: str, plan: Path) -> Path | None:
    """The directory `named`: seen from here, else from the plan's folder or one above it; None where none is there."""
    asked = Path(named).expanduser()
    folder = plan.resolve().parent
    places = [asked, *(place / asked for place in (folder, *folder.parents))]
    return next((place for place in places if place.is_dir()), None)


def exported_model(manifest: Manifest, plan: Path) -> str:
    """The model that was exported: a directory that is found from here, or a ModelScope id with its revision.

    Raises:
        ModelError: It was a directory, which is not found any more.
    """
    found = find_model(manifest.model, plan)
    if found is None:
        raise ModelError(
            f"the model directory {manifest.model.source} of {manifest_path(plan)} is not here, nor beside or above "
            "the plan",
            allowed="the directory that was exported, wherever it is now",
            run=f"face3d-trt compare --plan {plan} --model DIRECTORY",
        )
    return found


def find_model(info: ModelInfo, beside: Path) -> str | None:
    """The same for a model by its facts, looked for from here and from the folder of `beside`; None: not found."""
    if info.revision is not None:
        return f"{info.source}@{info.revision}"
    directory = find_directory(info.source, beside)
    return None if directory is None else str(directory)
