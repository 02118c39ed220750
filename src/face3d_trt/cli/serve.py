"""`face3d-trt serve`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def seconds(text: str) -> float:
    """Seconds of `5ms`, `0.5s`, `10s`, `1m`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time; write for example 5ms, 10s or 1m")
    return float(match[1]) * _TIMES[match[2]]


def size(text: str) -> int:
    """Bytes of `32MiB`, `512k`, `1000000`."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write for example 32MiB")
    return int(match[1]) * _SIZES[match[2]]


def number_or_auto(text: str) -> int:
    """A number; 0 of `auto`."""
    if text.strip() == "auto":
        return 0
    if not re.fullmatch(r"[1-9]\d{0,3}", text.strip()):
        raise typer.BadParameter(f"{text!r}; write auto, or a number from 1 on")
    return int(text)


def command(
    plan: Annotated[Path, typer.Argument(help="A plan of build, or an ONNX file of export. Nothing is built.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all of this machine's.", envvar="FACE3D_HOST")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free.", min=0, max=65535, envvar="FACE3D_PORT")] = 8080,
    replicas: Annotated[
        int,
        typer.Option(parser=number_or_auto, metavar="auto|N", help="Engine processes. auto: one for each GPU, or one."),
    ] = "auto",  # type: ignore[assignment]  # a default in the words of the command line
    max_batch: Annotated[
        Optional[int],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="Most crops of a batch. Default: the plan's most, up to 256.", envvar="FACE3D_BATCH_SIZE"),
    ] = None,
    max_wait: Annotated[
        float,
        typer.Option(
            parser=seconds, metavar="TIME", help="That a crop waits for others while the engine is busy; idle: never."
        ),
    ] = "5ms",  # type: ignore[assignment]
    max_queue: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Crops that are accepted and not answered; beyond: 429. Default: two of the largest requests "
            "for each front, at least 1024.",
            envvar="FACE3D_MAX_QUEUE_SIZE",
        ),
    ] = None,
    max_crops: Annotated[int, typer.Option(help="Of one request to /v1/coeffs; beyond: 413.")] = 256,
    max_body: Annotated[
        int, typer.Option(parser=size, metavar="SIZE", help="Of one request to /v1/reconstruct; beyond: 413.")
    ] = "32MiB",  # type: ignore[assignment]
    max_pixels: Annotated[int, typer.Option(help="Of a photo; beyond: 413.")] = 50_000_000,
    max_images: Annotated[int, typer.Option(help="Of one request; beyond: 400.")] = 16,
    deadline: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="For an answer; beyond: 504.")
    ] = "10s",  # type: ignore[assignment]
    body_time: Annotated[
        float,
        typer.Option(parser=seconds, metavar="TIME", help="For a request's headers, and for its body; beyond: 408."),
    ] = "10s",  # type: ignore[assignment]
    drain: Annotated[
        float,
        typer.Option(
            parser=seconds, metavar="TIME", help="Between SIGTERM, when /readyz says 503, and the end of accepting."
        ),
    ] = "0.5s",  # type: ignore[assignment]
    token_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File with a bearer token, which /v1 then wants.", envvar="FACE3D_TOKEN_FILE"),
    ] = None,
    fronts: Annotated[
        int, typer.Option(parser=number_or_auto, metavar="auto|N", help="Processes that speak HTTP. auto: cores / 4.")
    ] = "auto",  # type: ignore[assignment]
    photo_workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Processes that read photos. 0: crops only. Default: cores / 2.", envvar="FACE3D_WORKER_COUNT"
        ),
    ] = None,
    emit_config: Annotated[bool, typer.Option("--emit-config", help="Print all settings as JSON and end.")] = False,
) -> None:
    """Serve a plan over HTTP: /v1/reconstruct for photos, /v1/coeffs for aligned crops, /metrics, /openapi.json.

    Ends with Ctrl-C or SIGTERM, once every accepted request is answered.
    """
    from face3d_trt.serving.options import ServeOptions

    options = ServeOptions(
        plan=plan,
        host=host,
        port=port,
        replicas=replicas or None,
        max_batch=max_batch,
        max_wait_s=max_wait,
        max_queue=max_queue,
        max_crops=max_crops,
        max_body=max_body,
        max_pixels=max_pixels,
        max_images=max_images,
        deadline_s=deadline,
        body_s=body_time,
        drain_s=drain,
        token_file=token_file,
        fronts=fronts or None,
        photo_workers=photo_workers,
    )
    if emit_config:
        typer.echo(options.as_json())
        return

    from face3d_trt.cli.console import RichReporter
    from face3d_trt.serving.server import serve

    serve(options, RichReporter())
