"""Tables that compare with something else: the machine's ceilings, layers with their bounds, claims of articles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from face3d_trt.bench.claims import Answer, answers
from face3d_trt.bench.layer_bounds import LayerBound, by_place, by_stage, layer_bounds, shown_name, slowest_rest
from face3d_trt.bench.page.series import MODE_TITLES, Named
from face3d_trt.bench.page.table import Table
from face3d_trt.bench.page.words import NOTHING, gigabytes, percent, significant, times
from face3d_trt.bench.ratios import best_torch
from face3d_trt.bench.roofline import bound_of_row, share_of_bound

if TYPE_CHECKING:
    from face3d_trt.bench.merge import Group
    from face3d_trt.bench.records import Ceilings, LayerProfile, Row, Work

TOP = 10  # layers shown
_PLACES = 3  # named in a sentence
_CEILINGS = (
    ("fp32_flops", "FP32 matrix products", 1e12, "TFLOP/s"),
    ("tf32_flops", "TF32 matrix products", 1e12, "TFLOP/s"),
    ("fp16_flops", "FP16 matrix products", 1e12, "TFLOP/s"),
    ("int8_ops", "INT8 matrix products", 1e12, "TOP/s"),
    ("memory_bytes_per_s", "memory, read and write together", 1e9, "GB/s"),
    ("upload_bytes_per_s", "copies to the device, page-locked", 1e9, "GB/s"),
    ("download_bytes_per_s", "copies to the host, page-locked", 1e9, "GB/s"),
)


def ceilings_table(ceilings: Ceilings, work: Work | None) -> Table | None:
    """What the machine reaches at its best, and what a picture costs."""
    rows = [
        (title, f"{significant(value / unit)} {name}")
        for field, title, unit, name in _CEILINGS
        if (value := getattr(ceilings, field)) is not None
    ]
    if not rows:
        return None
    if work is not None:
        rows += [
            ("a picture: operations", f"{work.flops / 1e9:.2f} GFLOP"),
            ("a picture: activations read and written", f"{work.activation_elements / 1e6:.1f} million"),
            ("weights", f"{work.weight_elements / 1e6:.1f} million"),
        ]
    note = "By torch, on this machine. A multiply-add counts as two."
    return Table("Ceilings and work", note, ("", "measured, counted"), tuple(rows))


def roofline(group: Group, lines: Sequence[Named]) -> Table | None:
    """Each plan and the best PyTorch of each batch beside the least time that the ceilings allow."""
    work, rows = group.work, [row for each in lines for row in each.rows]
    if work is None:
        return None
    found = []
    for each in lines:
        for row in each.rows:
            rival = best_torch(rows, row.mode, row.batch, row.input)
            if row.backend.startswith("torch") and (rival is None or rival.row is not row):
                continue
            bound = bound_of_row(row, work, group.ceilings)
            share = share_of_bound(row, bound)
            if share is None or row.rate is None:
                continue
            parts = (bound.arithmetic, bound.memory, *((bound.copies,) if row.mode == "host" else ()))
            cells = [NOTHING if part is None else significant(part) for part in parts]
            found.append(
                (each.name, str(row.batch), significant(row.rate.ms), *cells, bound.limit or "", percent(share))
            )
    if not found:
        return None
    mode = lines[0].series.mode
    copies = ("copies need",) if mode == "host" else ()
    head = ("", "batch", "measured, ms", "arithmetic needs", "memory needs", *copies, "bound by", "reached")
    note = (
        "The least milliseconds at the measured ceilings, layer by layer with element-wise steps fused; reached: the "
        "largest of them over the measured time. Above 100 %: the caches held what was counted as memory's."
    )
    return Table(f"Distance to the ceilings, {MODE_TITLES[mode].lower()}", note, head, tuple(found))


def layer_tables(group: Group) -> Iterator[Table]:
    """For each profile of an engine: its time by stage and place, and the layers that hold the rest."""
    for profile in group.layers:
        if group.work is not None and group.work.nodes:
            yield from _layers(profile, layer_bounds(profile, group.work, group.ceilings))


def layers_words(group: Group) -> str:
    """For each plan at its largest batch: what the bounds explain, and which places in the blocks hold the rest."""
    if group.work is None or not group.work.nodes:
        return ""
    largest = {profile.plan: profile for profile in sorted(group.layers, key=lambda each: each.batch)}
    texts = []
    for profile in largest.values():
        layers = layer_bounds(profile, group.work, group.ceilings)
        whole, rest = sum(each.ms for each in layers), sum(each.rest_ms for each in layers)
        if not any(each.bound_ms for each in layers) or rest <= 0:
            continue
        most = slowest_rest(by_place(layers), _PLACES)
        named = ", ".join(f"{each.name} {significant(each.rest_ms)}" for each in most)
        texts.append(
            f"{profile.plan} at batch {profile.batch}: of {significant(whole)} ms by layers the ceilings explain "
            f"{significant(whole - rest)}; most of the rest is in {named} ms."
        )
    return " ".join(texts)


def claims_table(rows: Sequence[Row]) -> Table:
    """What articles claim, beside ours."""
    head = ("claim", "theirs", "ours", "where", "ratio, theirs", "ratio, ours")
    note = (
        "Ratios are compared: the articles' machines are not ours. Time is the p50 of single calls, memory that of the "
        "whole process. Utilization is that of calls back to back; the articles' pipeline does more than the network."
    )
    return Table("Claims of articles about this model", note, head, tuple(map(_claim, answers(rows))), 4)


def _layers(profile: LayerProfile, layers: Sequence[LayerBound]) -> Iterator[Table]:
    if not layers:
        return
    whole = sum(layer.ms for layer in layers)
    what = f"{profile.plan}, {profile.precision}, batch {profile.batch}"
    note = (
        f"By TensorRT's profiler, which runs layer by layer and without CUDA graphs: {significant(whole)} ms in all. "
        "Rest: what the bound does not explain."
    )
    head = ("", "layers", "ms", "of all", "bound, ms", "bound by", "rest, ms")
    yield Table(f"{what}: by stage", note, head, tuple(_layer(each, whole) for each in by_stage(layers)))
    yield Table(f"{what}: by place in the block", "", head, tuple(_layer(each, whole) for each in by_place(layers)))
    slowest = slowest_rest(layers, TOP)
    title = f"{what}: the {len(slowest)} layers that hold most of the rest"
    head = ("layer", "kind", *head[2:])
    yield Table(title, "", head, tuple(_layer(each, whole) for each in slowest), 2)


def _layer(layer: LayerBound, whole: float) -> tuple[str, ...]:
    bound = NOTHING if not layer.bound_ms else significant(layer.bound_ms)
    return (
        shown_name(layer.name),
        layer.kind,
        significant(layer.ms),
        percent(layer.ms / whole),
        bound,
        layer.limit or NOTHING,
        significant(layer.rest_ms) if layer.rest_ms >= 0 else f"-{significant(-layer.rest_ms)}",
    )


def _claim(answer: Answer) -> tuple[str, ...]:
    claim = answer.claim
    unit, show = {
        "time": ("ms", significant),
        "memory": ("GB", gigabytes),
        "utilization": ("", percent),
    }[claim.quantity]
    if claim.quantity == "utilization":
        theirs = f"{percent(claim.before)} to {percent(claim.after)}"
    else:
        theirs = f"{claim.before:g} to {claim.after:g} {unit}"
    if answer.batch is None or answer.mode is None or answer.ratio is None:
        return (claim.text, theirs, "not measured", NOTHING, times(claim.ratio), NOTHING)
    ours = f"{show(answer.before or 0)} to {show(answer.after or 0)} {unit}".rstrip()
    if answer.context is not None:
        bare = ((answer.before or 0) - answer.context[0], (answer.after or 0) - answer.context[1])
        ours += f"; without the CUDA context {gigabytes(bare[0])} to {gigabytes(bare[1])}"
    where = f"batch {answer.batch}, {MODE_TITLES[answer.mode].lower()}"
    return (claim.text, theirs, ours, where, times(claim.ratio), times(answer.ratio))
