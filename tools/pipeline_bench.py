"""Measure `face3d-trt reconstruct`: every stage alone, then the whole, from arrays, JPEG crops and 1024 px photos.

    python tools/pipeline_bench.py --plan engines/face3d_resnet50.int8.plan --out build/pipeline
    python tools/pipeline_bench.py --plan PLAN --out DIR --devices 0,1 --steps arrays,scaling --seconds 6
    python tools/pipeline_bench.py --out DIR --document docs/pipeline.md         # the table of what is there

The inputs are made from the pictures in --faces (aligned faces; the calibration set is one), and linked as often as
needed. Writes DIR/results.json after each step; what stands there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_parts import STAGES, Bench, make_inputs, many, measure_engine, stage_alone
from pipeline_table import put_into, table

if TYPE_CHECKING:
    from face3d_trt.reconstruct.stats import Status

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

WHOLE: dict[str, dict[str, Any]] = {
    "arrays": {"inputs": "arrays", "detector": "aligned", "save": {"coeffs"}, "stages": ("read rows",)},
    "jpeg crops": {"inputs": "crops", "detector": "aligned", "save": {"coeffs"}, "stages": ("decode 224",)},
    "photos to coefficients": {
        "inputs": "photos",
        "detector": "mtcnn",
        "save": {"coeffs"},
        "stages": ("decode 1024", "detect 1024"),
    },
    "photos": {
        "inputs": "photos",
        "detector": "mtcnn",
        "save": {"coeffs", "mesh", "texture"},
        "stages": ("decode 1024", "detect 1024", "products", "write"),
    },
}
STEPS = ("machine", "inputs", *STAGES, "infer", *WHOLE, "scaling")


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps that are missing, and write the table."""
    chosen = _parser().parse_args(words)
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(_file(out).read_text()) if _file(out).exists() else {}
    if chosen.plan is not None:
        bench = _bench(chosen)
        for name, step in _steps(bench, chosen, results).items():
            _do(name, step, out, results)
    text = table(results)
    (out / "section.md").write_text(text)
    if chosen.document:
        put_into(chosen.document, text)
    print(text)
    return int(any("problem" in each for each in results.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "pipeline", help="inputs, results.json, section.md"
    )
    parser.add_argument(
        "--plan", type=Path, help="a plan or an ONNX file, with its .face.npz beside it; none: table only"
    )
    parser.add_argument("--faces", type=Path, default=ROOT / "calibration", help="aligned faces")
    parser.add_argument("--devices", default="all", help="as for reconstruct")
    parser.add_argument("--workers", type=int, help="default: as reconstruct has it")
    parser.add_argument("--batch", type=int, help="default: the plan's most")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rows", type=int, default=4096, help="crops in an array file")
    parser.add_argument("--texture-size", type=int, default=1024)
    parser.add_argument("--steps", default="", help=f"with commas, or all that are missing: {', '.join(STEPS)}")
    parser.add_argument("--document", type=Path, help="put the table into this file, between its marks")
    return parser


def _file(out: Path) -> Path:
    return out / "results.json"


def _bench(chosen: argparse.Namespace) -> Bench:
    from face3d_trt.reconstruct.gpus import find_devices
    from face3d_trt.reconstruct.sizing import default_workers

    devices = find_devices(chosen.devices)
    return Bench(
        plan=chosen.plan.resolve(),
        scratch=chosen.out.resolve() / "scratch",
        devices=devices,
        workers=chosen.workers or default_workers(devices),
        seconds=chosen.seconds,
        batch=chosen.batch,
        texture_size=chosen.texture_size,
        rows=chosen.rows,
    )


def _steps(
    bench: Bench, chosen: argparse.Namespace, results: dict[str, Any]
) -> dict[str, Callable[[], dict[str, Any]]]:
    wanted = [word.strip() for word in chosen.steps.split(",") if word.strip()] or list(STEPS)
    if unknown := sorted(set(wanted) - set(STEPS)):
        raise SystemExit(f"there are no steps {unknown}; there are {', '.join(STEPS)}")
    steps: dict[str, Callable[[], dict[str, Any]]] = {}
    if not (bench.scratch / "coeffs.npy").exists():
        results.pop("inputs", None)
        wanted = ["inputs", *wanted]
    for name in sorted(set(wanted), key=STEPS.index):
        if name in results and "problem" not in results[name]:
            continue
        if name == "machine":
            steps[name] = lambda: _machine(bench)
        elif name == "inputs":
            steps[name] = lambda: _inputs(bench, chosen.faces)
        elif name == "scaling":
            steps[name] = lambda: _scaling(bench, results)
        elif name in WHOLE:
            steps[name] = lambda name=name: _whole(bench, name, results, bench.devices)  # type: ignore[misc]
        else:
            steps[name] = lambda name=name: stage_alone(bench, name)  # type: ignore[misc]
    return steps


def _do(name: str, step: Callable[[], dict[str, Any]], out: Path, results: dict[str, Any]) -> None:
    begun = time.monotonic()
    print(f"{name} ...", flush=True)
    try:
        results[name] = step()
    except Exception as error:
        results[name] = {"problem": f"{type(error).__name__}: {error}"}
    results[name]["took_s"] = round(time.monotonic() - begun, 1)
    print(f"  {json.dumps(results[name])}", flush=True)
    beside = _file(out).with_suffix(".new")
    beside.write_text(json.dumps(results, indent=1))
    beside.replace(_file(out))


def _machine(bench: Bench) -> dict[str, Any]:
    from face3d_trt.engine.gpu import visible_gpus
    from face3d_trt.reconstruct.options import cores

    return {
        "cores": cores(),
        "gpus": [gpu.name for gpu in visible_gpus()],
        "devices": list(bench.devices),
        "workers": bench.workers,
        "plan": bench.plan.name,
        "seconds": bench.seconds,
        "texture_size": bench.texture_size,
        "date": time.strftime("%Y-%m-%d"),
    }


def _inputs(bench: Bench, faces: Path) -> dict[str, Any]:
    make_inputs(bench, faces)
    return measure_engine(bench)


def _expected(bench: Bench, name: str, results: dict[str, Any], engines: int) -> tuple[float, float]:
    """Images a second that the workers, and that the engines, reach by what their stages take alone."""
    alone = [results.get(stage, {}).get("images_per_s") for stage in WHOLE[name]["stages"]]
    infer = results.get("infer", {})
    seconds = sum(bench.workers / rate for rate in alone if rate) / bench.workers
    workers = 1 / seconds if seconds and all(alone) else 0.0
    rate = infer.get("images_per_s", 0.0) * engines / max(1, infer.get("processes", engines))
    return workers, rate


def _whole(bench: Bench, name: str, results: dict[str, Any], devices: tuple[int, ...]) -> dict[str, Any]:
    """One run over so many pictures that it takes about --seconds."""
    from face3d_trt.reconstruct.gpus import CPU
    from face3d_trt.reconstruct.options import ReconstructOptions
    from face3d_trt.reconstruct.pipeline import reconstruct
    from face3d_trt.reconstruct.products import ProductOptions

    workers, engines = _expected(bench, name, results, len(devices))
    limits = [rate for rate in (workers, engines) if rate]
    wanted = (min(limits) if limits else 10.0) * bench.seconds
    about = WHOLE[name]
    count = max(1, round(wanted / (bench.rows if about["inputs"] == "arrays" else 1)))
    source = many(bench, about["inputs"], count)
    output = bench.scratch / f"out-{name.replace(' ', '-').replace(',', '')}-{len(devices)}"
    shutil.rmtree(output, ignore_errors=True)
    options = ReconstructOptions(
        sources=(str(source),),
        output=output,
        plan=bench.plan,
        detector=about["detector"],
        products=ProductOptions(frozenset(about["save"]), texture_size=bench.texture_size),
        devices=",".join("cpu" if device == CPU else str(device) for device in devices),
        workers=bench.workers,
        batch=bench.batch,
    )
    seen: list[Status] = []
    summary = reconstruct(options, watch=seen.append)
    shutil.rmtree(source, ignore_errors=True)
    status = summary.status
    slowest = min(limits) if limits else None
    return {
        "pictures": summary.here,
        "counts": summary.counts,
        "images_per_s": status.mean_rate,
        "steady_per_s": steady(seen) or status.mean_rate,
        "workers_could": workers or None,
        "engines_could": engines or None,
        "of_slowest": (steady(seen) or status.mean_rate) / slowest if slowest else None,
        "busy": status.busy,
        "gpu_busy": gpu_busy(seen),
        "limit": status.limit,
        "stage_s": status.stage_s,
        "batch": status.batch,
        "devices": list(devices),
        "output": str(output),
    }


def steady(seen: Sequence[Status]) -> float | None:
    """Pictures a second between a tenth and nine tenths of them: without the time in which stages fill and empty."""
    if not seen:
        return None
    last = seen[-1].finished
    middle = [status for status in seen if 0.1 * last <= status.finished <= 0.9 * last]
    if len(middle) < 2 or middle[-1].seconds - middle[0].seconds < 0.5:
        return None
    return (middle[-1].finished - middle[0].finished) / (middle[-1].seconds - middle[0].seconds)


def gpu_busy(seen: Sequence[Status]) -> dict[str, float]:
    """Mean utilization of each GPU by NVML, while the run was under way.

    The first second is left out, since NVML's figure is that of up to a second before, and the end, where stages empty.
    """
    if not seen:
        return {}
    working = [status.seconds for status in seen if status.finished]
    begun = (working[0] if working else seen[0].seconds) + 1.0
    found: dict[str, list[float]] = {}
    for status in seen:
        for index, facts in status.gpus.items():
            over = status.finished >= 0.97 * seen[-1].finished
            if status.seconds >= begun and not over and facts.get("utilization") is not None:
                found.setdefault(str(index), []).append(facts["utilization"])
    return {index: sum(shares) / len(shares) for index, shares in found.items()}


def _scaling(bench: Bench, results: dict[str, Any]) -> dict[str, Any]:
    """Arrays of crops on one device and on all, and whether the results that both have are the same."""
    if len(bench.devices) < 2:
        return {"skipped": "there is one device"}
    one = _whole(bench, "arrays", results, bench.devices[:1])
    every = _whole(bench, "arrays", results, bench.devices)
    return {
        "one": one,
        "all": every,
        "times": every["steady_per_s"] / one["steady_per_s"],
        "same_results": same(Path(one["output"]), Path(every["output"])),
    }


def same(one: Path, other: Path) -> dict[str, Any]:
    """How many result files of two runs have the same bytes; the runs may be of different lengths."""
    files = [path.relative_to(one) for path in one.rglob("*.npy") if path.is_file()]
    both = [path for path in files if (other / path).is_file()]
    equal = sum((one / path).read_bytes() == (other / path).read_bytes() for path in both)
    lines = [(folder / "results.jsonl").read_text().splitlines() for folder in (one, other)]
    shared = min(map(len, lines))
    return {"files": len(both), "equal": equal, "same_order": lines[0][:shared] == lines[1][:shared]}


if __name__ == "__main__":
    raise SystemExit(main())
