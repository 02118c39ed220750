"""Show on a GPU machine what docs/gpu-proof.md says, and write its tables.

    python tools/gpu_proof.py --out build/gpu-proof
    python tools/gpu_proof.py --out DIR --engine-python 'python3.10' --torch-python 'python3.12' --steps build,soak

Each step is a process of its own, in the interpreter with TensorRT or in the one with torch (the same one, unless told
otherwise), and leaves DIR/<step>.json. What is there already is not measured again, so it may be called until all is
done.
Exit code 1: a step failed, or a claim is missed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from proof.being import be_step, use_this_checkout
from proof.children import be_child
from proof.report import put_into, report
from proof.results import Settings, read
from proof.runner import Launcher, run_steps
from proof.steps import STEPS, Side, choose

ROOT = Path(__file__).resolve().parents[1]


def main(words: Sequence[str] | None = None) -> int:
    """Run steps and write the report; or be one step, or a child of one."""
    use_this_checkout()
    chosen = _parser().parse_args(words)
    if chosen.child:
        be_child(*chosen.child)
        return 0
    out = chosen.out.resolve()
    graphs = (chosen.graphs or out / "graphs").resolve()
    settings = Settings(out, graphs, chosen.largest, chosen.scale, chosen.device)
    out.mkdir(parents=True, exist_ok=True)
    if chosen.run_step:
        return be_step(*choose([chosen.run_step]), settings)
    return _run(chosen, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu-proof", help="results, plans, logs, report.md"
    )
    parser.add_argument(
        "--engine-python", default=shlex.quote(sys.executable), help="the Python with TensorRT and pycuda"
    )
    parser.add_argument("--torch-python", default=shlex.quote(sys.executable), help="the Python with torch")
    parser.add_argument("--graphs", type=Path, help="typed graphs that are there already; default OUT/graphs")
    parser.add_argument("--steps", default="", help="names or their beginnings, comma-separated; default all")
    parser.add_argument("--budget", type=float, help="seconds; a step that would not fit is left for a later call")
    parser.add_argument("--largest", type=int, default=256, help="largest batch of the throughput profile")
    parser.add_argument("--scale", type=float, default=1.0, help="share of calls and cycles; below 1 is a rehearsal")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU")
    parser.add_argument("--doc", type=Path, help="document that the tables are put into")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the report")
    parser.add_argument("--run-step", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser


def _run(chosen: argparse.Namespace, settings: Settings) -> int:
    try:
        steps = choose([word for word in chosen.steps.split(",") if word])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.list:
        for step in steps:
            print(f"{step.name:<20} {step.side:<7} about {step.expected_s:.0f} s")
        return 0
    outcomes = []
    if not chosen.report:
        interpreters: dict[Side, str] = {"engine": chosen.engine_python, "torch": chosen.torch_python}
        launch = Launcher(Path(__file__).resolve(), settings, interpreters)
        outcomes = run_steps(steps, settings, launch, budget_s=chosen.budget)
    missed = _write_report(settings, shown_command(chosen), chosen.doc)
    return 1 if missed or any(outcome.bad for outcome in outcomes) else 0


def shown_command(chosen: argparse.Namespace) -> str:
    """The command line as the report shows it: no folder of this machine stands in it."""
    words = ["python", "tools/gpu_proof.py", "--out", "DIR"]
    for action in _parser()._actions:
        value = getattr(chosen, action.dest, None)
        if action.dest in ("out", "help") or action.help == argparse.SUPPRESS or value == action.default:
            continue
        words.append(action.option_strings[0])
        if action.dest == "graphs":
            words.append("DIR/graphs")
        elif action.dest.endswith("_python"):
            words.append(shlex.join(Path(word).name if "/" in word else word for word in shlex.split(value)))
        elif isinstance(value, Path):
            inside = value.resolve().is_relative_to(ROOT)
            words.append(str(value.resolve().relative_to(ROOT)) if inside else value.name)
        elif value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join(words)


def _write_report(settings: Settings, command: str, document: Path | None) -> bool:
    """Whether a claim is missed."""
    found = {step.name: result for step in STEPS if (result := read(step.name, settings.out)) is not None}
    text, claims = report(found, command)
    path = settings.out / "report.md"
    path.write_text(text, encoding="utf-8")
    if document is not None:
        put_into(document, text)
    for claim in claims:
        print(f"{claim.verdict:<8} {claim.number} {claim.text}: {claim.found or '-'} (wanted {claim.wanted})")
    print(f"report: {document or path}")
    return any(claim.verdict == "MISS" for claim in claims)


if __name__ == "__main__":
    sys.exit(main())
