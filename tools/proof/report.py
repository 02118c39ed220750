"""All results as the tables of docs/gpu-proof.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from . import claims
from .tables import SECTIONS, table

if TYPE_CHECKING:
    from .claims import Claim, Results
    from .results import Result

Marks = tuple[str, str]


def marks_of(script: str) -> Marks:
    """The lines of a document between which a script writes."""
    return f"<!-- written by tools/{script}: begin -->", f"<!-- written by tools/{script}: end -->"


BEGIN, END = marks_of("gpu_proof.py")


def report(results: Mapping[str, Result], command: str) -> tuple[str, list[Claim]]:
    """The tables, and the claims that they begin with.

    Args:
        results: By step.
        command: That ran them.
    """
    figures: Results = {name: result.figures for name, result in results.items() if not result.skipped}
    skipped = {name: result.skipped for name, result in results.items() if result.skipped}
    judged = claims.judge(figures, skipped)
    parts = [_head(results, command), _claims(judged)]
    parts += [text for section in SECTIONS for text in [section(figures)] if text]
    return "\n\n".join(parts) + "\n", judged


def put_into(document: Path, text: str, marks: Marks = (BEGIN, END)) -> None:
    """Put a text between the two marks of a document; at its end where it has none yet."""
    begin, end = marks
    before = document.read_text(encoding="utf-8") if document.is_file() else "# What was proven on a GPU\n"
    block = f"{begin}\n\n{text}\n{end}"
    if begin in before and end in before:
        head, rest = before.split(begin, 1)
        whole = head + block + rest.split(end, 1)[1]
    else:
        whole = f"{before.rstrip()}\n\n{block}\n"
    document.write_text(whole, encoding="utf-8")


def _head(results: Mapping[str, Result], command: str) -> str:
    days = sorted({result.when[:10] for result in results.values() if result.when})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"
    lines = [f"```bash\n{command}\n```", f"Measured {when}."]
    if len({result.scale for result in results.values()} - {1.0}):
        lines.append("**A rehearsal: fewer calls and cycles than claimed (`--scale`).**")
    rows = [(name, value) for name, value in _machine(results)]
    return "\n\n".join([*lines, table(("machine", ""), rows)])


def _machine(results: Mapping[str, Result]) -> Iterable[tuple[str, str]]:
    engine = results.get("machine_engine")
    gpus = {
        f"{r.gpu['name']} ({r.gpu['compute_capability']}), driver {r.gpu['driver']}" for r in results.values() if r.gpu
    }
    yield "GPU", "; ".join(sorted(gpus)) or "none"
    if engine is not None:
        found = engine.figures
        yield "GPUs, cores", f"{len(found['gpus'])}, {found['cores']}; {found['system']}"
        yield "engines", f"{found['flavour']} {found['version']}; {_versions(engine)}"
    if (torch := results.get("machine_torch")) is not None:
        yield "PyTorch", f"{torch.figures['torch']}, CUDA {torch.figures['cuda']}; {_versions(torch)}"


def _versions(result: Result) -> str:
    return ", ".join(f"{name} {version}" for name, version in result.versions.items())


def _claims(judged: Iterable[Claim]) -> str:
    rows = [(claim.number, claim.text, claim.wanted, claim.found, claim.verdict) for claim in judged]
    return "### Claims\n\n" + table(("", "claim", "wanted", "found", ""), rows)
