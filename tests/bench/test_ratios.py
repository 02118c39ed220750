"""Ratios, knee and claims against arithmetic done here."""

from __future__ import annotations

import pytest
from tests.bench.runs import row, rows_of, skipped

from face3d_trt.bench.claims import CLAIMS, answers
from face3d_trt.bench.knee import knee, within
from face3d_trt.bench.page.words import parse_milliseconds, parse_share, shown_command, significant
from face3d_trt.bench.ratios import best_torch, float32_torch, int8_pairs, speed_up
from face3d_trt.bench.records import Device, Memory
from face3d_trt.errors import UsageError


def test_the_rival_is_the_fastest_pytorch_of_the_batch_and_mode() -> None:
    rows = [
        row("torch-fp32", 8, 10.0),
        row("torch-half", 8, 4.0),
        row("torch-compile", 8, 2.0),
        row("torch-compile", 16, 1.0),
        row("torch-compile", 8, 0.5, mode="host"),
        row("trt-int8", 8, 0.4),
        skipped("torch-graph", 8, "out of memory"),
    ]
    rival = best_torch(rows, "engine", 8, "float32")
    assert rival is not None
    assert rival.row is rows[2]
    assert speed_up(rows[5], rival.row) == pytest.approx(2.0 / 0.4)
    base = float32_torch(rows, "engine", 8, "float32")
    assert base is not None
    assert speed_up(rows[5], base.row) == pytest.approx(25.0)
    assert best_torch(rows, "engine", 32, "float32") is None


def test_the_same_input_is_preferred_and_another_is_told() -> None:
    rows = [row("torch-half", 8, 4.0), row("torch-fp32", 8, 9.0, input="uint8")]
    alike, other = best_torch(rows, "engine", 8, "uint8"), best_torch(rows[:1], "engine", 8, "uint8")
    assert alike is not None
    assert other is not None
    assert (alike.row, alike.same_input) == (rows[1], True)
    assert (other.row, other.same_input) == (rows[0], False)


def test_rows_of_other_batches_are_never_compared() -> None:
    with pytest.raises(ValueError, match="one batch"):
        speed_up(row("trt-int8", 8), row("torch-fp32", 16))


def test_int8_stands_beside_fp16_of_its_own_family() -> None:
    rows = [row("trt-fp16", 8, 2.0), row("trt-int8", 8, 1.0), row("ort-fp16", 8, 9.0), row("torch-half", 8, 0.1)]
    (pair,) = int8_pairs(rows)
    assert (pair.family, pair.batch, pair.times) == ("trt", 8, 2.0)
    (pair,) = int8_pairs([row("ort-fp32", 8, 9.0), row("ort-int8", 8, 3.0)])  # as on a CPU
    assert (pair.base.arithmetic, pair.times) == ("fp32", 3.0)


def test_the_knee_of_a_curve_that_saturates() -> None:
    """r(n) = R n / (n + h): 95 % of R is reached at n = 19 h; with h = 1 and batches to 256, at 32 of the doublings."""
    rates = {batch: 1000.0 * batch / (batch + 1) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
    wanted = 0.95 * rates[256]
    assert rates[16] < wanted < rates[32]
    assert knee(rates) == 32
    assert knee({1: 10.0}) == 1
    assert knee({}) is None
    assert knee({1: 10.0, 2: 20.0, 4: 19.5, 8: 15.0}) == 2  # a curve that falls again


def test_the_batch_for_a_limit_is_the_knee_of_what_keeps_it() -> None:
    rows = [row("trt-int8", batch, 0.1 * batch) for batch in (1, 2, 4, 8)]  # one rate at all batches, p99 1.5 times p50
    assert within(rows, 10.0) == 1
    rows = [row("trt-int8", batch, 1 + 0.1 * batch) for batch in (1, 2, 4, 8)]
    assert within(rows, 1.5 * 1.4) == 4
    assert within(rows, 1.5 * 1.05) is None


def test_claims_are_the_articles_ratios() -> None:
    ratios = [round(claim.ratio, 2) for claim in CLAIMS]
    assert ratios == [1.61, 1.82, 3.75, 1.81, 1.77, 1.76, 1.89]


def test_ours_is_looked_up_or_said_not_to_be_measured() -> None:
    rows = [
        row("torch-fp32", 1, 4.0, memory=Memory(process=800, context=500)),
        row("trt-fp16", 1, 0.5, memory=Memory(process=600, context=500)),
        row("torch-fp32", 1, 4.4, mode="host", device=Device(utilization=0.3)),
        row("trt-fp16", 1, 0.55, mode="host", device=Device(utilization=0.6)),
    ]
    found = list(answers(rows))
    by_claim = {claim.text: [each for each in found if each.claim is claim] for claim in CLAIMS}
    assert [each.ratio for each in by_claim["AMP against FP32, time"]] == [None]
    speed = by_claim["TensorRT FP16 against PyTorch FP32, time"]
    assert [(each.batch, each.mode, each.ratio) for each in speed] == [
        (1, "engine", 8.0),
        (1, "host", pytest.approx(8.0)),
    ]
    (memory,) = by_claim["TensorRT FP16 against FP32, memory, batch 1"]
    assert (memory.ratio, memory.context) == (pytest.approx(800 / 600), (500, 500))
    assert [each.batch for each in by_claim["TensorRT FP16 against FP32, memory, batch 2"]] == [None]
    (busy,) = by_claim["GPU utilization of a pipeline, PyTorch to TensorRT"]
    assert busy.ratio == pytest.approx(2.0)


def test_claims_without_a_batch_take_the_smallest_and_the_largest() -> None:
    found = answers(rows_of(["torch-fp32", "torch-amp"], (1, 8, 64)))
    assert [each.batch for each in found if each.claim.text == "AMP against FP32, memory"] == [1, 64]


@pytest.mark.parametrize(("text", "ms"), [("5ms", 5.0), ("5", 5.0), ("500us", 0.5), (" 0.02 s", 20.0)])
def test_times_are_read(text: str, ms: float) -> None:
    assert parse_milliseconds(text) == pytest.approx(ms)


@pytest.mark.parametrize("text", ["", "ms", "-1ms", "0ms", "5 minutes"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_milliseconds(text)


def test_shares_figures_and_commands_as_text() -> None:
    assert parse_share("5%") == parse_share("5") == 0.05
    with pytest.raises(UsageError):
        parse_share("five")
    assert [significant(value) for value in (0.3, 6.256, 12.34, 71946.4)] == ["0.300", "6.26", "12.3", "71,946"]
    # no folder of the machine that ran it
    assert shown_command("face3d-trt bench --json /tmp/some/run.json --plan engines/a.plan") == (
        "face3d-trt bench --json run.json --plan engines/a.plan"
    )
