"""The file of `compare --save-reference`: pictures as they are fed, float32 PyTorch's outputs, and whose they are.

A NumPy archive without pickles: `record` is a ReferenceRecord as JSON, `224x224.crops` (N, 224, 224, 3) uint8,
`224x224.coeffs` (N, 257) float32 and so on for each output and image size, and `sha256` over all of that.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from face3d_trt.errors import UsageError
from face3d_trt.files import write_beside
from face3d_trt.records import ModelInfo, Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from face3d_trt.parity.truth import Truth

Array = npt.NDArray[Any]
Size = tuple[int, int]  # height and width of the input, in pixels
_CROPS, _RECORD, _DIGEST = "crops", "record", "sha256"


class SeenPictures(Record):
    """What tells whether a plan was calibrated on these pictures, where they are not at hand any more."""

    fingerprint: str | None  # of the crops that the user's pictures gave; None: the package's samples
    folder: str | None  # --images, as an absolute path of the machine that saved
    seen_from: str  # the folder in which it was saved
    calibrated: tuple[str, ...]  # calibration fingerprints of the plans given to it that were calibrated on these


class ReferenceRecord(Record):
    """All in the file but the arrays."""

    schema_version: Literal[1] = 1
    model: ModelInfo
    sizes: tuple[Size, ...]
    usual: tuple[float | None, ...]  # for each size, see `Truth.usual`
    names: tuple[str, ...]  # of the pictures
    skipped: tuple[str, ...]
    origin: str
    notes: tuple[str, ...]
    seen: SeenPictures
    inputs_sha256: str  # of the pictures, (N, 224, 224, 3) uint8, in their order
    tools: dict[str, str]  # package -> version
    created: str  # ISO 8601, UTC
    version: str  # of face3d-trt


@dataclass(frozen=True, eq=False)
class ReferenceFile:
    """What was read.

    Attributes:
        path: Where from.
        sha256: Of the content.
        record: Whose outputs these are, and of what.
        crops: By image size, (N, height, width, 3) uint8 RGB.
        outputs: By image size and name, N rows float32.
    """

    path: Path
    sha256: str
    record: ReferenceRecord
    crops: dict[Size, npt.NDArray[np.uint8]]
    outputs: dict[Size, dict[str, Array]]


def size_name(size: Size) -> str:
    """`224x224`: height, width."""
    return f"{size[0]}x{size[1]}"


def write_reference(path: Path, record: ReferenceRecord, truths: Mapping[Size, Truth]) -> None:
    """Write the file, whole or not at all.

    Raises:
        StorageError: It cannot be written.
    """
    arrays: dict[str, Array] = {_RECORD: np.frombuffer(record.to_json(), np.uint8)}
    for size, truth in truths.items():
        for name, array in {_CROPS: truth.crops, **truth.outputs}.items():
            arrays[f"{size_name(size)}.{name}"] = array
    arrays[_DIGEST] = np.frombuffer(bytes.fromhex(_digest(arrays)), np.uint8)
    with write_beside(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes them for allow_pickle


def read_reference(path: Path) -> ReferenceFile:
    """Read the file, and check that its content is what was written.

    Raises:
        UsageError: It is missing, is no such file, is damaged, or was written by another version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    try:
        archive = np.load(io.BytesIO(data), allow_pickle=False)
        arrays = {name: archive[name] for name in archive.files}
        digest = arrays.pop(_DIGEST).tobytes().hex()
        text = arrays[_RECORD].tobytes()
    except Exception as error:  # what a flipped bit makes numpy and zipfile raise has no common base
        raise _refused(path, "is not a reference file, or is damaged") from error
    if digest != _digest(arrays):
        raise _refused(path, "is damaged: its content is not what was written")
    record = _record(path, text)
    groups = {size: _of_size(arrays, size) for size in record.sizes}
    crops = {size: group.pop(_CROPS) for size, group in groups.items()}
    return ReferenceFile(path, digest, record, crops, groups)


def _of_size(arrays: Mapping[str, Array], size: Size) -> dict[str, Array]:
    prefix = f"{size_name(size)}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _record(path: Path, text: bytes) -> ReferenceRecord:
    version = json.loads(text).get("schema_version")
    try:
        return ReferenceRecord.model_validate_json(text)
    except ValidationError as error:
        raise _refused(
            path, f"was written by another version of face3d-trt: schema {version}, and this one reads 1"
        ) from error


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _refused(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path} {problem}",
        allowed="a file that compare --save-reference wrote",
        run=f"face3d-trt compare --save-reference {path} --model MODEL    # where torch is",
    )
