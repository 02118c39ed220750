"""Engine on doubles of CUDA and TensorRT; tests/gpu/test_engine.py runs the same on a GPU."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np
import pytest
from tests.runtime.engine_cases import *  # noqa: F403
from tests.runtime.engine_cases import check
from tests.runtime.engine_parts import Parts
from tests.runtime.fakes import FakeDevice, FakeGraphs, FakePlan
from tests.runtime.network import LARGEST, expected, pictures

from face3d_trt.errors import EngineError, MissingError
from face3d_trt.runtime import engine as engine_module
from face3d_trt.runtime import flights, lane, shelf, slots
from face3d_trt.runtime.copying import LARGE, copy
from face3d_trt.runtime.engine import RING
from face3d_trt.runtime.flights import Batch


@pytest.fixture
def parts() -> Iterator[Parts]:
    made = Parts(real=False)
    yield made
    made.close()


def test_refused_captures_leave_plain_runs(parts):
    gpu = parts.device()
    engine = parts.open(gpu=gpu, maker=FakeGraphs(gpu, refuse=True))
    for turn in range(20):
        check(engine(pictures(2, turn)), pictures(2, turn))


def test_a_plan_whose_profiles_cannot_be_shared_runs_without_graphs(parts):
    gpu = parts.device()
    plan, maker = FakePlan(gpu, sharing=False), FakeGraphs(gpu)
    engine = parts.open(gpu=gpu, plan=plan, maker=maker)
    for turn in range(20):
        for batch in (1, 2, 20):
            check(engine(pictures(batch, turn)), pictures(batch, turn))
    assert maker.captured == 0
    assert plan.made == 2


def test_two_contexts_on_a_plan_that_cannot_share_say_what_to_build(parts):
    gpu = parts.device()
    with pytest.raises(EngineError, match="contexts=2") as caught:
        parts.open(gpu=gpu, plan=FakePlan(gpu, sharing=False), contexts=2)
    assert "face3d-trt build" in str(caught.value)
    assert gpu.released


def test_graphs_are_replayed_and_all_destroyed(parts):
    gpu = parts.device()
    maker = FakeGraphs(gpu)
    engine = parts.open(gpu=gpu, maker=maker)
    for turn in range(30):
        engine(pictures(2, turn))
    assert (maker.captured, maker.launched) == (1, 27)
    engine(pictures(16, 0, 96, 96))  # the buffers move
    assert maker.alive == 0
    engine.warm_up((1, 2))
    assert maker.alive > 0
    engine.close()
    assert maker.alive == 0


def test_shapes_without_end_keep_contexts_and_graphs_bounded(parts, monkeypatch):
    monkeypatch.setattr(shelf, "STALE", 30)
    monkeypatch.setattr(lane, "_SHAPES", 40)
    monkeypatch.setattr(slots, "_VIEWS", 20)
    gpu = parts.device()
    plan, maker = FakePlan(gpu), FakeGraphs(gpu)
    engine = parts.open(gpu=gpu, plan=plan, maker=maker)
    order = random.Random(5)
    for turn in range(500):
        height = 64 + (turn // 80) * 4 + order.randrange(4)
        images = pictures(order.choice([1, 2, 3]), turn, height, 64)
        check(engine(images), images)
        assert len(plan.contexts) <= shelf.BUCKETS + 2
        assert maker.alive <= 3 * shelf.BUCKETS
        assert len(engine._lanes[0]._buckets) <= 40 + shelf.BUCKETS
    assert maker.captured > shelf.BUCKETS


def test_an_error_of_the_gpu_breaks_the_engine_and_says_so(parts):
    gpu = parts.device()
    engine = parts.open(gpu=gpu, plan=FakePlan(gpu, break_after=5))
    for turn in range(5):
        check(engine.submit(pictures(20, turn)).result(timeout=60), pictures(20, turn))
    future = engine.submit(pictures(20))
    with pytest.raises(EngineError, match="illegal memory access"):
        future.result(timeout=60)
    with pytest.raises(EngineError, match="failed before"):
        engine(pictures(1))
    assert gpu.depth == 0
    engine.close()
    assert engine.closed


def test_room_that_is_missing_on_the_gpu_is_an_error_of_that_call_alone(parts):
    gpu = FakeDevice(total=2 << 20)
    engine = parts.open(gpu=gpu)
    for _ in range(5):
        with pytest.raises(MissingError, match="too little memory"):
            engine(pictures(32, 0, 96, 96))
        with pytest.raises(MissingError, match="too little memory"):
            engine.submit(pictures(32, 0, 96, 96)).result(timeout=30)
        check(engine(pictures(2)), pictures(2))


def test_a_future_is_done_when_all_pieces_are_and_tells_the_first_error():
    future: Future[dict[str, np.ndarray]] = Future()
    batch = Batch((), (), None, {}, (), future=future, left=5)
    heard = []
    future.add_done_callback(lambda _: (heard.append(batch.left), batch.lock.acquire(timeout=5)))
    batch.landed()
    batch.landed(EngineError("the first"))
    batch.landed(EngineError("the second"))
    assert not future.done()
    batch.landed(EngineError("of two that were never launched"), 2)
    assert heard == [0]
    with pytest.raises(EngineError, match="the first"):
        future.result(timeout=0)


def test_a_failing_piece_leaves_out_to_the_others_until_they_have_landed(parts, monkeypatch):
    """The first of three pieces fails at once; the others are held back, and write what the caller gave."""
    engine = parts.open()
    gate = threading.Event()
    real = flights.land

    def land(slot, place, batch, piece, *, sleeping=False):
        if piece.start == 0:
            raise EngineError("the first piece")
        assert gate.wait(30)
        real(slot, place, batch, piece, sleeping=sleeping)

    images = pictures(2 * LARGEST + 3)
    out = {"coeffs": np.zeros((len(images), 257), np.float32)}
    with monkeypatch.context() as patch:
        patch.setattr(flights, "land", land)
        future = engine.submit(images, out=out)
        with pytest.raises(TimeoutError):
            future.exception(timeout=0.3)
        gate.set()
        assert "the first piece" in str(future.exception(timeout=30))
    assert abs(out["coeffs"][LARGEST:] - expected(images)["coeffs"][LARGEST:]).max() < 2e-5


def test_a_thread_that_does_not_start_loses_no_room(parts, monkeypatch):
    engine = parts.open()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(2 * RING):
            with pytest.raises(EngineError, match="no thread"):
                engine.submit(pictures(2))
    for turn in range(2 * RING):
        check(engine.submit(pictures(2, turn)).result(timeout=30), pictures(2, turn))


def test_closing_in_a_callback_fetches_what_others_submit_meanwhile(parts, monkeypatch):
    """A submit that has its slot when the callback closes the engine, and hands its flight over after that."""
    engine = parts.open()
    closing, launched = threading.Event(), threading.Event()
    real = engine_module.launch

    def launch(slot, batch, piece, *, sleeping=False):
        if threading.current_thread().name == "late":
            launched.set()
            assert closing.wait(30)
            time.sleep(0.2)  # in close() by now
        return real(slot, batch, piece, sleeping=sleeping)

    monkeypatch.setattr(engine_module, "launch", launch)
    results = []
    late = threading.Thread(target=lambda: results.append(engine.submit(pictures(20, 1))), name="late", daemon=True)
    late.start()
    assert launched.wait(30)
    done = threading.Event()
    engine.submit(pictures(20)).add_done_callback(lambda _: (closing.set(), engine.close(), done.set()))
    assert done.wait(30)
    late.join(30)
    check(results[0].result(timeout=30), pictures(20, 1))


def test_callbacks_may_warm_up_beside_another_thread(parts):
    engine = parts.open()
    outcomes: list[object] = []

    def warm(_: object = None) -> None:
        engine.warm_up((1, 20))
        outcomes.append(True)

    for turn in range(10):
        futures = [engine.submit(pictures(20, turn)) for _ in range(RING)]
        for future in futures:
            future.add_done_callback(warm)
        beside = threading.Thread(target=warm, daemon=True)
        beside.start()
        beside.join(30)
        assert not beside.is_alive()
        for future in futures:
            check(future.result(timeout=30), pictures(20, turn))
    deadline = time.monotonic() + 30
    while len(outcomes) < 10 * (RING + 1) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(outcomes) == 10 * (RING + 1)


def test_map_that_is_left_early_waits_for_what_reads_pinned_arrays(parts):
    gpu = FakeDevice(delay=0.05)
    engine = parts.open(gpu=gpu)
    futures = []
    real = engine.submit
    engine.submit = lambda *args, **options: futures.append(real(*args, **options)) or futures[-1]
    results = engine.map(engine.pinned(20) * 0 + 0.5 for _ in range(20))
    next(results)
    results.close()
    assert len(futures) >= RING
    assert all(future.done() for future in futures)


def test_an_error_that_is_kept_keeps_no_room(parts):
    """Its traceback holds the local variables of everything that it passed."""
    gpu = FakeDevice(total=2 << 20)
    engine = parts.open(gpu=gpu)
    kept = []
    for _ in range(2 * RING):
        for run in (engine, lambda images: engine.submit(images).result(timeout=30)):
            for rows in (32, 70):
                with pytest.raises(MissingError) as caught:
                    run(pictures(rows, 0, 96, 96))
                kept.append(caught.value)
    check(engine(pictures(2)), pictures(2))


def test_nothing_stays_current_in_a_thread(parts):
    gpu = parts.device()
    engine = parts.open(gpu=gpu)
    depths = []

    def work() -> None:
        for images in (pictures(1), pictures(70), pictures(1)[0]):
            try:
                engine(images)
            except Exception:
                depths.append(gpu.depth)
            depths.append(gpu.depth)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert depths == [0] * 4
    assert gpu.depth == 0


def test_everything_is_freed_and_the_context_given_back(parts):
    gpu = parts.device()
    plan = FakePlan(gpu)
    engine = parts.open(gpu=gpu, plan=plan, contexts=2)
    engine.warm_up((1, 20))
    held = engine(pictures(3), to="device")["coeffs"]
    futures = [engine.submit(pictures(20)) for _ in range(5)]
    engine.close()
    assert all(future.done() for future in futures)
    assert plan.closed
    assert gpu.pinned_bytes == 0
    assert not gpu.released
    del held
    assert gpu.released
    assert not gpu.memory_blocks.blocks


def test_an_engine_that_nobody_holds_closes_itself(parts):
    gpu = parts.device()
    engine = parts.open(gpu=gpu)
    engine.submit(pictures(20)).result(timeout=60)
    parts.engines.clear()
    del engine
    assert gpu.released


def test_warming_up_while_closing_ends(parts):
    engine = parts.open()
    outcomes = []

    def warm() -> None:
        try:
            while True:
                engine.warm_up((1, 20))
        except EngineError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=warm) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    engine.close()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == 3


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33])
def test_large_copies_are_whole(rows):
    source = np.random.default_rng(rows).integers(0, 256, (rows, LARGE // rows + 11), np.uint8)
    target = np.zeros_like(source)
    copy(target, source)
    assert (target == source).all()
    every_second = np.zeros((rows, source.shape[1] // 2), np.uint8)
    copy(every_second, source[:, : every_second.shape[1] * 2 : 2])
    assert (every_second == source[:, : every_second.shape[1] * 2 : 2]).all()


def test_errors_of_a_shared_copy_arrive():
    with pytest.raises(ValueError, match="broadcast"):
        copy(np.zeros((8, LARGE), np.uint8), np.zeros((8, LARGE - 1), np.uint8))
