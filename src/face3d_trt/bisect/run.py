"""`face3d-trt bisect`: from two graphs to a ranking and a list of nodes to keep."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import face3d_trt
from face3d_trt.bisect.alone import Found, channel_order, measure_nodes
from face3d_trt.bisect.pair import Pair, run, up_to_coefficients
from face3d_trt.bisect.search import fewest
from face3d_trt.bisect.state import VERSION, State, Verdict, kept_state
from face3d_trt.errors import UsageError
from face3d_trt.files import fingerprint
from face3d_trt.graph.keep import keep_higher, lowered
from face3d_trt.graph.macs import multiply_adds
from face3d_trt.names import COEFFS, INPUT
from face3d_trt.parity.limits import limit_key
from face3d_trt.parity.metrics import scale
from face3d_trt.records import BisectRecord, KeepEntry, Sensitivity
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from onnx import ModelProto

    from face3d_trt.parity.judging import Judge
    from face3d_trt.records import KeptNode, Precision

MEASURED = 12  # pictures on which nodes are measured; their activations are held at once
_MANY = 4  # nodes whose range does not fit
_EXACT = 0.01  # error of the float32 graph, of the variation between pictures, above which it is not the model


@dataclass(frozen=True, eq=False)
class Graphs:
    """What is bisected.

    Attributes:
        onnx: Where the float32 graph lies.
        exact: It.
        onnx_sha256: Of its file.
        typed_path: Where the typed graph lies.
        typed: It.
        typed_sha256: Of its file.
        precision: That it was made in.
        method: How it was calibrated; None: not at all, or nobody knows.
        kept: Nodes that it keeps higher by an earlier list: a new list has to name them too.
    """

    onnx: Path
    exact: ModelProto
    onnx_sha256: str
    typed_path: Path
    typed: ModelProto
    typed_sha256: str
    precision: Precision
    method: str | None = None
    kept: tuple[KeptNode, ...] = ()


def bisect(
    graphs: Graphs, judge: Judge, state_file: Path | None = None, most: int | None = None, report: Reporter = SILENT
) -> BisectRecord:
    """Rank the lowered nodes by what they cost, name the damaged ones, and find the fewest to keep higher.

    Args:
        graphs: A typed graph and the float32 graph that it was made from.
        judge: The gate, and the pictures.
        state_file: Keeps what was found when this is interrupted; None: nothing is kept.
        most: The most nodes in a list that counts as passed; None: any number.
        report: Hears stages and progress.

    Raises:
        GraphError: The graphs do not belong together, or cannot be run.
        UsageError: Nothing in the typed graph is lowered.
    """
    begun = time.monotonic()
    exact, typed = up_to_coefficients(graphs.exact), up_to_coefficients(graphs.typed)
    pair = Pair(exact, typed)
    names = list(lowered(typed, exact, graphs.precision)) if graphs.precision != "fp32" else []
    if not names:
        raise UsageError(
            f"{graphs.typed_path} computes in float32: there is nothing to rank",
            allowed="an fp16 or int8 graph whose types decide; for fp16 and TensorRT 8.6, that of another TensorRT",
            run="face3d-trt build --fp16 --typed-only --for 10 -o ranked.plan",
        )
    truth = judge.truths.at(*judge.side)
    pictures = judge.truths.feed(truth.crops[:MEASURED])[INPUT]
    notes = _about_the_float32_graph(exact, pictures, truth.outputs[COEFFS][:MEASURED])
    with kept_state(state_file, _key(graphs, judge), report) as state:
        report.stage(
            f"bisect     {graphs.typed_path}: {len(names)} nodes in {graphs.precision}, {len(pictures)} pictures"
        )
        order = channel_order(pair, pictures, run(exact, {INPUT: pictures}, exact=True)[0])
        found = measure_nodes(pair, names, pictures, graphs.precision, order, state, report, graphs.method)
        ranking = _ranking(names, found, exact, judge, graphs.precision)
        keep, before, after = _search(graphs, ranking, found, order, judge, state, report)
    passed = after.passed and (most is None or len(keep) + len(graphs.kept) <= most)
    return BisectRecord(
        precision=graphs.precision,
        onnx=str(graphs.onnx),
        onnx_sha256=graphs.onnx_sha256,
        typed=str(graphs.typed_path),
        typed_sha256=graphs.typed_sha256,
        pictures=judge.truths.names,
        origin=judge.origin,
        reference=judge.source,
        channels=order,
        passed_before=before.passed,
        passed=passed,
        worst_before=before.text,
        worst=after.text,
        keep=(
            *(KeepEntry(node=each.node, reason=each.reason) for each in graphs.kept),
            *(_entry(each, found[each.node]) for each in ranking if each.node in keep),
        ),
        kept_before=tuple(each.node for each in graphs.kept),
        ranking=tuple(ranking),
        notes=(*notes, *_remarks(ranking, order, before, after, judge), *_of_ranges(found)),
        seconds=round(time.monotonic() - begun, 1),
        version=face3d_trt.__version__,
    )


def _key(graphs: Graphs, judge: Judge) -> str:
    return fingerprint(
        VERSION,
        graphs.onnx_sha256,
        graphs.typed_sha256,
        graphs.precision,
        graphs.method,
        judge.fingerprint,
        judge.source,
        judge.limits.model_dump_json(),
        judge.margin,
    )


def _ranking(
    names: list[str], found: Mapping[str, Found], exact: ModelProto, judge: Judge, precision: Precision
) -> list[Sensitivity]:
    """Damaged nodes first, then those with a range that does not fit, then by loss."""
    costs = multiply_adds(exact)
    total = max(1, sum(costs.values()))
    limits = judge.limits.of(precision)
    listed = []
    for name in [*names, *(name for name, each in found.items() if each.damage and name not in names)]:
        each = found[name]
        losses = {
            group: error / limits.of("relative", limit_key(COEFFS, group)) for group, error in each.errors.items()
        }
        group = max(losses, key=lambda key: losses[key]) if losses else ""
        listed.append(
            Sensitivity(
                node=name,
                precision=precision,
                loss=losses[group] if losses else None,
                group=group,
                errors=each.errors,
                share=costs.get(name, 0) / total,
                own_error=each.own_error,
                damage=each.damage or each.misfit,
            )
        )

    def place(each: Sensitivity) -> tuple[int, float]:
        worth = 0 if found[each.node].damage else 1 if each.damage else 2
        return worth, -(float("inf") if each.loss is None else each.loss)

    return sorted(listed, key=place)


def _search(
    graphs: Graphs,
    ranking: list[Sensitivity],
    found: Mapping[str, Found],
    order: str,
    judge: Judge,
    state: State,
    report: Reporter,
) -> tuple[tuple[str, ...], Verdict, Verdict]:
    """The nodes to keep, and the verdicts without and with them."""
    tried = 0

    def verdict(names: tuple[str, ...]) -> Verdict:
        kept = frozenset(names)
        return state.verdict(
            names,
            lambda: judge.graph(keep_higher(graphs.typed, graphs.exact, kept), graphs.typed_path, brief=bool(kept)),
        )

    def holds(names: tuple[str, ...]) -> bool:
        nonlocal tried
        tried += 1
        report.progress("trying lists of nodes to keep", tried, tried + 1)
        return verdict(names).passed

    before = verdict(())
    broken = any(each.damage for each in found.values()) or order != "RGB"
    if before.passed or broken:  # a damaged graph is made again, not mended by precision
        return (), before, before
    nodes = [each.node for each in ranking]
    keep = fewest(nodes, {each.node: each.share for each in ranking}, holds)
    if keep is None:
        return (), before, before
    return keep, before, verdict(keep)


def _entry(each: Sensitivity, found: Found) -> KeepEntry:
    said = "not finite" if each.loss is None else f"alone it uses {each.loss:.0%} of the limit of {each.group}"
    reason = f"{said}, and does {each.share:.2%} of the multiply-adds"
    if found.misfit:
        reason += f"; {found.misfit}"
    return KeepEntry(node=each.node, loss=each.loss, share=each.share, reason=reason)


def _about_the_float32_graph(exact: ModelProto, pictures: object, right: object) -> tuple[str, ...]:
    """A note where the float32 graph is not the model, since all nodes are held against it."""
    import numpy as np

    given = run(exact, {INPUT: np.asarray(pictures)}, exact=True)[0]
    expected = np.asarray(right)
    error = np.sqrt(np.square(given - expected, dtype=np.float64).sum(axis=1).mean()) / scale(expected).value
    if error <= _EXACT:
        return ()
    note = (
        f"the float32 graph itself differs from PyTorch by {error:.1%} of the variation between pictures; nodes are "
        "held against that graph, so look there first: face3d-trt export"
    )
    return (note,)


def _of_ranges(found: Mapping[str, Found]) -> tuple[str, ...]:
    """A note where so many ranges do not fit that no single one can be what is wrong."""
    count = sum(each.misfit is not None for each in found.values())
    if count < _MANY:
        return ()
    note = (
        f"the ranges of {count} nodes do not fit these pictures: that is the calibration rather than damage to a node: "
        "on other pictures, or by `max` or `entropy` with one picture unlike all others; --calib-method output leaves "
        "such a picture out"
    )
    return (note,)


def _remarks(ranking: list[Sensitivity], order: str, before: Verdict, after: Verdict, judge: Judge) -> tuple[str, ...]:
    notes = []
    if not judge.gated:
        notes.append("the model has seeded weights, whose int8 figures mean nothing: they are shown and not gated")
    if order != "RGB":
        notes.append(
            f"no single node explains the error: given pictures in {order} order the typed graph is right, so it reads "
            f"its channels as {order}; the ranking is for such pictures"
        )
    damaged = [each.node for each in ranking if each.damage]
    if damaged and not after.passed:
        notes.append(f"{damaged[0]} is damaged: make the typed graph again, by face3d-trt build")
    elif not before.passed and not after.passed and order == "RGB":
        notes.append("the gate does not hold with every one of these nodes kept higher: no list helps")
    return tuple(notes)
