"""Teach the stand-in of upstream's full size on this GPU, build its engines, and write what they lose.

    python tools/full_size.py --out build/full-size --doc docs/accuracy.md
    python tools/full_size.py --out DIR --engine-python 'python3.10' --torch-python 'python3.12' --steps train

Writes OUT/section.md, and puts it into --doc, unless the figures are of a rehearsal: another size, less than five
minutes of training, no GPU. Each step is a process of its own, in the interpreter with TensorRT or in the one with
torch, and leaves OUT/<step>.json. What is there already is not done again, and training goes on where it was
interrupted, so this may be called until all is done; twice at once for steps that do not need each other, with
--device for each.
Exit code 1: a step failed, or the figures may not be written into --doc.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from proof.being import be_step, use_this_checkout
from proof.full_section import MARKS, NEEDED, rehearsal, section
from proof.full_steps import FullSettings, full_steps, seconds_of
from proof.report import put_into
from proof.results import Result, read
from proof.runner import Launcher, run_steps
from proof.steps import Side, choose

ROOT = Path(__file__).resolve().parents[1]
HIDDEN_IN_COMMAND = ("out", "graphs", "help", "list", "report", "pack", "steps", "budget", "timing_cache", "device")


def main(words: Sequence[str] | None = None) -> int:
    """Run steps and write the section; or be one step."""
    use_this_checkout()
    chosen = _parser().parse_args(words)
    settings = _settings(chosen)
    settings.out.mkdir(parents=True, exist_ok=True)
    steps = full_steps(settings)
    if chosen.run_step:
        return be_step(*choose([chosen.run_step], steps), settings)
    if chosen.list:
        for step in steps:
            print(f"{step.name:<16} {step.side:<7} about {step.expected_s:.0f} s")
        return 0
    if (reason := _other_run(settings)) is not None:
        print(reason, file=sys.stderr)
        return 2
    return _run(chosen, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = shlex.quote(sys.executable)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "full-size", help="everything that is made")
    parser.add_argument("--engine-python", default=here, help="the Python with TensorRT and pycuda")
    parser.add_argument("--torch-python", default=here, help="the Python with torch, onnx, ModelOpt, onnxruntime")
    parser.add_argument("--size", choices=("full", "small"), default="full", help="small: a rehearsal")
    parser.add_argument("--train", default="10m", help="how long to teach (90s, 10m); less than 5m: a rehearsal")
    parser.add_argument("--batch", type=int, help="pictures of a training step; default as `standin`")
    parser.add_argument("--pictures", type=int, default=256, help="unseen renders that are measured on")
    parser.add_argument("--seed", type=int, default=4711, help="of those")
    parser.add_argument("--largest", type=int, default=256, help="largest batch of the engines")
    parser.add_argument("--timing-cache", type=Path, help="of an earlier build on such a GPU; it is copied")
    parser.add_argument("--steps", default="", help="names or their beginnings, comma-separated; default all")
    parser.add_argument("--budget", type=float, help="seconds; a step that would not fit is left for a later call")
    parser.add_argument("--device", type=int, help="index of the GPU; default: what is visible")
    parser.add_argument("--doc", type=Path, help="document that the section is put into")
    parser.add_argument("--pack", type=Path, help="folder for what is worth keeping: results, page, curve, weights")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    parser.add_argument("--report", action="store_true", help="run nothing, write the section")
    parser.add_argument("--graphs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.add_argument("--run-step", help=argparse.SUPPRESS)
    return parser


def _settings(chosen: argparse.Namespace) -> FullSettings:
    out = chosen.out.resolve()
    try:
        seconds_of(chosen.train)
    except ValueError as error:
        sys.exit(f"--train: {error}")
    if chosen.device is not None and not chosen.run_step:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(chosen.device)  # steps see one GPU, as their first
    return FullSettings(
        out=out,
        graphs=out / "graphs",
        largest=chosen.largest,
        size=chosen.size,
        train=chosen.train,
        batch=chosen.batch,
        pictures=chosen.pictures,
        seed=chosen.seed,
    )


def _other_run(settings: FullSettings) -> str | None:
    """Why what lies in the folder is not of this run; else it is this run's from now on."""
    path = settings.out / "asked.json"
    if not path.exists():
        path.write_text(json.dumps(settings.asked(), indent=1) + "\n", encoding="utf-8")
    there = json.loads(path.read_text(encoding="utf-8"))
    if there == settings.asked():
        return None
    return f"{settings.out} is of a run with {there}, not {settings.asked()}: name another --out"


def _run(chosen: argparse.Namespace, settings: FullSettings) -> int:
    try:
        steps = choose([word for word in chosen.steps.split(",") if word], full_steps(settings))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    outcomes = []
    if not chosen.report:
        _take_timings(chosen.timing_cache, settings)
        interpreters: dict[Side, str] = {"engine": chosen.engine_python, "torch": chosen.torch_python}
        launch = Launcher(Path(__file__).resolve(), settings, interpreters)
        outcomes = run_steps(steps, settings, launch, budget_s=chosen.budget, say=lambda line: print(line, flush=True))
    refused = _write(chosen, settings)
    if chosen.pack is not None:
        _pack(settings, chosen.pack)
    return 1 if refused or any(outcome.bad for outcome in outcomes) else 0


def _take_timings(former: Path | None, settings: FullSettings) -> None:
    cache = settings.plan("timing-cache").with_suffix("")
    if former is not None and not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(former, cache)
        cache.chmod(0o644)


def _write(chosen: argparse.Namespace, settings: FullSettings) -> bool:
    """Whether the section was refused."""
    results = {step.name: result for step in full_steps(settings) if (result := read(step.name, settings.out))}
    missing = [name for name in NEEDED if name not in results]
    if missing:
        print(f"no section yet: {', '.join(missing)} to come")
        return False
    text = section(results, shown_command(chosen))
    path = settings.out / "section.md"
    path.write_text(text, encoding="utf-8")
    print(f"section: {path}")
    return chosen.doc is not None and _refused(chosen.doc, text, results)


def _refused(document: Path, text: str, results: dict[str, Result]) -> bool:
    if reasons := rehearsal(results):
        print(f"not put into {document}, since it is a rehearsal: {'; '.join(reasons)}", file=sys.stderr)
        return True
    put_into(document, text, MARKS)
    print(f"document: {document}")
    return False


def shown_command(chosen: argparse.Namespace) -> str:
    """The command line as the section shows it: no folder of this machine stands in it."""
    words = ["python", "tools/full_size.py", "--out", "DIR"]
    for action in _parser()._actions:
        value = getattr(chosen, action.dest, None)
        if action.dest in HIDDEN_IN_COMMAND or action.help == argparse.SUPPRESS or value == action.default:
            continue
        words.append(action.option_strings[0])
        if action.dest.endswith("_python"):
            value = shlex.join(Path(word).name if "/" in word else word for word in shlex.split(value))
        elif isinstance(value, Path):
            value = value.resolve().relative_to(ROOT) if value.resolve().is_relative_to(ROOT) else value.name
        words.append(str(value))
    return shlex.join(words)


def _pack(settings: FullSettings, folder: Path) -> None:
    """Everything but pictures, plans, graphs and the model, in one archive; the page and the weights beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    out = settings.out
    small = [*out.glob("*.json"), *out.glob("*.log"), *out.glob("*.md"), *(out / "plans").glob("*.json")]
    small += [*(out / "graphs").glob("*.json"), out / "truth.npz"]
    small += [out / "model" / name for name in ("training.json", "quality.md", "loss.svg")]
    with tarfile.open(folder / "results.tar.xz", "w:xz") as archive:
        for path in small:
            if path.is_file():
                archive.add(path, path.relative_to(out))
    beside = [out / "section.md", out / "report.html", out / "model" / "loss.svg", out / "plans" / "timing-cache"]
    for path in [*beside, *sorted((out / "weights").glob("network.*"))]:
        if path.is_file():
            shutil.copy(path, folder)
    for path in sorted(folder.iterdir()):
        print(f"packed   {path.name:<20} {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
