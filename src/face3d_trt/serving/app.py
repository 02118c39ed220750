"""The HTTP API: routes and their document."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import face3d_trt
from face3d_trt.serving import coeffs, metrics, photos_api, schema
from face3d_trt.serving.gate import Gate
from face3d_trt.serving.problems import MEDIA_TYPE, Problem
from face3d_trt.serving.sink import GoneError

if TYPE_CHECKING:
    from face3d_trt.serving.hub import Hub

TEXTURE_SIZE = 1024  # for which the processes that read photos are prepared
COEFFS, RECONSTRUCT = "/v1/coeffs", "/v1/reconstruct"
PATHS = frozenset({COEFFS, RECONSTRUCT, "/healthz", "/readyz", "/metrics", "/openapi.json"})
_STARTING = (503,)


def make_app(hub: Hub, token: str | None) -> Gate:
    """The application of a front.

    Args:
        hub: What it works with.
        token: Bearer token that /v1 wants; None: it wants none.
    """
    app = FastAPI(
        title="face3d-trt",
        version=face3d_trt.__version__,
        description="Faces in photos to coefficients of a morphable model, meshes and textures.",
        docs_url=None,  # the pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(Problem, _tell)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(RequestValidationError, _tell_parameter)
    app.add_exception_handler(GoneError, _tell_nobody)
    app.add_exception_handler(Exception, _tell_mistake)
    _add_work(app, hub, token=token is not None)
    _add_state(app, hub)
    _complete(app, token=token is not None)
    hub.gate = Gate(app, PATHS, token)
    return hub.gate


def _add_work(app: FastAPI, hub: Hub, *, token: bool) -> None:
    @app.post(
        COEFFS,
        summary="Aligned crops to coefficients",
        response_model=schema.CoeffsDocument,
        responses={200: schema.raw_answer(), **schema.problems(400, 408, 411, 413, 415, 429, 503, 504, token=token)},
        openapi_extra=schema.crops_body(),
    )
    async def answer_coeffs(request: Request) -> Response:
        """Raw crops in; JSON out, or raw float32 where Accept asks for application/octet-stream."""
        return await coeffs.answer(hub, request)

    @app.post(
        RECONSTRUCT,
        summary="Photos to faces",
        response_model=schema.Reconstruction,
        responses={
            200: schema.zip_answer(),
            **schema.problems(400, 408, 411, 413, 415, 422, 429, 501, 503, 504, token=token),
        },
        openapi_extra=schema.photo_body(hub.options.max_images),
    )
    async def answer_photos(
        request: Request,
        mesh: Annotated[schema.Mesh | None, Query(description="Make a mesh; with texture, it refers to it.")] = None,
        texture: Annotated[schema.Texture | None, Query(description="Make a texture from the photo.")] = None,
        texture_size: Annotated[int, Query(ge=256, le=2048, description="Side in texels.")] = TEXTURE_SIZE,
        faces: Annotated[schema.Which, Query(description="Which of several.")] = "largest",
    ) -> Response:
        """A picture as the body, or several as files of a form; JSON out, or a ZIP where Accept asks for it.

        Of several pictures, those without a result have a problem instead; where none has one, the first one's problem
        is the answer's.
        """
        if unknown := sorted(set(request.query_params) - set(photos_api.Wanted._fields)):
            raise Problem(
                400, f"parameter {unknown[0][:50]} is not known", allowed=", ".join(photos_api.Wanted._fields)
            )
        wanted = photos_api.Wanted(mesh, texture, texture_size, faces)
        return await photos_api.answer(hub, request, wanted)


def _add_state(app: FastAPI, hub: Hub) -> None:
    @app.get("/healthz", summary="Whether this process answers", response_model=schema.State)
    async def tell_health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        summary="Whether a request would be worked on",
        response_model=schema.State,
        responses=schema.problems(*_STARTING, token=False),
    )
    async def tell_readiness() -> dict[str, str]:
        if (problem := hub.unready()) is not None:
            raise problem
        return {"status": "ready"}

    @app.get(
        "/metrics",
        summary="Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def tell_metrics() -> Response:
        return Response(await asyncio.to_thread(hub.exposition.text), media_type=metrics.MEDIA_TYPE)


def _complete(app: FastAPI, *, token: bool) -> None:
    """What FastAPI does not find out by itself: problems' form, the token, and no 422 of its own."""
    document = app.openapi()
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    parts["ProblemDocument"] = schema.ProblemDocument.model_json_schema()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            if token and path.startswith("/v1/"):
                operation["security"] = [{"bearer": []}]
    for name in ("HTTPValidationError", "ValidationError"):
        parts.pop(name, None)
    if token:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}


async def _tell(request: Request, problem: Any) -> Response:
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def _tell_http(request: Request, error: Any) -> Response:
    detail = f"there is no {request.url.path[:200]}" if error.status_code == 404 else str(error.detail)
    return await _tell(request, Problem(error.status_code, detail, headers=dict(error.headers or {})))


async def _tell_parameter(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    name = first["loc"][-1] if first["loc"] else "request"
    return await _tell(request, Problem(400, f"parameter {name}: {first['msg']}"))


async def _tell_mistake(request: Request, error: Any) -> Response:
    return await _tell(request, Problem(500, "this server made a mistake; its log says more"))


async def _tell_nobody(request: Request, error: Any) -> Response:
    return Response(status_code=499)  # nobody reads it; nginx's number for a client that has left
