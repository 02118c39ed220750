"""POST /v1/reconstruct: photos to faces, each by way of a process that reads it, and the engines."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from starlette.responses import Response

from face3d_trt.names import GROUPS
from face3d_trt.serving.metrics import IMAGES, STAGE
from face3d_trt.serving.options import CROP_BYTES, MEDIA_TYPES
from face3d_trt.serving.problems import Problem
from face3d_trt.serving.requests import Part, body_length, media_type, parse_form, read_into
from face3d_trt.serving.schema import FORM, ZIP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from face3d_trt.serving.hub import Hub
    from face3d_trt.serving.links import Coeffs
    from face3d_trt.serving.schema import Mesh, Texture, Which
    from face3d_trt.serving.studio import Desk

_BODIES = (*MEDIA_TYPES, FORM)
_ALLOWED = "a JPEG, PNG, WebP or BMP picture, or a form with some"
_OUTCOMES = {400: "not an image", 413: "too large", 422: "no face"}
_FORM_ROOM = 1024  # bytes of a form beside its files, for each


class Wanted(NamedTuple):
    """What the client asks for."""

    mesh: Mesh | None
    texture: Texture | None
    texture_size: int
    faces: Which


async def answer(hub: Hub, request: Request, wanted: Wanted) -> Response:
    """Answer a request.

    Args:
        hub: What the front works with.
        request: Its body not read yet.
        wanted: Its parameters.

    Raises:
        Problem: None of its pictures gets a result.
    """
    length = _check(hub, request, wanted)
    deadline = hub.deadline(request)
    hub.studio.budget.take(length)
    try:
        data = bytearray(length)
        await read_into(request, memoryview(data), hub.body_seconds(deadline))
        parts = _parts(hub, request, data)
        del data
        with hub.studio.places(len(parts)):
            done = await asyncio.gather(*(_Job(hub, part, wanted, deadline).run() for part in parts))
    finally:
        hub.studio.budget.free(length)
    failed = [each for each in done if isinstance(each, Problem)]
    if len(failed) == len(done):
        raise failed[0]
    pictures = [_refused(part, each) if isinstance(each, Problem) else each for part, each in zip(parts, done)]  # noqa: B905
    return await asyncio.to_thread(_response, pictures, zipped=ZIP in request.headers.get("accept", ""))


def _check(hub: Hub, request: Request, wanted: Wanted) -> int:
    """The body's length, where the request can be answered at all."""
    if not hub.studio.there:
        raise Problem(501, "this server reads no photos: it was started with --photo-workers 0", allowed="/v1/coeffs")
    kind = media_type(request)
    if kind not in _BODIES:
        raise Problem(415, f"the body is {kind or 'of no type'}", allowed=f"Content-Type: {', '.join(_BODIES)}")
    form = _FORM_ROOM * hub.options.max_images if kind == FORM else 0
    length = body_length(request, hub.options.max_body + form, _ALLOWED)
    if (wanted.mesh or wanted.texture) and not hub.studio.makes_files:
        raise Problem(501, "no morphable model lies beside this server's plan, so there are no meshes or textures")
    if not hub.engines.ready:
        raise hub.engines.absent()
    return length


def _parts(hub: Hub, request: Request, data: bytearray) -> list[Part]:
    if media_type(request) == FORM:
        return parse_form(bytes(data), request.headers["content-type"], hub.options.max_images)
    return [Part("picture", bytes(data))]


class _Job:
    """One picture."""

    def __init__(self, hub: Hub, part: Part, wanted: Wanted, deadline: float) -> None:
        self._hub, self._part, self._wanted, self._deadline = hub, part, wanted, deadline
        self._seconds: dict[str, float] = {}

    async def run(self) -> dict[str, Any] | Problem:
        """What is told of it."""
        try:
            if not self._part.data:
                raise Problem(400, f"{self._part.name} is empty", allowed=_ALLOWED)
            async with self._hub.studio.desk(self._deadline) as desk:
                told = await self._work(desk)
        except Problem as problem:
            IMAGES.labels(_OUTCOMES.get(problem.status, "failed")).inc()
            return problem
        IMAGES.labels("done").inc()
        return told

    async def _work(self, desk: Desk) -> dict[str, Any]:
        head = {"do": "find", "name": self._part.name, "faces": self._wanted.faces}
        with self._timed("find"):
            found, crops = await desk.ask(head, [self._part.data], self._deadline)
        with self._timed("infer", count=False):
            coeffs = await self._infer(crops)
        head = {"do": "make", **self._wanted._asdict()}
        with self._timed("make"):
            made, files = await desk.ask(head, [coeffs.tobytes()], self._deadline)
        files = iter(files)
        faces = [
            _face(place, row, each, files)
            for place, row, each in zip(found["faces"], coeffs, made["faces"], strict=True)
        ]
        return {
            "name": self._part.name, "width": found["width"], "height": found["height"],
            "faces_found": found["count"], "faces": faces, "seconds": self._seconds, "problem": None,
        }  # fmt: skip

    async def _infer(self, crops: list[bytes]) -> Coeffs:
        lease = self._hub.engines.room.take(len(crops))
        places = lease.crops()
        for index, crop in enumerate(crops):
            places[index * CROP_BYTES : (index + 1) * CROP_BYTES] = crop
        return np.asarray(await self._hub.engines.infer(lease, self._deadline))

    @contextmanager
    def _timed(self, stage: str, *, count: bool = True) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._seconds[stage] = round(time.perf_counter() - begun, 6)
        if count:  # engines count their own
            STAGE.labels(stage).observe(self._seconds[stage])


def _face(place: dict[str, Any], coeffs: Coeffs, made: dict[str, Any], files: Iterator[bytes]) -> dict[str, Any]:
    return {
        **place,
        "landmarks": made["landmarks"],
        "coefficients": {name: coeffs[part].tolist() for name, part in GROUPS.items()},
        "files": [{**about, "content": next(files)} for about in made["files"]],
    }


def _refused(part: Part, problem: Problem) -> dict[str, Any]:
    return {
        "name": part.name, "width": None, "height": None, "faces_found": 0, "faces": [], "seconds": {},
        "problem": problem.document(),
    }  # fmt: skip


def _response(pictures: list[dict[str, Any]], *, zipped: bool) -> Response:
    """JSON with the files in it, or a ZIP with the JSON in it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for number, picture in enumerate(pictures):
            for index, face in enumerate(picture["faces"]):
                folder = f"image-{number}/face-{index}"
                for file in face["files"]:
                    content = file.pop("content")
                    if zipped:
                        file["path"] = f"{folder}/{file['name']}"
                        target.writestr(file["path"], content)
                    else:
                        file["base64"] = base64.b64encode(content).decode()
        text = json.dumps({"images": pictures})
        if zipped:
            target.writestr("result.json", text)
    if zipped:
        return Response(archive.getvalue(), media_type=ZIP)
    return Response(text, media_type="application/json")
