"""A process that decodes photos on a GPU into bays: one for each GPU, since each holds a CUDA context of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from face3d_trt.errors import Face3DError
from face3d_trt.reconstruct.codec import Codec
from face3d_trt.reconstruct.messages import Answer, Broken, Setup, Task
from face3d_trt.reconstruct.shared import Bays, Memory

if TYPE_CHECKING:
    from face3d_trt.reconstruct.sources import Item

AT_ONCE = 32  # photos that the codec is given
_JPEG = (".jpg", ".jpeg")


def is_for_codec(item: Item) -> bool:
    """Whether a picture goes to a GPU, going by its name; what is in it decides there."""
    return item.kind == "image" and item.path.lower().endswith(_JPEG)


def decode_photos(connection: Connection, memory: Memory, device: int) -> None:
    """The process's main loop: first a Setup, then Tasks, as many as have come at a time, until None."""
    setup: Setup | None = connection.recv()
    if setup is None:
        return
    try:
        bays, codec = Bays(memory, *setup.bays), Codec(device)
        try:
            while tasks := _arrived(connection):
                for answer in decode_all(codec, bays, tasks):
                    connection.send(answer)
        finally:
            codec.close()
    except Face3DError as error:
        connection.send(Broken(error))


def decode_all(codec: Codec, bays: Bays, tasks: Sequence[Task]) -> list[Answer]:
    """Photos into their bays. What the codec does not take, or fails at, is left to the workers.

    Args:
        codec: Open.
        bays: Where to.
        tasks: Of the kind "photo", with one picture each.
    """
    start = time.perf_counter()
    try:
        pictures = codec.read([task.items[0].path for task in tasks])
    except (RuntimeError, MemoryError):  # the GPU's memory is short
        pictures = [None] * len(tasks)
    answers = []
    for task, pixels in zip(tasks, pictures, strict=True):
        place = None
        if pixels is not None:
            height, width = pixels.shape[:2]
            bays.photo(task.bay, (height, width))[...] = pixels
            place = (height, width, 1.0)
        answers.append(Answer(task.group, "photo", photo=place))
    answers[0].seconds["decode"] = time.perf_counter() - start
    return answers


def _arrived(connection: Connection) -> list[Task]:
    """At least one task, and what else is there; nothing: the end."""
    tasks: list[Task] = []
    while len(tasks) < AT_ONCE and (not tasks or connection.poll()):
        task: Task | None = connection.recv()
        if task is None:
            return []
        tasks.append(task)
    return tasks
