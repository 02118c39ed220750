"""What an Engine has to do, whatever it is made of: run on doubles by tests/runtime, on a GPU by tests/gpu."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.network import LARGEST, expected, pictures

from face3d_trt.errors import EngineError, InputError, MissingError
from face3d_trt.runtime.engine import RING

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("coeffs", "vertex")


def check(result: dict[str, np.ndarray], images: np.ndarray, names: tuple[str, ...] = NAMES) -> None:
    """Every row of every output."""
    assert tuple(result) == names
    wanted = expected(images)
    for name in names:
        assert type(result[name]) is np.ndarray
        assert result[name].shape == wanted[name].shape
        assert result[name].dtype == np.float32
        np.testing.assert_allclose(result[name], wanted[name], rtol=0, atol=2e-5)


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 16, 17, 31, 32, 33, 50, 100, 200])
def test_every_batch_gives_its_rows(parts, batch):
    images = pictures(batch)
    check(parts.open()(images), images)


@pytest.mark.parametrize("graphs", [True, False])
def test_sizes_in_any_order_give_their_rows(parts, graphs):
    engine = parts.open(graphs=graphs)
    order = random.Random(1)
    for turn in range(150):
        images = pictures(order.choice([1, 2, 3, 4, 5, 9, 16, 20, 32, 40]), turn)
        check(engine(images), images)


def test_picture_sizes_in_any_order_give_their_rows(parts):
    engine = parts.open()
    order = random.Random(2)
    for turn in range(80):
        height, width = order.choice([(64, 64), (96, 64), (72, 88)])
        images = pictures(order.choice([1, 2, 20]), turn, height, width)
        check(engine(images), images)


def test_graphs_stay_right_among_plain_runs_of_other_sizes(parts):
    engine = parts.open()
    engine.warm_up((1, 2, 3))
    for turn in range(40):
        for batch in (1, 20, 2, 7, 3, 33):
            images = pictures(batch, turn)
            check(engine(images), images)


def test_warming_up_captures_a_graph_for_each_slot_and_small_size(parts):
    engine = parts.open(contexts=2)
    engine.warm_up((1, 2, 20))
    for lane in engine._lanes:
        for slot in lane.slots:
            graphs = {place.bucket.input.shape[0] for place in slot._places.values() if place.graph is not None}
            assert graphs == {1, 2}


def test_buffers_that_grow_leave_no_graph_behind(parts):
    engine = parts.open()
    for batch, (height, width) in [(1, (64, 64)), (16, (64, 64)), (4, (96, 96)), (16, (96, 96)), (1, (64, 64))]:
        for turn in range(6):
            images = pictures(batch, turn, height, width)
            check(engine(images), images)


@pytest.mark.parametrize("contexts", [1, 2])
def test_threads_with_changing_batches_get_their_own_rows(parts, contexts):
    engine = parts.open(contexts=contexts)

    def work(number: int) -> None:
        order = random.Random(number)
        for turn in range(25):
            images = pictures(order.choice([1, 2, 3, 5, 17, 32, 40, 70]), number * 1000 + turn)
            if order.random() < 0.5:
                check(engine(images), images)
            else:
                check(engine.submit(images).result(timeout=60), images)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


def test_threads_with_pieces_do_not_wait_for_each_other_for_ever(parts):
    engine = parts.open()
    images = pictures(5 * LARGEST + 3)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: engine(images), range(16)):
            check(result, images)


def test_map_keeps_the_order(parts):
    engine = parts.open()
    batches = [pictures(1 + turn * 7 % 45, turn) for turn in range(40)]
    for images, result in zip(batches, engine.map(batches), strict=True):
        check(result, images)


def test_map_pulls_no_more_than_there_is_room_for(parts):
    engine = parts.open()
    pulled = 0

    def source():
        nonlocal pulled
        for turn in range(50):
            pulled += 1
            yield pictures(20, turn)

    for read, _ in enumerate(engine.map(source()), 1):
        assert pulled <= read + RING
        if read == 10:
            break


def test_submitted_results_are_arrays_of_their_own(parts):
    engine = parts.open()
    batches = [pictures(20, turn) for turn in range(12)]
    futures = [engine.submit(images) for images in batches]
    for images, future in zip(batches, futures, strict=True):
        check(future.result(timeout=60), images)


def test_images_may_be_overwritten_once_submit_returns(parts):
    engine = parts.open()
    images = np.empty((20, 3, 64, 64), np.float32)
    sent, futures = [], []
    for turn in range(10):
        images[:] = pictures(20, turn)
        sent.append(images.copy())
        futures.append(engine.submit(images))
    for each, future in zip(sent, futures, strict=True):
        check(future.result(timeout=60), each)


@pytest.mark.parametrize("batch", [1, 20, 70])
def test_pinned_arrays_are_read_where_they_lie(parts, batch):
    engine = parts.open()
    arrays = [engine.pinned(batch) for _ in range(RING)]
    for turn in range(0, 12, RING):
        for index, array in enumerate(arrays):
            array[:] = pictures(batch, turn + index)
        futures = [engine.submit(array) for array in arrays]
        for array, future in zip(arrays, futures, strict=True):
            check(future.result(timeout=60), array)


def test_a_part_of_a_pinned_array_is_its_own_batch(parts):
    engine = parts.open()
    array = engine.pinned(40)
    array[:] = pictures(40)
    check(engine(array[3:25]), array[3:25])
    check(engine(array[::2]), array[::2])


def test_images_with_any_strides_are_taken(parts):
    engine = parts.open()
    for batch in (2, 20):
        images = np.ascontiguousarray(pictures(2 * batch).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)[::2]
        assert not images.flags.c_contiguous
        check(engine(images), images)


@pytest.mark.parametrize("batch", [1, 2, 20, 70])
def test_only_asked_outputs_come_and_in_the_order_asked_for(parts, batch):
    engine = parts.open()
    for turn in range(6):
        images = pictures(batch, turn)
        check(engine(images, outputs=["vertex"]), images, ("vertex",))
        check(engine(images, outputs=["vertex", "coeffs"]), images, ("vertex", "coeffs"))
        check(engine.submit(images, outputs=["coeffs"]).result(timeout=60), images, ("coeffs",))


@pytest.mark.parametrize("batch", [1, 20, 70])
def test_results_are_written_into_out(parts, batch):
    engine = parts.open()
    rows = np.zeros((batch + 4, 257), np.float32)
    images = pictures(batch)
    result = engine(images, out={"coeffs": rows[2:-2]})
    check(result, images)
    assert np.shares_memory(result["coeffs"], rows)
    assert not rows[:2].any()
    assert not rows[-2:].any()
    future = engine.submit(images, outputs=["coeffs"], out={"coeffs": rows[:batch]})
    assert np.shares_memory(future.result(timeout=60)["coeffs"], rows)


@pytest.mark.parametrize("batch", [1, 3, 20, 70])
def test_results_stay_on_the_gpu(parts, batch):
    engine = parts.open()
    for turn in range(8):
        images = pictures(batch, turn)
        results = engine(images, to="device")
        check({name: array.host() for name, array in results.items()}, images)


@pytest.mark.parametrize("batch", [2, 20, 70])
def test_calls_that_leave_results_on_the_gpu_do_not_disturb_each_other(parts, batch):
    engine = parts.open()
    results = [engine(pictures(batch, turn), to="device") for turn in range(12)]
    for turn, each in enumerate(results):
        check({name: array.host() for name, array in each.items()}, pictures(batch, turn))


@pytest.mark.parametrize("batch", [1, 3, 20, 70])
@pytest.mark.parametrize("interface", ["dlpack", "cuda_array_interface"])
def test_arrays_on_the_gpu_are_read_where_they_lie(parts, batch, interface):
    """The results of one call, as pictures of the next one, in both protocols."""
    engine = parts.open()
    for turn in range(4):
        images = pictures(batch, turn)
        with parts.on_gpu(engine, images, interface) as there:
            check(engine(there), images)
            results = engine(there, to="device")
            check({name: array.host() for name, array in results.items()}, images)
            check(engine.submit(there).result(timeout=60), images)


@pytest.mark.parametrize("batch", [3, 70])
def test_rows_on_the_gpu_that_are_not_aligned_are_taken_all_the_same(parts, batch):
    """Pictures of 51,480 bytes and results of 1,028, where TensorRT wants multiples of 256; and those in pieces."""
    engine = parts.open()
    images = pictures(batch + 1, 0, 65, 66)
    with parts.on_gpu(engine, images, "dlpack", skip=1) as there:
        check(engine(there), images[1:])
        results = engine(there, to="device")
        check({name: array.host() for name, array in results.items()}, images[1:])


def test_results_go_into_arrays_on_the_gpu(parts):
    engine = parts.open()
    for batch in (2, 20, 70):
        images = pictures(batch)
        target = engine(np.zeros_like(images), outputs=["coeffs"], to="device")["coeffs"]
        results = engine(images, to="device", out={"coeffs": target})
        assert results["coeffs"] is target
        check({name: array.host() for name, array in results.items()}, images)


def test_wrong_out_on_the_gpu_is_named(parts):
    engine = parts.open()
    target = engine(pictures(2), to="device")["coeffs"]
    with pytest.raises(InputError, match=r"float32 of shape \(2, 257\)"):
        engine(pictures(3), to="device", out={"coeffs": target})
    with pytest.raises(InputError, match="does not lie on a GPU"):
        engine(pictures(3), to="device", out={"coeffs": np.empty((3, 257), np.float32)})
    with pytest.raises(InputError, match="not a numpy array"):
        engine(pictures(2), out={"coeffs": target})


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((2, 3, 64, 64)), "float64"),
        (np.zeros((2, 3, 64, 64), np.uint8), "uint8"),
        (np.zeros((3, 64, 64), np.float32), r"engine\(images\[None\]\)"),
        (np.zeros((2, 64, 64, 3), np.float32), "channels last"),
        (np.zeros((0, 3, 64, 64), np.float32), "empty"),
        (np.zeros((2, 3, 100, 64), np.float32), "100"),
        (np.full((2, 3, 64, 64), 255, np.float32), "255"),
        (np.full((2, 3, 64, 64), np.nan, np.float32), "NaN"),
        ([[1.0]], "list"),
    ],
)
def test_what_it_does_not_take_is_named(parts, images, words):
    engine = parts.open()
    for run in (engine, engine.submit):
        with pytest.raises(InputError, match=words):
            run(images)
    check(engine(pictures(2)), pictures(2))


def test_unknown_options_are_named(parts):
    engine = parts.open()
    with pytest.raises(InputError, match="texture"):
        engine(pictures(1), outputs=["texture"])
    for outputs in (5, [["coeffs"]]):
        with pytest.raises(InputError, match="no names"):
            engine(pictures(1), outputs=outputs)
    with pytest.raises(InputError, match="to='gpu'"):
        engine(pictures(1), to="gpu")
    with pytest.raises(InputError, match="stream"):
        engine(pictures(1), to="device", stream="default")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda engine: engine.pinned("4"), "batch='4'"),
        (lambda engine: engine.pinned(0), "batch=0"),
        (lambda engine: engine.pinned(2.0), "batch=2.0"),
        (lambda engine: engine.pinned(10**9), "batch=1000000000"),
        (lambda engine: engine.warm_up("12"), "batch='12'"),
        (lambda engine: engine.warm_up((1, None)), "batch=None"),
        (lambda engine: engine.warm_up(True), "batch=True"),
        (lambda engine: engine.map([], ahead="3"), "ahead='3'"),
        (lambda engine: engine.map([], ahead=0), "ahead=0"),
        (lambda engine: engine.map(5), "batches is int"),
    ],
)
def test_numbers_that_are_none_are_named(parts, call, words):
    with pytest.raises(InputError, match=words) as caught:
        call(parts.open())
    assert caught.value.allowed


def test_one_size_is_warmed_up_like_some(parts):
    engine = parts.open()
    engine.warm_up(2)
    engine.warm_up(np.int64(3))
    check(engine(pictures(2)), pictures(2))


def test_a_billion_rows_that_are_one_are_refused_at_once(parts):
    engine = parts.open()
    begun = time.perf_counter()
    for run in (engine, engine.submit):
        with pytest.raises(InputError, match="1,000,000,000 pictures") as caught:
            run(np.broadcast_to(np.float32(0.5), (10**9, 3, 64, 64)))
        assert "array_split" in caught.value.run
    assert time.perf_counter() - begun < 5


def test_close_can_be_called_twice_and_closed_engines_say_so(parts):
    engine = parts.open()
    engine(pictures(1))
    engine.close()
    engine.close()
    assert engine.closed
    for call in (engine, engine.submit, lambda _: engine.pinned(1), lambda _: engine.warm_up()):
        with pytest.raises(EngineError, match="closed"):
            call(pictures(1))


def test_close_waits_for_what_is_in_flight(parts):
    engine = parts.open()
    batches = [pictures(20, turn) for turn in range(RING)]
    futures = [engine.submit(images) for images in batches]
    engine.close()
    for images, future in zip(batches, futures, strict=True):
        check(future.result(timeout=0), images)


def test_threads_that_wait_for_room_hear_of_the_close(parts):
    engine = parts.open()
    outcomes: list[object] = []

    def work(number: int) -> None:
        try:
            while True:
                check(engine(pictures(20, number)), pictures(20, number))
        except EngineError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    engine.close()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == 8
    assert all("closed" in str(error) for error in outcomes)


def test_callbacks_of_futures_may_use_the_engine(parts):
    engine = parts.open()
    done = threading.Event()
    results = []

    def again(_: object) -> None:
        results.append(engine(pictures(20, 7)))
        results.append(engine.submit(pictures(20, 8)))
        done.set()

    futures = [engine.submit(pictures(20, turn)) for turn in range(RING)]
    futures[0].add_done_callback(again)
    assert done.wait(30)
    check(results[0], pictures(20, 7))
    check(results[1].result(timeout=30), pictures(20, 8))


def test_a_callback_may_close_the_engine(parts):
    engine = parts.open()
    closed = threading.Event()
    futures = [engine.submit(pictures(20, turn)) for turn in range(RING)]
    futures[0].add_done_callback(lambda _: (engine.close(), closed.set()))
    assert closed.wait(30)
    for turn, future in enumerate(futures):
        check(future.result(timeout=30), pictures(20, turn))


def test_results_on_the_gpu_outlive_the_engine(parts):
    engine = parts.open()
    images = pictures(5)
    results = engine(images, to="device")
    array = engine.pinned(2)
    array[:] = 0.25
    engine.close()
    check({name: each.host() for name, each in results.items()}, images)
    assert (array == 0.25).all()


def test_memory_limit_makes_pieces_smaller(parts):
    row = 3 * 96 * 96 * 4 + 257 * 4 + 20 * 3 * 4
    roomy = parts.open()
    fixed = roomy._plan.scratch_bytes() + len(parts.plan)
    engine = parts.open(memory_limit=fixed + 2 * 5 * row)
    images = pictures(23, 0, 96, 96)
    check(engine(images), images)
    assert len(roomy._spec.check(images).pieces) == 1
    assert [piece.rows for piece in engine._spec.check(images).pieces] == [5, 5, 5, 5, 3]
    assert engine.depth == 2
    with pytest.raises(MissingError, match="memory_limit") as caught:
        parts.open(memory_limit=fixed + row)
    assert "bytes or more" in str(caught.value)


def test_memory_of_the_gpu_does_not_grow(parts):
    engine = parts.open()
    sizes = (1, 2, 3, 16, 20, 32, 70)

    def round_of_calls() -> None:
        for turn in range(3):
            for batch in sizes:
                engine(pictures(batch, turn))
                engine(pictures(batch, turn), to="device")

    engine.warm_up(sizes)
    round_of_calls()
    before = parts.used_memory(engine)
    for _ in range(4):
        round_of_calls()
    assert parts.used_memory(engine) - before < 8 << 20


def test_opening_and_closing_leaves_nothing(parts):
    def once() -> None:
        engine = parts.open()
        engine(pictures(20))
        engine.submit(pictures(2)).result(timeout=60)
        engine.close()
        parts.engines.clear()

    gpu = parts.device()  # holds the context, whose memory would come and go
    for _ in range(3):
        once()
    with gpu.current():
        before, threads = gpu.memory()[0], threading.active_count()
    for _ in range(20):
        once()
    with gpu.current():
        assert before - gpu.memory()[0] < 8 << 20
    assert threading.active_count() <= threads
    gpu.close()


def test_two_engines_work_side_by_side(parts):
    first, second = parts.open(), parts.open()
    for turn in range(10):
        futures = [engine.submit(pictures(20, turn)) for engine in (first, second)]
        for future in futures:
            check(future.result(timeout=60), pictures(20, turn))
    first.close()
    check(second(pictures(3)), pictures(3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_to_open_its_own(parts):
    """In a process of its own, as forking one with threads is what nobody should do."""
    program = (
        "import os, sys\n"
        f"sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]\n"
        "from tests.runtime.engine_parts import Parts\n"
        "from tests.runtime.network import pictures\n"
        "from face3d_trt.errors import EngineError\n"
        f"engine = Parts({parts.real}, {parts.file!r}).open()\n"
        "engine(pictures(2))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        engine(pictures(2))\n"
        "    except EngineError as error:\n"
        "        told = 'fork' in str(error)\n"
        "    engine.close()\n"
        "    del engine\n"
        "    sys.exit(0 if told else 1)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "engine(pictures(2))\n"
        "print('child', os.waitstatus_to_exitcode(status))\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "child 0\n")


IN_A_THREAD = """
import threading, time
def work():
    try:
        while True:
            engine(pictures(20))
    except EngineError:
        pass
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
ENDINGS = {
    "never closed": ("", 0),
    "in flight": ("futures = [engine.submit(pictures(20)) for _ in range(3)]", 0),
    "results held": ("held = engine(pictures(2), to='device'), engine.pinned(2)", 0),
    "a thread in a call": (IN_A_THREAD, 0),
    "an exception": ("engine(pictures(2)[0])", 1),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_quietly(parts, ending):
    code, status = ENDINGS[ending]
    program = (
        "import sys\n"
        f"sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]\n"
        "from tests.runtime.engine_parts import Parts\n"
        "from tests.runtime.network import pictures\n"
        "from face3d_trt.errors import EngineError, InputError\n"
        f"engine = Parts({parts.real}, {parts.file!r}).open()\n"
        "engine.submit(pictures(2)).result()\n" + code
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == status, result.stderr
    if status:
        assert result.stderr.startswith("Traceback")
        assert "engine(images[None])" in result.stderr.splitlines()[-1]
    else:
        assert result.stderr == ""
