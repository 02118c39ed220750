"""POST /v1/coeffs: crops from the network straight into the engines' memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.responses import Response

from face3d_trt.names import COEFFICIENTS, CROP
from face3d_trt.serving.metrics import IMAGES
from face3d_trt.serving.options import CROP_BYTES
from face3d_trt.serving.problems import Problem
from face3d_trt.serving.requests import body_length, media_type, read_into
from face3d_trt.serving.schema import RAW

if TYPE_CHECKING:
    from starlette.requests import Request

    from face3d_trt.serving.hub import Hub
    from face3d_trt.serving.links import Coeffs

_ALLOWED = f"(batch, {CROP}, {CROP}, 3) uint8 RGB without gaps: a multiple of {CROP_BYTES:,} bytes"


async def answer(hub: Hub, request: Request) -> Response:
    """Answer a request.

    Args:
        hub: What the front works with.
        request: Its body not read yet.

    Raises:
        Problem: It gets no coefficients.
    """
    rows = _rows(hub, request)
    if not hub.engines.ready:
        raise hub.engines.absent()
    deadline = hub.deadline(request)
    lease = hub.engines.room.take(rows)
    try:
        await read_into(request, lease.crops(), hub.body_seconds(deadline))
    except BaseException:
        lease.free()
        raise
    try:
        found = await hub.engines.infer(lease, deadline)
    except Problem:
        IMAGES.labels("failed").inc(rows)
        raise
    IMAGES.labels("done").inc(rows)
    return _response(request, found)


def _rows(hub: Hub, request: Request) -> int:
    if media_type(request) != RAW:
        raise Problem(415, f"the body is {media_type(request) or 'of no type'}", allowed=f"Content-Type: {RAW}")
    most = hub.options.max_crops
    length = body_length(request, most * CROP_BYTES, _ALLOWED)
    rows, rest = divmod(length, CROP_BYTES)
    if rest:
        raise Problem(400, f"{length:,} bytes are no whole number of crops", allowed=_ALLOWED)
    shape, told = f"{rows},{CROP},{CROP},3", request.headers.get("x-shape")
    if told is not None and told.replace(" ", "") != shape:
        raise Problem(400, f"the body is not what its X-Shape says ({told[:50]})", allowed=f"X-Shape: {shape}")
    return rows


def _response(request: Request, found: Coeffs) -> Response:
    shape = f"{len(found)},{COEFFICIENTS}"
    if RAW in request.headers.get("accept", ""):
        return Response(found.astype("<f4", copy=False).tobytes(), media_type=RAW, headers={"X-Shape": shape})
    told = {"shape": list(found.shape), "coeffs": found.tolist()}
    return Response(json.dumps(told), media_type="application/json")
