"""What the steps of tools/full_size.py do.

OUT/model/           the stand-in, taught here
OUT/unseen/          renders that training has not seen, PNG
OUT/truth.npz        their true coefficients, and what the float32 network finds
OUT/graphs/          full.uint8.onnx, and typed for the TensorRT of the other interpreter
OUT/plans/           fp16.plan, int8.plan
OUT/reference.npz    float32 PyTorch on the unseen renders
OUT/verdicts.json    what `compare` says of both plans
OUT/report.html      the same as a page, where its packages are
OUT/weights/         the network's weights in fp16: `cat network.fp16.*` is the file
"""

from __future__ import annotations

import importlib.util
import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .full_steps import GRAPH, PRECISIONS
from .graphs import CALIBRATION, generation

if TYPE_CHECKING:
    import numpy as np

    from .full_steps import FullSettings

MODEL, UNSEEN, TRUTH = "model", "unseen", "truth.npz"
REFERENCE, VERDICTS, PAGE = "reference.npz", "verdicts.json", "report.html"
PART_BYTES = 16_500_000  # the full size in three
FOR_THE_PAGE = ("jinja2", "matplotlib")


def train(settings: FullSettings) -> dict[str, Any]:
    """Teach; an interrupted run goes on. `{"command", "gpu_bytes", "pictures", "loss", "quality", ...}`.

    It is what `standin --train` calls, with a reporter that writes lines: a log has no progress bar.
    """
    import torch
    from lines import Lines

    from face3d_trt.model.standin import StandinOptions, write_standin

    command = f"face3d-trt standin {MODEL} --size {settings.size} --train {settings.train}"
    command += "" if settings.batch is None else f" --batch {settings.batch}"
    print(f"$ {command}", flush=True)
    begun, directory = time.monotonic(), settings.out / MODEL
    options = StandinOptions(size=settings.size, train_seconds=settings.seconds, batch=settings.batch)
    write_standin(directory, options, Lines())
    taught = json.loads((directory / "training.json").read_text(encoding="utf-8"))
    on_gpu = torch.cuda.is_available()
    return {
        "command": command,
        "seconds_taught": taught["seconds"],
        "seconds_in_all": round(time.monotonic() - begun, 1),
        "on_gpu": on_gpu,
        "gpu_bytes": torch.cuda.max_memory_reserved() if on_gpu else 0,
        "pictures": taught["curve"][-1][0],
        "loss": taught["curve"][-1][1],
        "quality": taught["quality"],
        "files": [f"{MODEL}/{name}" for name in ("configuration.json", "pytorch_model.pt", "training.json")],
    }


def own(settings: FullSettings) -> dict[str, Any]:
    """The network against the truth and itself: `{"columns": {"own error": {measure: [median, 95 %, worst]}}, ...}`."""
    import numpy as np
    import torch
    from own_error import Camera, of_all, own_columns, unseen

    from face3d_trt.decode import Decoder
    from face3d_trt.model.load import load_model
    from face3d_trt.model.render import Renderer
    from face3d_trt.parity.meaning import Meter, find_similarity

    torch.backends.cudnn.allow_tf32 = False  # the float32 network is what is meant
    model = load_model(settings.out / MODEL)
    assert model.morphable is not None
    meter = Meter(Decoder.of(model.morphable), find_similarity())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    camera = Camera(model.network, Renderer(model.morphable), settings.seed, device)
    pictures, truth, found = unseen(camera, settings.pictures)
    files = _write_pictures(settings.out / UNSEEN, pictures)
    np.savez_compressed(settings.out / TRUTH, truth=truth.cpu().numpy(), found=found)
    columns = own_columns(meter, camera, truth, found)
    return {
        "pictures": settings.pictures,
        "seed": settings.seed,
        "device": device,
        "head_mm": list(meter.decoder.head_mm),
        "columns": {
            title: {name: of_all(name, values) for name, values in column.items()} for title, column in columns.items()
        },
        "files": [TRUTH, *files],
    }


def _write_pictures(folder: Path, pictures: np.ndarray) -> list[str]:
    """(N, 3, 224, 224) of whole grey levels, without loss; names relative to the results' folder."""
    import numpy as np
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for former in folder.iterdir():
        former.unlink()
    names = [f"{index:04d}.png" for index in range(len(pictures))]
    for name, picture in zip(names, pictures, strict=True):
        Image.fromarray((picture.transpose(1, 2, 0) * 255).round().astype(np.uint8)).save(folder / name)
    return [f"{folder.name}/{name}" for name in names]


def export(settings: FullSettings) -> dict[str, Any]:
    """The float32 graph."""
    from .commands import face3d

    settings.graphs.mkdir(parents=True, exist_ok=True)
    graph = settings.graph(GRAPH)
    called = face3d(
        "export", "--model", settings.out / MODEL, "--input", "uint8", "-o", graph.name, folder=settings.graphs
    )
    return {"command": called.command, "seconds": round(called.seconds, 1), "bytes": graph.stat().st_size}


def reference(settings: FullSettings) -> dict[str, Any]:
    """Float32 PyTorch on the unseen renders, and the morphable model: what the other interpreter needs."""
    from .commands import face3d

    path = settings.out / REFERENCE
    path.unlink(missing_ok=True)
    words: list[str | Path] = ["compare", "--save-reference", path, "--model", settings.out / MODEL]
    words += ["--input", "uint8", "--images", settings.out / UNSEEN, "--limit", str(settings.pictures)]
    called = face3d(*words, folder=settings.out)
    return {
        "command": called.command,
        "seconds": round(called.seconds, 1),
        "bytes": path.stat().st_size,
        "files": [REFERENCE],
    }


def typed(settings: FullSettings, precision: str) -> dict[str, Any]:
    """The graph that TensorRT is given."""
    from .commands import face3d

    words: list[str | Path] = ["build", "--onnx", settings.graph(GRAPH).name, f"--{precision}"]
    words += ["--calib", CALIBRATION] if precision == "int8" else []
    words += ["--typed-only", "--for", generation(settings), "-o", f"{GRAPH}.{precision}.plan"]
    called = face3d(*words, folder=settings.graphs)
    return {"command": called.command, "seconds": round(called.seconds, 1), "stdout": called.stdout}


def compare(settings: FullSettings) -> dict[str, Any]:
    """Both plans against the reference: `{"command", "code", "plans": {precision: {...}}}`."""
    from .commands import face3d

    path = settings.out / VERDICTS
    words: list[str | Path] = [word for name in PRECISIONS for word in ("--plan", settings.plan(name))]
    words += ["--reference", settings.out / REFERENCE, "--json", path]
    with_page = all(importlib.util.find_spec(name) is not None for name in FOR_THE_PAGE)
    words += ["--report", settings.out / PAGE] if with_page else []
    path.unlink(missing_ok=True)
    called = face3d("compare", *words, folder=settings.out, check=False)
    if not path.is_file():
        raise RuntimeError(f"compare wrote no verdicts and ended with {called.code}")
    verdicts = json.loads(path.read_text(encoding="utf-8"))["verdicts"]
    return {
        "command": called.command,
        "code": called.code,
        "seconds": round(called.seconds, 1),
        "plans": {name: _of(verdict) for name, verdict in zip(PRECISIONS, verdicts, strict=True)},
        "files": [VERDICTS, *([PAGE] if with_page else [])],
    }


def _of(verdict: dict[str, Any]) -> dict[str, Any]:
    """Of one plan, what the section tells; of the engine where it ran, else of the typed graph."""
    candidate = "tensorrt" if verdict["engine_ran"] else "onnxruntime-typed"
    told = ("median", "p95", "worst", "allowed_median", "allowed_p95", "allowed_worst", "worst_image")
    return {
        "passed": verdict["passed"],
        "engine_ran": verdict["engine_ran"],
        "candidate": verdict["candidates"].get(candidate, candidate),
        "weights": verdict["weights"],
        "pictures": len(verdict["pictures"]),
        "batches": verdict["batches"],
        "failures": [failure["text"] for failure in verdict["failures"]],
        "notes": verdict["notes"],
        "meaning": {
            row["measure"]: {name: row[name] for name in told}
            for row in verdict["meaning"]
            if row["candidate"] == candidate
        },
    }


def weights(settings: FullSettings) -> dict[str, Any]:
    """The network's weights in fp16, in parts, for those who want to look at it elsewhere."""
    import torch

    from face3d_trt.model.load import CHECKPOINT, read_network

    state = read_network(settings.out / MODEL / CHECKPOINT)
    file = io.BytesIO()
    torch.save({key: value.half() if value.is_floating_point() else value for key, value in state.items()}, file)
    folder = settings.out / "weights"
    folder.mkdir(exist_ok=True)
    content, files = file.getvalue(), []
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        part = folder / f"network.fp16.{number:02d}"
        part.write_bytes(content[start : start + PART_BYTES])
        files.append(f"{folder.name}/{part.name}")
    return {"bytes": len(content), "files": files}
