"""What the API takes and gives, for its OpenAPI document; answers are written by hand, in this form."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from face3d_trt.serving.options import CROP_BYTES, MEDIA_TYPES
from face3d_trt.serving.problems import MEDIA_TYPE

Mesh = Literal["obj", "glb"]
Texture = Literal["png"]
Which = Literal["largest", "all"]
RAW = "application/octet-stream"
ZIP = "application/zip"
FORM = "multipart/form-data"


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: str = Field(description="about:blank: the status says it.")
    title: str
    status: int
    detail: str
    allowed: str | None = Field(None, description="What would have been right.")


class File(BaseModel):
    """A file that was made of a face."""

    name: str
    media_type: str
    base64: str


class Coefficients(BaseModel):
    """The network's output by group."""

    identity: list[float] = Field(min_length=80, max_length=80)
    expression: list[float] = Field(min_length=64, max_length=64)
    texture: list[float] = Field(min_length=80, max_length=80)
    angle: list[float] = Field(min_length=3, max_length=3, description="Pitch, yaw, roll; radians.")
    lighting: list[float] = Field(min_length=27, max_length=27)
    translation: list[float] = Field(min_length=3, max_length=3, description="1.0 = 100 mm.")


class Face(BaseModel):
    """One face. Places are px of the picture, the centre of its first pixel at (0, 0), x right, y down."""

    box: list[float] | None = Field(description="Left, upper, right, lower; null: the picture is an aligned crop.")
    score: float | None = Field(description="The detector's, 0 to 1.")
    points: list[list[float]] | None = Field(description="Five: eyes, nose, mouth corners, left ones first.")
    landmarks: list[list[float]] | None = Field(
        description="68, of the reconstructed face; null where the server has no morphable model."
    )
    coefficients: Coefficients
    files: list[File]


class Picture(BaseModel):
    """One picture of the request, in its order."""

    name: str
    width: int | None
    height: int | None
    faces_found: int
    faces: list[Face]
    seconds: dict[str, float] = Field(description="Spent on reading and finding, inferring, making files.")
    problem: ProblemDocument | None = Field(description="Why it has no faces.")


class Reconstruction(BaseModel):
    """What became of the pictures."""

    images: list[Picture]


class CoeffsDocument(BaseModel):
    """Coefficients of crops, 257 each, in the order of the groups."""

    shape: list[int]
    coeffs: list[list[float]]


class State(BaseModel):
    """Of the server."""

    status: str


_BINARY = {"type": "string", "format": "binary"}
_WHY: dict[int, str] = {
    400: "Not a picture, an empty body, a malformed form or too many pictures in it, an unknown value of a parameter.",
    401: "No token, or another one.",
    408: "The body did not come in time.",
    411: "The body's length is not known beforehand.",
    413: "Too many bytes, pixels or crops.",
    415: "Another kind of body.",
    422: "No face.",
    429: "The queue is full.",
    501: "This server cannot do that: it has no morphable model, or reads no photos.",
    503: "It is starting, or an engine died with this request in it.",
    504: "The deadline has passed.",
}
_RETRIED = (429, 503, 504)


def problems(*statuses: int, token: bool) -> dict[int | str, dict[str, Any]]:
    """The answers that are problems, for FastAPI's `responses`."""
    told: dict[int | str, dict[str, Any]] = {}
    for status in (*statuses, *((401,) if token else ())):
        told[status] = {
            "description": _WHY[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        if status in _RETRIED:
            told[status]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return told


def photo_body(most: int) -> dict[str, Any]:
    """The body of /v1/reconstruct: a picture, or a form with up to `most` of them."""
    content: dict[str, Any] = {kind: {"schema": _BINARY} for kind in MEDIA_TYPES}
    files = {"type": "array", "items": _BINARY, "minItems": 1, "maxItems": most}
    content[FORM] = {"schema": {"type": "object", "properties": {"image": files}, "required": ["image"]}}
    return {"requestBody": {"required": True, "content": content}}


def crops_body() -> dict[str, Any]:
    """The body of /v1/coeffs."""
    text = (
        f"Aligned crops, (batch, 224, 224, 3) uint8 RGB without gaps: a multiple of {CROP_BYTES} bytes. "
        "A header X-Shape (batch,224,224,3) is checked against that."
    )
    return {"requestBody": {"required": True, "description": text, "content": {RAW: {"schema": _BINARY}}}}


def raw_answer() -> dict[str, Any]:
    """The other form of an answer of /v1/coeffs."""
    return {"content": {RAW: {"schema": {**_BINARY, "description": "(batch, 257) float32, little endian."}}}}


def zip_answer() -> dict[str, Any]:
    """The other form of an answer of /v1/reconstruct."""
    text = "result.json, and beside it a folder for each face with its files."
    return {"content": {ZIP: {"schema": {**_BINARY, "description": text}}}}
