"""The figures of tools/full_size.py as the section of docs/accuracy.md; a rehearsal's figures are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .commands import shown
from .report import marks_of
from .tables import table

if TYPE_CHECKING:
    from .results import Result

Results = Mapping[str, "Result"]
Row = Mapping[str, Any]

MARKS = marks_of("full_size.py")
ENOUGH_S = 300.0  # the least training that the section may speak of; the rest of ten minutes brings little
NEEDED = ("machine_engine", "train", "own", "typed_int8", "build_fp16", "build_int8", "compare")
PRECISIONS = ("fp16", "int8")
OWN = ("own error", "second photo", "other photo")
# What is said in a sentence: small is good there, and a share means something.
SAID = {"shape_mean": "shape", "landmark_mean": "the landmarks", "rotation": "rotation", "translation": "distance"}
FAILURES = 4  # of a plan, that are told


def rehearsal(results: Results) -> list[str]:
    """Why these figures are not those of the full size on a GPU; nothing where they are."""
    reasons = [f"the step {name} has no result" for name in NEEDED if name not in results]
    if (taught := results.get("train")) is not None:
        reasons += [] if "--size full" in taught.figures["command"] else ["the stand-in is not of the full size"]
        reasons += [] if taught.figures["on_gpu"] else ["it was not taught on a GPU"]
        seconds = taught.figures["seconds_taught"]
        reasons += [] if seconds >= ENOUGH_S else [f"it was taught for {seconds:g} s, not {ENOUGH_S:g}"]
    if (compared := results.get("compare")) is not None:
        plans = compared.figures["plans"]
        reasons += [f"the {name} engine was not run" for name in PRECISIONS if not plans[name]["engine_ran"]]
        reasons += [] if compared.gpu else ["compare saw no GPU"]
    return reasons


def section(results: Results, command: str) -> str:
    """Markdown; of a rehearsal too, which it then says.

    Args:
        results: By step, those of NEEDED at least.
        command: That ran them.

    Raises:
        KeyError: A step has no result.
    """
    found = {name: results[name] for name in NEEDED}
    reasons = rehearsal(results)
    parts = [f"**A rehearsal: {'; '.join(reasons)}.**"] if reasons else []
    parts += [_head(found), f"    {command}", _training(found["train"]), _explained(found), _figures(found)]
    parts += [_verdict(name, found["compare"].figures["plans"][name]) for name in PRECISIONS]
    parts += [_read_across(found), _engines(found)]
    return "\n\n".join(parts) + "\n"


def _head(results: Results) -> str:
    own, machine = results["own"].figures, results["machine_engine"].figures
    gpu = results["compare"].gpu
    where = f"{gpu['name']}, driver {gpu['driver']}" if gpu else "no GPU"
    width, height, depth = own["head_mm"]
    pytorch = results["train"].versions.get("torch", "unknown")
    return (
        f"{own['pictures']} renders of random faces that training has not seen, mean face {width:.0f} x {height:.0f} x "
        f"{depth:.0f} mm. {results['compare'].when[:10]}, {where}; engines: {machine['flavour']} {machine['version']}; "
        f"training: PyTorch {pytorch}."
    )


def _training(result: Result) -> str:
    taught = result.figures
    quality = taught["quality"]
    rows = [(name, f"{value:.3f}") for name, value in quality["explained"].items()]
    memory = f", {taught['gpu_bytes'] / 1e9:.0f} GB of GPU memory" if taught["gpu_bytes"] else ""
    text = (
        f"**The network** was taught by `{taught['command']}`: {taught['seconds_taught']:g} s, "
        f"{taught['pictures']:,} renders, each seen once ({taught['seconds_in_all']:.0f} s with compiling and writing"
        f"{memory}). On {quality['pictures']:,} other unseen renders it is off by {quality['vertex_mm']:.2f} mm posed "
        f"and {quality['shape_mm']:.2f} mm in shape, where always answering the mean face is off by "
        f"{quality['mean_face_mm']:.2f} mm."
    )
    return text + "\n\n" + table(("", "share of variance explained"), rows)


def _explained(results: Results) -> str:
    batches = "; ".join(results["compare"].figures["plans"]["int8"]["batches"])
    engines = (
        "* fp16, int8: the engine against float32 PyTorch on the same pictures, each picture with its worst batch "
        f"({batches}); beside it what the gate allows."
    )
    return f"* own error, second photo, other photo: as above, the float32 network;\n{engines}"


def _figures(results: Results) -> str:
    from face3d_trt.parity.meaning import MEASURES

    own, plans = results["own"].figures["columns"], results["compare"].figures["plans"]
    head = ["median / 95 % / worst", *OWN]
    for name in PRECISIONS:
        head += [name, f"{name} may"]
    rows = []
    for name, measure in MEASURES.items():
        cells = [_cell(name, own[title].get(name)) for title in OWN]
        for precision in PRECISIONS:
            row = plans[precision]["meaning"].get(name)
            cells += [_cell(name, row and _values(row)), "" if row is None else _limits(row)]
        if any(cells):
            rows.append((measure.label, *cells))
    return table(head, rows)


def _values(row: Row) -> Sequence[float]:
    return [row["median"], row["p95"], row["worst"]]


def _cell(name: str, values: Iterable[float | None] | None) -> str:
    """With as many digits as the tables above have; `-` where a value was not finite."""
    from face3d_trt.parity.meaning import MEASURES

    measure = MEASURES[name]
    digits = 5 if not measure.unit else 3 if measure.better == "low" else 1
    return " / ".join("-" if value is None else f"{value:.{digits}f}" for value in values or ())


def _limits(row: Row) -> str:
    allowed = [row["allowed_median"], row["allowed_p95"], row["allowed_worst"]]
    return " / ".join("-" if value is None else f"{value:g}" for value in allowed)


def _verdict(name: str, plan: Row) -> str:
    failures = plan["failures"]
    if plan["passed"]:
        return f"**{name.upper()} passes the gate** on {plan['pictures']} pictures ({plan['candidate']})."
    told = "; ".join(failures[:FAILURES]) + (
        f"; and {len(failures) - FAILURES} more" if len(failures) > FAILURES else ""
    )
    return f"**{name.upper()} fails the gate** on {plan['pictures']} pictures ({plan['candidate']}): {told}."


def _read_across(results: Results) -> str:
    own, plans = results["own"].figures["columns"]["own error"], results["compare"].figures["plans"]
    sentences = []
    for precision in PRECISIONS:
        meaning = plans[precision]["meaning"]
        shares = [
            f"{_percent(meaning[name]['median'] / own[name][0])} in {title}"
            for name, title in SAID.items()
            if name in meaning and own[name][0] and meaning[name]["median"] is not None
        ]
        sentences.append(f"{precision.upper()}'s error is {', '.join(shares)}")
    return f"In the median, as a share of the network's own error: **{'; '.join(sentences)}.**"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _engines(results: Results) -> str:
    lines = []
    for name in PRECISIONS:
        built = results[f"build_{name}"].figures
        counts = ", ".join(f"{count} {kind}" for kind, count in built["backbone"].items())
        cached = ", with a timing cache" if built["cached"] else ""
        size = built["plan_bytes"] / 1e6
        lines.append(f"* {name}: {size:.1f} MB in {built['seconds']} s{cached}; the 53 backbone convolutions: {counts}")
    commands = [
        results["typed_int8"].figures["command"],
        *(results[f"build_{n}"].figures["command"] for n in PRECISIONS),
    ]
    commands.append(results["compare"].figures["command"])
    text = "\n".join(f"    {shown(line)}" for line in commands)
    return "The engines, and what made and judged them:\n\n" + "\n".join(lines) + "\n\n" + text
