"""`face3d-trt reconstruct`."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from face3d_trt.reconstruct.start import Summary

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


class Detector(str, Enum):
    """Where the faces come from."""

    mtcnn = "mtcnn"
    landmarks = "landmarks"
    aligned = "aligned"


class Decode(str, Enum):
    """Where JPEG files are decoded."""

    cpu = "cpu"
    gpu = "gpu"


class Faces(str, Enum):
    """Which of several faces."""

    largest = "largest"
    all = "all"


class TextureFormat(str, Enum):
    """Of the texture."""

    png = "png"
    jpg = "jpg"


class Format(str, Enum):
    """Of the mesh."""

    obj = "obj"
    glb = "glb"
    ply = "ply"


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="Folders (with subfolders), pictures, videos, globs in quotes, lists (.txt, one path a line); with "
            "--detector aligned also .npy and .npz of crops, (N, 224, 224, 3) uint8 RGB.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the results: new, empty, or with --resume an earlier one.")
    ],
    plan: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="A plan or an ONNX file. Default: the one in engines/, fp16 first."),
    ] = None,
    detector: Annotated[
        Optional[Detector],  # noqa: UP045
        typer.Option(help="Default: mtcnn; landmarks where --landmarks is given. aligned: nothing but crops."),
    ] = None,
    landmarks: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="JSON or CSV file with five points for each picture."),
    ] = None,
    faces: Annotated[Faces, typer.Option(help="Of a picture with several.")] = Faces.largest,
    format: Annotated[Format, typer.Option(help="Of the mesh.")] = Format.obj,
    texture_size: Annotated[int, typer.Option(metavar="PX", help="Side of the texture, 256 to 4096.")] = 1024,
    texture_format: Annotated[
        TextureFormat, typer.Option(help="jpg takes a fraction of the time.")
    ] = TextureFormat.png,
    save: Annotated[
        str, typer.Option(help="What is kept, with commas: coeffs, mesh, texture, overlay.")
    ] = "coeffs,mesh,texture",
    devices: Annotated[
        str, typer.Option(help="all, GPUs like 0,1, or cpu; an engine process for each (cpu,cpu: two).")
    ] = "all",
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Processes that read, detect, bake and write. Default: one a core. FACE3D_WORKER_COUNT."),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Crops for the engine at a time. Default: the plan's most. FACE3D_BATCH_SIZE."),
    ] = None,
    queue: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Pictures on their way at a time, which bounds memory. FACE3D_MAX_QUEUE_SIZE."),
    ] = None,
    decode: Annotated[
        Decode, typer.Option(help="gpu: JPEGs by nvImageCodec, where it takes them; the extra decode-gpu.")
    ] = Decode.cpu,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run ended, however it did.")] = False,
    manifest: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The list of results, a JSON line for each picture. Default: results.jsonl in -o."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="JSON lines on stderr instead of a table that moves.")] = False,
    max_temperature: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="°C", help="Lower the batch while a GPU is hotter than that."),
    ] = None,
    max_memory: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SHARE", help="Likewise for its memory, by all processes: 0.9."),
    ] = None,
    metrics_port: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="PORT", help="Answer Prometheus, and `monitor --url`, on this port of localhost."),
    ] = None,
    ray: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ADDRESS",
            help="On all machines of a Ray cluster, which share sources, plan and -o: auto, HOST:PORT, or local.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a picture gave no result.")] = False,
) -> None:
    """Turn pictures into meshes, textures and coefficients; every picture ends as a result or with a reason.

    Exit 0 when all are accounted for, 130 when interrupted, 1 when the disk is full. --resume goes on after any end.
    """
    from face3d_trt.monitor.limits import Limits
    from face3d_trt.reconstruct.options import ReconstructOptions
    from face3d_trt.reconstruct.products import ProductOptions

    wanted: Any = frozenset(word.strip() for word in save.split(",") if word.strip())
    options = ReconstructOptions(
        sources=tuple(sources),
        output=output,
        plan=plan,
        detector=detector and detector.value,
        landmarks=landmarks,
        faces=faces.value,
        products=ProductOptions(wanted, format.value, texture_size, texture_format.value),
        devices=devices,
        workers=workers,
        batch=batch,
        queue=queue,
        decode=decode.value,
        resume=resume,
        manifest=manifest,
        limits=Limits(max_temperature, max_memory),
        metrics_port=metrics_port,
    )
    summary = _run(options, log, ray)
    if summary.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if strict and summary.counts.get("failed"):
        raise typer.Exit(EXIT_FAILED)


def _run(options: Any, log: bool, ray: str | None) -> Summary:
    if ray is None:
        from face3d_trt.reconstruct.pipeline import reconstruct
    else:
        from face3d_trt.reconstruct.cluster.run import reconstruct_on_ray

        reconstruct = partial(reconstruct_on_ray, address=ray)
    if log:
        from face3d_trt.reconstruct.log import JsonLog, facts_of

        lines = JsonLog(lambda text: print(text, file=sys.stderr, flush=True))
        summary = reconstruct(options, report=lines, watch=lines.watch, tell=lines.tell)
        lines.tell("end", {**facts_of(summary.status), "interrupted": summary.interrupted})
        return summary
    from rich.console import Console

    from face3d_trt.reconstruct.view import LiveView, PlainView

    console = Console(stderr=True, highlight=False)
    view = LiveView(console) if console.is_terminal else PlainView(console)
    try:
        summary = reconstruct(options, report=view, watch=view.watch, tell=view.tell)
    finally:
        view.close()
    _print(summary)
    return summary


def _print(summary: Summary) -> None:
    from face3d_trt.reconstruct.view import counted

    status = summary.status
    typer.echo(f"{summary.results}: {counted(summary.counts)}")
    if summary.here:
        noun = "picture" if summary.here == 1 else "pictures"
        typer.echo(f"{summary.here} {noun} in {status.seconds:.1f} s, {status.mean_rate:,.1f}/s; {summary.backend}")
        typer.echo(f"limit: {status.limit}")
    for index, gpu in summary.gpus.items():
        if gpu.utilization is not None:
            typer.echo(f"GPU {index}: busy {gpu.utilization:.0%} of the time, opening the engine included")
    if summary.interrupted:
        typer.echo("interrupted; what was done is kept: the same command with --resume does the rest", err=True)
