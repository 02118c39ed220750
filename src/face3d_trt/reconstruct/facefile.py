"""`NAME.face.npz`: what turns coefficients into a face on a machine without torch and without the model's directory.

`export` writes it beside the ONNX file. A NumPy archive without pickles, uncompressed, float32: `record` is a
FaceRecord as JSON, `mean_shape` and so on are the arrays of `decode.Decoder`, `uv` (V, 2) the texture's coordinates,
and `sha256` is over all of that. It holds the morphable model, and comes with its licence.
"""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from face3d_trt.decode import Decoder
from face3d_trt.errors import MissingError, UsageError
from face3d_trt.files import write_beside
from face3d_trt.records import Record, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Array = npt.NDArray[Any]

SUFFIX = ".face.npz"
_RECORD, _DIGEST, _UV = "record", "sha256", "uv"


class FaceRecord(Record):
    """All in the file but the arrays."""

    schema_version: Literal[1] = 1
    source: str  # what the user named: a directory or a ModelScope id
    revision: str | None
    weights: Weights
    checkpoint_sha256: str  # of the network whose coefficients these bases belong to
    uv: Literal["model", "cylinder"]
    licence: str = "made from the model's own files (Basel Face Model); comes with their licence, not to be passed on"
    version: str  # of face3d-trt


class FaceFile:
    """What was read, or is to be written.

    Attributes:
        record: Whose bases these are.
        decoder: The bases.
        uv: (V, 2) float32, u to the right, v upwards, 0 to 1.
    """

    def __init__(self, record: FaceRecord, decoder: Decoder, uv: Array) -> None:
        self.record, self.decoder, self.uv = record, decoder, uv


def face_path(artefact: Path) -> Path:
    """Where the face file of a plan or an ONNX file is: `engines/a.fp16.plan` → `engines/a.face.npz`.

    The nearest name in the folder that the artefact's begins with; else the only one there.

    Raises:
        MissingError: There is none; the message has the command that writes it.
    """
    stems = [artefact.name]
    while "." in stems[-1]:
        stems.append(stems[-1].rpartition(".")[0])
    for stem in stems:
        path = artefact.with_name(f"{stem}{SUFFIX}")
        if path.is_file():
            return path
    there = sorted(artefact.parent.glob(f"*{SUFFIX}"))
    if len(there) == 1:
        return there[0]
    raise MissingError(
        f"no morphable model lies beside {artefact}"
        + (f": {len(there)} others are there, and none has its name" if there else f": no *{SUFFIX}"),
        allowed=f"{stems[-1]}{SUFFIX}, as export writes it beside the ONNX file, copied to the plan's folder",
        run=f"face3d-trt export --model MODEL -o {shlex.quote(str(artefact.with_name(stems[-1])))}.onnx"
        "    # where torch is",
    )


def write_face_file(path: Path, file: FaceFile) -> None:
    """Write it, whole or not at all.

    Raises:
        StorageError: It cannot be written.
    """
    arrays: dict[str, Array] = {name: getattr(file.decoder, name) for name in file.decoder.names()}
    arrays |= {_UV: file.uv, _RECORD: np.frombuffer(file.record.to_json(), np.uint8)}
    arrays[_DIGEST] = np.frombuffer(bytes.fromhex(_digest(arrays)), np.uint8)
    with write_beside(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # numpy's stub takes them for allow_pickle


def read_face_file(path: Path, checkpoint_sha256: str | None = None) -> FaceFile:
    """Read it, and check that its content is what was written.

    Args:
        path: The file.
        checkpoint_sha256: Of the network whose coefficients are to be decoded; None: not checked.

    Raises:
        MissingError: It is not there.
        UsageError: It is damaged, of another version, or of another model.
    """
    if not path.is_file():
        raise MissingError(f"{path} is not there", allowed=f"NAME{SUFFIX}, as export writes it", run=_export(path))
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        digest = arrays.pop(_DIGEST).tobytes().hex()
        whole = digest == _digest(arrays)
        text, uv = arrays.pop(_RECORD).tobytes(), arrays.pop(_UV)
    except Exception as error:  # what a flipped bit makes numpy and zipfile raise has no common base
        raise _refused(path, f"is no {SUFFIX} file, or is damaged") from error
    if not whole:
        raise _refused(path, "is damaged: its content is not what was written")
    try:
        record = FaceRecord.model_validate_json(text)
    except ValidationError as error:
        raise _refused(path, "was written by another version of face3d-trt") from error
    if not Decoder.fits(arrays) or uv.shape != (len(arrays["mean_shape"]) // 3, 2):
        raise _refused(path, "has a morphable model of other arrays")
    if checkpoint_sha256 not in (None, record.checkpoint_sha256):
        raise _refused(path, f"belongs to another model ({record.source}), whose coefficients mean other faces")
    return FaceFile(record, Decoder(**arrays), uv)


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _export(path: Path) -> str:
    onnx = f"{str(path).removesuffix(SUFFIX)}.onnx"
    return f"face3d-trt export --model MODEL -o {shlex.quote(onnx)}    # where torch is, then copy {path.name} here"


def _refused(path: Path, problem: str) -> UsageError:
    return UsageError(f"{path} {problem}", allowed="a file that export wrote for this model", run=_export(path))
