"""Inputs and single stages for pipeline_bench.py: each stage by itself, by as many processes as a run has workers."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROWS = 4096  # crops in one array file: 600 MB
PHOTOS = 16
SIDE = 1024  # px of a photo
_GROUND = 320  # px of the face's crop in it


@dataclass(frozen=True)
class Bench:
    """What is measured.

    Attributes:
        plan: The engine.
        scratch: Where inputs and outputs are.
        devices: As for `reconstruct`.
        workers: Processes of a stage.
        seconds: Of each measurement.
        batch: Rows of a full batch; None: the plan's most.
        texture_size: Of the products.
        rows: Crops in an array file.
    """

    plan: Path
    scratch: Path
    devices: tuple[int, ...]
    workers: int
    seconds: float
    batch: int | None
    texture_size: int
    rows: int = ROWS


def make_inputs(bench: Bench, faces: Path) -> None:
    """One array of crops, crops as JPEG files, and photos of 1024 px with a face, from the pictures in `faces`."""
    from face3d_trt.faces.images import image_files, read_image

    paths = [faces / name for name in image_files(faces)[0]]
    folder = bench.scratch / "inputs"
    for name in ("crops", "photos"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in paths:
        shutil.copy(path, folder / "crops" / path.name)
    crops = [read_image(path) for path in paths]
    for index in range(PHOTOS):
        _photo(crops[index % len(crops)], index).save(folder / "photos" / f"{index:03}.jpg", quality=92)
    whole = np.lib.format.open_memmap(folder / "crops.npy", "w+", np.uint8, (bench.rows, *crops[0].shape))
    for row in range(bench.rows):
        whole[row] = crops[row % len(crops)]
    whole.flush()


def many(bench: Bench, kind: str, count: int) -> Path:
    """A folder with `count` names of the inputs; those are linked, so that the disk holds each picture once."""
    inputs = bench.scratch / "inputs"
    originals = [inputs / "crops.npy"] if kind == "arrays" else sorted((inputs / kind).iterdir())
    folder = bench.scratch / f"many-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    for index in range(count):
        original = originals[index % len(originals)].resolve()
        name = folder / f"{index // 1000:04}" / f"{index:07}{original.suffix}"
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(original)
    return folder


def _photo(crop: np.ndarray, index: int) -> Image.Image:
    """A face on a ground of many colours, so that the JPEG is as large as a photo's."""
    rng = np.random.default_rng(index)
    coarse = Image.fromarray(rng.integers(60, 200, (SIDE // 16, SIDE // 16, 3), np.uint8))
    ground = coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    face = Image.fromarray(crop).resize((_GROUND + 32 * (index % 8),) * 2, Image.Resampling.BICUBIC)
    ground.paste(face, (int(rng.integers(0, SIDE - face.width)), int(rng.integers(0, SIDE - face.height))))
    return ground


def stage_alone(bench: Bench, name: str) -> dict[str, Any]:
    """Pictures a second of one stage, with nothing else beside it.

    Args:
        bench: What is measured.
        name: One of STAGES, or "infer".
    """
    context = multiprocessing.get_context("spawn")
    processes = len(bench.devices) if name == "infer" else bench.workers
    barrier, answers = context.Barrier(processes), context.Queue()
    children = [
        context.Process(target=_be_stage, args=(bench, name, index, barrier, answers), daemon=True)
        for index in range(processes)
    ]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") if name != "infer" else {}
    former = dict(os.environ)
    os.environ.update(threads)
    for child in children:
        child.start()
    os.environ.clear()
    os.environ.update(former)
    found = [answers.get(timeout=bench.seconds + 300) for _ in children]
    for child in children:
        child.join(30)
    if problems := [each for each in found if isinstance(each, str)]:
        raise RuntimeError(problems[0])
    rate = sum(count / seconds for count, seconds in found)
    return {"images_per_s": rate, "processes": processes, "ms_each": 1e3 * processes / rate}


def _be_stage(bench: Bench, name: str, index: int, barrier: Any, answers: Any) -> None:
    try:
        step = _infer(bench, index) if name == "infer" else STAGES[name](bench, index)
        step()
        barrier.wait(timeout=240)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < bench.seconds:
            count += step()
        seconds = time.perf_counter() - begun
        barrier.wait(timeout=240)  # all of them to the end: who is done must not make room for the others
        answers.put((count, seconds))
    except Exception as error:
        barrier.abort()
        answers.put(f"{name}: {type(error).__name__}: {error}")


def _rows(bench: Bench, index: int) -> Callable[[], int]:
    from face3d_trt.reconstruct.sizing import ROWS as BLOCK
    from face3d_trt.reconstruct.sources import find_items
    from face3d_trt.reconstruct.stages import read_rows

    items = find_items((str(bench.scratch / "inputs" / "crops.npy"),), bench.scratch, rows=BLOCK, arrays=True)
    out = np.empty((BLOCK, *items[0].shape, 3), np.uint8)
    turn = iter(range(index, 1 << 62))

    def step() -> int:
        item = items[next(turn) % len(items)]
        read_rows(item, out[: item.count])
        return item.count

    return step


def _decode(kind: str) -> Callable[[Bench, int], Callable[[], int]]:
    def make(bench: Bench, index: int) -> Callable[[], int]:
        from face3d_trt.reconstruct.stages import decode

        paths = [str(path) for path in sorted((bench.scratch / "inputs" / kind).iterdir())]
        turn = iter(range(index, 1 << 62))

        def step() -> int:
            decode(paths[next(turn) % len(paths)])
            return 1

        return step

    return make


def _detect(bench: Bench, index: int) -> Callable[[], int]:
    import cv2

    from face3d_trt.faces.detect import detector
    from face3d_trt.reconstruct.stages import decode, find_faces

    cv2.setNumThreads(1)
    finder, template = detector("mtcnn"), _template(bench)
    photos = [decode(str(path)) for path in sorted((bench.scratch / "inputs" / "photos").iterdir())]
    turn = iter(range(index, 1 << 62))

    def step() -> int:
        try:
            find_faces(photos[next(turn) % len(photos)], "photo", finder, template)
        except Exception as error:
            if type(error).__name__ != "FaceError":  # a photo without a face takes its time too
                raise
        return 1

    return step


def _products(bench: Bench, index: int) -> Callable[[], int]:
    import cv2

    cv2.setNumThreads(1)
    make = _maker(bench)

    def step() -> int:
        make()
        return 1

    return step


def _write(bench: Bench, index: int) -> Callable[[], int]:
    from face3d_trt.reconstruct.results import write_folder

    files = _maker(bench)()
    place = bench.scratch / f"written-{index}"
    turn = iter(range(1 << 62))

    def step() -> int:
        number = next(turn)
        write_folder(place / str(number), files, place / "work")
        if number % 50 == 49:
            for old in place.iterdir():
                shutil.rmtree(old, ignore_errors=True)
        return 1

    return step


STAGES: dict[str, Callable[[Bench, int], Callable[[], int]]] = {
    "read rows": _rows,
    "decode 224": _decode("crops"),
    "decode 1024": _decode("photos"),
    "detect 1024": _detect,
    "products": _products,
    "write": _write,
}


def _maker(bench: Bench) -> Callable[[], dict[str, bytes]]:
    """The products of one face in one photo, with coefficients as the engine gives them."""
    from face3d_trt.reconstruct.products import ProductOptions, face_path, load_face_decoder, make_products
    from face3d_trt.reconstruct.stages import decode

    options = ProductOptions(texture_size=bench.texture_size)
    decoder = load_face_decoder(face_path(bench.plan))
    decoder.prepare(options)
    photo = decode(str(bench.scratch / "inputs" / "photos" / "000.jpg")).pixels
    coeffs = np.load(bench.scratch / "coeffs.npy")
    scale = 224 / photo.shape[0]
    matrix = np.array([[scale, 0, 0.0], [0, scale, 0.0]])
    return lambda: make_products(decoder, photo, matrix, coeffs, "face", options)


def _template(bench: Bench) -> np.ndarray:
    return np.load(bench.scratch / "template.npy")


def _infer(bench: Bench, index: int) -> Callable[[], int]:
    """Full batches from memory, copies and computing overlapped: what the engine can do in this process."""
    from collections import deque

    from face3d_trt.faces.tensor import to_input
    from face3d_trt.reconstruct.engines import EngineSetup, describe, open_for
    from face3d_trt.reconstruct.options import cores

    engine = open_for(EngineSetup(bench.plan, bench.devices[index], max(1, cores() // len(bench.devices))))
    ready = describe(engine, True)
    rows = min(bench.batch or ready.batch[1], ready.batch[1])
    whole = np.load(bench.scratch / "inputs" / "crops.npy", mmap_mode="r")
    images = to_input(np.ascontiguousarray(whole[:rows]), engine.inputs[0].dtype)
    flying: deque[Any] = deque()

    def step() -> int:
        flying.append(engine.submit(images, outputs=["coeffs"]))
        if len(flying) <= engine.depth:
            return 0
        flying.popleft().result()
        return rows

    return step


def measure_engine(bench: Bench) -> dict[str, Any]:
    """What the engine is, and what other stages need of it: its template and the coefficients of one crop."""
    from face3d_trt.faces.tensor import to_input
    from face3d_trt.reconstruct.engines import EngineSetup, describe, open_for

    engine = open_for(EngineSetup(bench.plan, bench.devices[0], 1))
    ready = describe(engine, True)
    np.save(bench.scratch / "template.npy", np.array(ready.template))
    whole = np.load(bench.scratch / "inputs" / "crops.npy", mmap_mode="r")
    least = ready.batch[0]
    images = to_input(np.ascontiguousarray(whole[:least]), engine.inputs[0].dtype)
    np.save(bench.scratch / "coeffs.npy", engine(images, outputs=["coeffs"])["coeffs"][0])
    engine.close()
    return {"backend": ready.backend, "batch": list(ready.batch), "input": engine.inputs[0].dtype}
