"""What belongs together, and what several runs of one row become."""

from __future__ import annotations

import statistics

import pytest
from tests.bench.runs import CPU, ENGINE_SIDE, GPU, row, rows_of, run, skipped

from face3d_trt.bench.machines import same_machine
from face3d_trt.bench.merge import merge
from face3d_trt.bench.noise import noise_of
from face3d_trt.bench.page.content import noise_words
from face3d_trt.bench.page.series import named
from face3d_trt.bench.work import count_network
from face3d_trt.errors import UsageError

LATER = "2026-11-30T11:00:00Z"


def test_two_interpreters_of_one_machine_are_one_group() -> None:
    torch = run(rows_of(["torch-fp32"], (1, 8)), created=LATER)
    (group,) = merge([torch, run(rows_of(["trt-int8"], (1, 8)), ENGINE_SIDE)])
    assert {each.backend for each in group.rows} == {"torch-fp32", "trt"}
    assert group.machine.driver == "1.2.3"  # the engine's interpreter did not know it


@pytest.mark.parametrize(
    "other",
    [
        CPU,
        GPU.model_copy(update={"gpu": "Another GPU"}),
        GPU.model_copy(update={"driver": "2.0"}),
        GPU.model_copy(update={"gpu_memory_bytes": 1}),
    ],
)
def test_other_machines_are_other_groups(other) -> None:  # type: ignore[no-untyped-def]
    assert not same_machine(GPU, other)
    groups = merge([run([row("torch-fp32")]), run([row("torch-fp32")], other)])
    assert [len(group.rows) for group in groups] == [1, 1]


def test_other_models_sizes_and_outputs_are_other_groups() -> None:
    odd = [row("torch-fp32", height=448, width=448), row("torch-fp32", outputs="mesh")]
    groups = merge([run([row("torch-fp32"), *odd]), run([row("torch-fp32")], model_sha256="cd" * 32)])
    assert {(group.height, group.outputs, group.model_sha256) for group in groups} == {
        (224, "coeffs", "ab" * 32),
        (448, "coeffs", "ab" * 32),
        (224, "mesh", "ab" * 32),
        (224, "coeffs", "cd" * 32),
    }


def test_a_run_without_a_hash_joins_the_only_model_and_that_is_said() -> None:
    nameless = run([row("trt-int8")], ENGINE_SIDE, model="engines", model_sha256=None)
    (group,) = merge([run([row("torch-fp32")]), nameless])
    assert len(group.rows) == 2
    assert any("hash" in note for note in group.notes)
    two = merge([run([row("torch-fp32")]), run([row("torch-fp32")], model_sha256="cd" * 32), nameless])
    assert len(two) == 3  # of which it is, nobody knows


def test_other_weights_of_one_network_are_put_together_on_request_and_their_errors_are_not() -> None:
    former = run(
        [row("torch-half", 8, 10.0, error=0.5), row("torch-compile", 8, 5.0, error=0.6)], model_sha256="cd" * 32
    )
    newer = run([row("torch-half", 8, 12.0, error=0.1)], created=LATER)
    assert len(merge([newer, former])) == 2
    (group,) = merge([newer, former], any_weights=True)
    half, compiled = sorted(group.rows, key=lambda each: each.backend, reverse=True)
    assert half.rate is not None
    assert half.rate.ms == 11.0
    assert (half.error, compiled.error) == (0.1, None)
    assert group.model_sha256 == "ab" * 32
    assert any("several weights" in note for note in group.notes)


def test_other_networks_are_not_put_together() -> None:
    full, small = count_network(64), count_network(16)
    with pytest.raises(UsageError, match="different networks"):
        merge([run([row("torch-half")], work=full), run([row("torch-half")], work=small)], any_weights=True)


def test_modes_are_never_mixed() -> None:
    (group,) = merge([run([row("torch-fp32", 8, 10.0), row("torch-fp32", 8, 20.0, mode="host")])])
    assert {(each.mode, each.rate.ms) for each in group.rows if each.rate} == {("engine", 10.0), ("host", 20.0)}


def test_runs_of_one_row_become_their_median() -> None:
    times = (10.0, 11.0, 14.0)
    files = [run([row("torch-fp32", 8, ms)], created=f"2026-11-30T1{at}:00:00Z") for at, ms in enumerate(times)]
    (group,) = merge(files)
    (merged,) = group.rows
    assert merged.rate is not None
    assert merged.rate.ms == statistics.median(times)
    assert merged.rate.images_per_second == pytest.approx(8 / 11.0 * 1000)
    assert merged.latency is not None
    assert merged.latency.p99 == pytest.approx(1.5 * 11.0)
    assert merged.latency.max == 2 * 14.0
    assert merged.latency.calls == 300


def test_a_run_that_was_skipped_does_not_take_the_figures_of_another() -> None:
    (group,) = merge(
        [run([skipped("torch-fp32", 8, "out of memory")]), run([row("torch-fp32", 8, 7.0)], created=LATER)]
    )
    (merged,) = group.rows
    assert merged.skipped is None
    assert merged.rate is not None
    assert merged.rate.ms == 7.0


def test_versions_that_differ_are_said() -> None:
    newer = GPU.model_copy(update={"packages": {"torch": "2.13.0"}})
    (group,) = merge([run([row("torch-fp32")]), run([row("torch-fp32")], newer, created=LATER)])
    assert any("2.11.0, 2.13.0" in note for note in group.notes)


def test_a_machine_that_is_slower_as_a_whole_is_not_noisy() -> None:
    first = run([row("torch-fp32", 8, 10.0), row("torch-half", 8, 5.0)])
    second = run([row("torch-fp32", 8, 13.0), row("torch-half", 8, 6.5)], created=LATER)
    (group,) = merge([first, second])
    assert not noise_of(group).noisy
    assert max(doubt.spread for doubt in noise_of(group).doubts) == pytest.approx(0.0)


def test_a_ratio_that_moves_is_noise_and_is_named() -> None:
    first = run([row("torch-fp32", 8, 10.0), row("torch-half", 8, 5.0)])
    second = run([row("torch-fp32", 8, 10.0), row("torch-half", 8, 5.6)], created=LATER)
    (group,) = merge([first, second])
    found = noise_of(group)
    assert found.worst is not None
    assert found.worst.spread == pytest.approx(5.6 / 5.0 - 1)
    words, noisy = noise_words(group, named(group))
    assert noisy
    assert "noisy" in words
    assert "12 %" in words
    assert "batch 8" in words


def test_engines_run_twice_beside_pytorch_run_once_are_judged_by_their_own_times() -> None:
    files = [run([row("torch-fp32", 8, 10.0)])]
    files += [
        run([row("trt-int8", 8, ms)], ENGINE_SIDE, created=f"2026-11-30T1{at}:30:00Z")
        for at, ms in ((1, 1.0), (2, 1.03))
    ]
    (group,) = merge(files)
    (doubt,) = noise_of(group).doubts
    assert doubt.base is None
    assert doubt.spread == pytest.approx(0.03)


def test_one_run_says_that_noise_was_not_measured() -> None:
    (group,) = merge([run([row("torch-fp32")])])
    assert "not measured" in noise_words(group, named(group))[0]
