"""`face3d-trt triton`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from face3d_trt.cli.serve import seconds


def sizes_or_word(text: str) -> str:
    """`auto`, `none`, or whole numbers joined by commas."""
    words = text.replace(" ", "")
    if words not in ("auto", "none") and not all(part.isdecimal() and len(part) < 8 for part in words.split(",")):
        raise typer.BadParameter(f"{text!r}; write auto, none, or batch sizes like 8,32")
    return words


def number_or_all(text: str) -> int:
    """A number; 0 of `all`."""
    if text.strip() == "all":
        return 0
    if not text.strip().isdecimal() or not 1 <= int(text) <= 1000:
        raise typer.BadParameter(f"{text!r}; write all, or a number from 1 to 1000")
    return int(text)


def command(
    repository: Annotated[Path, typer.Argument(metavar="MODEL_REPO", help="Folder of the models; made if need be.")],
    plan: Annotated[list[Path], typer.Option(help="A plan, its manifest beside it. Repeatable: each is a model.")],
    name: Annotated[
        Optional[list[str]],  # noqa: UP045  # typer reads it at run time, on Python 3.10 too
        typer.Option(help="Of the models, in the order of the plans. Default: the plans' names without .plan."),
    ] = None,
    version: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of the models. Default: the one after the highest that is there."),
    ] = None,
    group: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="count=N,gpus=N+N,profiles=N+N",
            help="Instances: so many on each of these GPUs, choosing among these optimization profiles. Repeatable. "
            "What is left out: 1, all, all.",
        ),
    ] = None,
    max_batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Most pictures of a batch. Default: as many as the profiles take."),
    ] = None,
    max_wait: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="That a request waits for others to fill a batch.")
    ] = "0.5ms",  # type: ignore[assignment]  # a default in the words of the command line
    preferred: Annotated[
        str,
        typer.Option(
            parser=sizes_or_word,
            metavar="auto|none|N,N",
            help="Batch sizes that go without waiting. auto: what several profiles are tuned for; with one, none.",
        ),
    ] = "auto",
    max_queue: Annotated[int, typer.Option(help="Requests that wait; beyond, Triton refuses. 0: no limit.")] = 1024,
    deadline: Annotated[
        float,
        typer.Option(
            parser=seconds, metavar="TIME", help="That a request waits; beyond, Triton refuses. 0s: no limit."
        ),
    ] = "10s",  # type: ignore[assignment]
    serve_versions: Annotated[
        int,
        typer.Option(parser=number_or_all, metavar="N|all", help="How many of the highest versions Triton serves."),
    ] = "1",  # type: ignore[assignment]
    no_warm_up: Annotated[
        bool, typer.Option("--no-warm-up", help="Be ready before each profile has run once.")
    ] = False,
    link: Annotated[bool, typer.Option("--link", help="Hard links to the plans, not copies.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a version that is there, and a config.pbtxt that was edited.")
    ] = False,
    keep_config: Annotated[
        bool, typer.Option("--keep-config", help="Leave a config.pbtxt that is there as it is.")
    ] = False,
) -> None:
    """Put plans into a model repository for NVIDIA's Triton Inference Server, configured by their manifests.

    A new version lies beside the old ones. Needs neither a GPU nor TensorRT nor Triton.
    """
    from face3d_trt.cli.console import RichReporter
    from face3d_trt.triton.options import Group, TritonOptions
    from face3d_trt.triton.repository import write_repository
    from face3d_trt.triton.show import described

    options = TritonOptions(
        repository=repository,
        plans=tuple(plan),
        names=tuple(name or ()),
        version=version,
        groups=tuple(map(Group.parse, group or [""])),
        max_batch=max_batch,
        max_wait_s=max_wait,
        preferred={"auto": None, "none": ()}.get(preferred) if preferred in ("auto", "none") else _sizes(preferred),
        max_queue=max_queue,
        deadline_s=deadline,
        serve_versions=serve_versions or None,
        warm_up=not no_warm_up,
        link=link,
        replace=replace,
        keep_config=keep_config,
    )
    typer.echo(described(repository, write_repository(options, RichReporter())))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(map(int, text.split(",")))))
