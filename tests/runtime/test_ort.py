"""The twin on ONNX Runtime, held against ONNX Runtime itself and against what the interface promises."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import crops, run, write_tiny

from face3d_trt import FaceEngine, OrtEngine
from face3d_trt.errors import EngineError, GraphError, InputError, MissingError, PlanError
from face3d_trt.faces.tensor import to_input
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.runtime.onnxfile import is_typed

PICTURES = crops(11)


@pytest.fixture(scope="module")
def expected(float_plan: Path) -> np.ndarray:
    return run(float_plan.with_suffix(".onnx"), PICTURES)[0]


def floats(count: int = len(PICTURES)) -> np.ndarray:
    return to_input(PICTURES[:count], "float32")


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_it_is_an_engine_and_says_what_it_is(float_engine, float_plan):
    assert isinstance(float_engine, FaceEngine)
    assert "ONNX Runtime" in float_engine.backend
    assert "float.fp32.onnx" in float_engine.backend
    assert [(each.name, each.dtype, each.shape) for each in float_engine.inputs] == [
        ("input", "float32", (-1, 3, -1, -1))
    ]
    assert [(each.name, each.shape) for each in float_engine.outputs] == [("coeffs", (-1, 257))]
    assert float_engine.manifest == Manifest.read(manifest_path(float_plan))
    assert float_engine.model == float_engine.manifest.model
    assert len(float_engine.profiles) == 2


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 9, 11])
def test_every_row_of_any_batch_is_right(float_engine, expected, batch):
    found = float_engine(floats(batch))["coeffs"]
    assert found.shape == (batch, 257)
    assert found.dtype == np.float32
    assert close(found, expected[:batch])


def test_a_uint8_mesh_gives_all_its_outputs_or_those_asked_for(mesh_engine, mesh_plan):
    wanted = dict(zip(("coeffs", "vertex", "texture"), run(mesh_plan.with_suffix(".onnx"), PICTURES), strict=True))
    found = mesh_engine(PICTURES)
    assert list(found) == list(wanted)
    assert all(close(found[name], wanted[name]) for name in wanted)
    some = mesh_engine(PICTURES, outputs=["texture", "coeffs"])
    assert list(some) == ["texture", "coeffs"]
    assert close(some["texture"], wanted["texture"])


def test_results_are_written_where_the_caller_wants_them(float_engine, expected):
    rows = np.zeros((20, 257), np.float32)
    result = float_engine(floats(), out={"coeffs": rows[5:16]})
    assert result["coeffs"].base is rows or np.shares_memory(result["coeffs"], rows)
    assert close(rows[5:16], expected)
    assert not rows[:5].any()
    assert not rows[16:].any()
    other = np.zeros((11, 257), np.float32)
    assert float_engine.submit(floats(), out={"coeffs": other}).result()["coeffs"] is other
    assert close(other, expected)


def test_a_plans_limits_are_kept_although_onnx_runtime_has_none(mesh_engine, float_engine):
    with pytest.raises(InputError, match="height 225"):
        mesh_engine(np.zeros((1, 225, 224, 3), np.uint8))
    with pytest.raises(InputError, match="height 128"):
        float_engine(np.zeros((1, 3, 128, 224), np.float32))


def test_an_onnx_file_has_the_limits_of_the_export(float_plan, expected):
    with OrtEngine(float_plan.with_suffix(".onnx"), threads=1) as engine:
        assert engine.profiles == ()
        assert engine.manifest is None
        assert close(engine(floats())["coeffs"], expected)
        assert engine(np.zeros((1, 3, 64, 100), np.float32))["coeffs"].shape == (1, 257)
        with pytest.raises(InputError, match="height 63"):
            engine(np.zeros((1, 3, 63, 100), np.float32))


def test_nothing_but_good_arrays_runs(float_engine):
    for call in (float_engine, float_engine.submit):
        with pytest.raises(InputError, match="NaN"):
            call(np.full((1, 3, 224, 224), np.nan, np.float32))
        with pytest.raises(InputError, match="no output"):
            call(floats(1), outputs=["mesh"])
    with pytest.raises(InputError, match="look like 0"):
        next(float_engine.map([floats(1) * 255]))


def test_what_only_a_gpu_has_is_refused_with_where_it_is(float_engine):
    with pytest.raises(InputError, match=r"Engine, from a \.plan"):
        float_engine(floats(1), to="device")

    class OnGpu:
        def __init__(self) -> None:
            self.__cuda_array_interface__ = {"shape": (1, 3, 224, 224), "typestr": "<f4", "data": (4096, False)}

    with pytest.raises(InputError, match=r"Engine, from a \.plan"):
        float_engine(OnGpu())


def test_sixteen_threads_get_their_own_rows(float_engine, expected):
    def one(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(PICTURES), rng.integers(1, 7))
        images = to_input(PICTURES[rows], "float32")
        found = float_engine(images) if seed % 2 else float_engine.submit(images).result()
        return close(found["coeffs"], expected[rows])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(160)))


def test_the_array_may_be_changed_once_submit_has_returned(float_engine, expected):
    futures = []
    images = np.empty((1, 3, 224, 224), np.float32)
    for index in range(6):
        images[:] = floats()[index]
        futures.append(float_engine.submit(images))
        images[:] = 0
    assert all(close(future.result()["coeffs"][0], expected[index]) for index, future in enumerate(futures))


class Gate:
    """Holds a session's runs until it is opened."""

    def __init__(self, engine: OrtEngine) -> None:
        self._run = engine._session.run
        self.open = threading.Event()
        engine._session = self

    def run(self, *arguments: object) -> object:
        assert self.open.wait(30)
        return self._run(*arguments)


def test_submit_waits_for_room_and_results_hold_none(float_plan):
    with OrtEngine(float_plan, depth=2, threads=1) as engine:
        gate = Gate(engine)
        futures: list = []
        writer = threading.Thread(target=lambda: futures.extend(engine.submit(floats(1)) for _ in range(5)))
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        assert len(futures) == 2
        gate.open.set()
        writer.join(30)  # nobody has fetched a result
        assert not writer.is_alive()
        assert len(futures) == 5


def test_map_is_ordered_and_pulls_only_what_it_has_room_for(float_engine, expected):
    pulled = []

    def batches():
        for index in range(10):
            pulled.append(index)
            yield floats()[index : index + 1]

    stream = float_engine.map(batches(), ahead=3)
    assert pulled == []
    for index, result in enumerate(stream):
        assert close(result["coeffs"][0], expected[index])
        time.sleep(0.02)  # a slow reader
        assert len(pulled) <= index + 1 + 3
    assert index == 9


def test_map_gives_the_results_before_an_error_and_then_the_error(float_engine):
    def batches():
        yield floats(1)
        yield floats(2)
        raise OSError("the camera is gone")

    stream = float_engine.map(batches(), ahead=4)
    assert [len(next(stream)["coeffs"]), len(next(stream)["coeffs"])] == [1, 2]
    with pytest.raises(OSError, match="camera"):
        next(stream)
    with pytest.raises(InputError):
        float_engine.map([], ahead=0)


def test_a_reader_that_leaves_stops_the_stream(float_engine):
    pulled = []
    stream = float_engine.map((pulled.append(i) or floats(1) for i in range(1000)), ahead=2)
    next(stream)
    stream.close()
    assert len(pulled) <= 4
    assert float_engine(floats(1))["coeffs"].shape == (1, 257)


def test_asyncio_awaits_a_future(float_engine, expected):
    async def serve() -> list:
        room = asyncio.Semaphore(float_engine.depth)

        async def one(index: int) -> dict:
            async with room:
                return await asyncio.wrap_future(float_engine.submit(floats()[index : index + 1]))

        return await asyncio.gather(*(one(index) for index in range(11)))

    results = asyncio.run(serve())
    assert close(np.concatenate([each["coeffs"] for each in results]), expected)


def test_close_finishes_what_was_taken_and_may_be_repeated(float_plan):
    engine = OrtEngine(float_plan, depth=3, threads=1)
    futures = [engine.submit(floats(1)) for _ in range(3)]
    engine.close()
    engine.close()
    assert engine.closed
    assert all(future.result()["coeffs"].shape == (1, 257) for future in futures)
    calls = (
        lambda: engine(floats(1)),
        lambda: engine.submit(floats(1)),
        lambda: engine.map([]),
        lambda: engine.pinned(1),
        lambda: engine.warm_up(),
        lambda: engine.__enter__(),
    )
    for call in calls:
        with pytest.raises(EngineError, match="is closed"):
            call()


def test_two_threads_that_close_it_finish_what_was_taken(float_plan):
    """The second one comes while the first waits for the batches, and must not take the session from them."""
    engine = OrtEngine(float_plan, depth=3, threads=1)
    gate = Gate(engine)
    futures = [engine.submit(floats(1)) for _ in range(3)]
    first = threading.Thread(target=engine.close)
    first.start()
    while not engine.closed:
        time.sleep(0.001)
    engine.close()
    gate.open.set()
    first.join(30)
    assert all(future.result(timeout=30)["coeffs"].shape == (1, 257) for future in futures)


def test_whoever_waits_for_room_is_told_of_the_close(float_plan):
    engine = OrtEngine(float_plan, depth=1, threads=1)
    gate = Gate(engine)
    engine.submit(floats(1))
    errors: list = []

    def late() -> None:
        try:
            engine.submit(floats(1))
        except EngineError as error:
            errors.append(error)

    waiting, closing = threading.Thread(target=late), threading.Thread(target=engine.close)
    waiting.start()
    time.sleep(0.1)
    closing.start()
    time.sleep(0.1)
    gate.open.set()
    waiting.join(30)
    closing.join(30)
    assert len(errors) == 1
    assert "closed" in errors[0].problem


def test_a_callback_may_fill_the_engine(float_plan):
    """It runs in the thread that makes room."""
    with OrtEngine(float_plan, depth=1, threads=1) as engine:
        futures: list = []
        done = threading.Event()

        def again(_: object) -> None:
            futures.extend(engine.submit(floats(1)) for _ in range(4))
            done.set()

        engine.submit(floats(1)).add_done_callback(again)
        assert done.wait(30)
        assert all(future.result(30)["coeffs"].shape == (1, 257) for future in futures)


def test_a_cancelled_batch_is_not_run(float_plan):
    with OrtEngine(float_plan, depth=3, threads=1) as engine:
        gate = Gate(engine)
        futures = [engine.submit(floats(1)) for _ in range(3)]
        assert futures[2].cancel()
        gate.open.set()
        assert futures[1].result(30)["coeffs"].shape == (1, 257)


def test_what_fails_while_it_runs_comes_by_the_future(float_engine):
    class Broken:
        def run(self, *_: object) -> None:
            raise RuntimeError("out of memory")

    float_engine._session = Broken()
    future = float_engine.submit(floats(1))
    with pytest.raises(EngineError, match="out of memory"):
        future.result(30)


def test_an_engine_without_a_user_ends_its_thread(float_plan):
    before = threading.active_count()
    engine = OrtEngine(float_plan, threads=1)
    engine.submit(floats(1)).result()
    assert threading.active_count() == before + 1
    del engine
    gc.collect()
    assert threading.active_count() == before


def test_an_interpreter_with_an_open_engine_ends_silently(float_plan):
    program = f"""
import numpy as np
from face3d_trt import OrtEngine
engine = OrtEngine({str(float_plan)!r}, threads=1)
kept = [engine.submit(np.zeros((1, 3, 224, 224), np.float32)) for _ in range(3)]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_fork_is_told_to_open_its_own(float_plan):
    """In a process of its own: a fork of pytest's, with its threads, is nobody's friend."""
    program = f"""
import os, sys, warnings
import numpy as np
from face3d_trt import OrtEngine
from face3d_trt.errors import EngineError
warnings.simplefilter("ignore", DeprecationWarning)  # CPython's own, on forking with threads
engine = OrtEngine({str(float_plan)!r}, threads=1)
engine.submit(np.zeros((1, 3, 224, 224), np.float32)).result()
child = os.fork()
if child == 0:
    try:
        engine(np.zeros((1, 3, 224, 224), np.float32))
    except EngineError as error:
        assert str(os.getppid()) in error.problem and "spawn" in error.run
        engine.close()
        os._exit(7)  # as multiprocessing ends a child; ONNX Runtime's own exit handlers wait for the parent's threads
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
engine(np.zeros((1, 3, 224, 224), np.float32))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_pinned_arrays_fit_and_warm_up_runs(float_engine, mesh_engine):
    assert float_engine.pinned(3).shape == (3, 3, 224, 224)
    assert mesh_engine.pinned(2).shape == (2, 224, 224, 3)
    assert mesh_engine(mesh_engine.pinned(2))["vertex"].shape == (2, 20, 3)
    with pytest.raises(InputError):
        float_engine.pinned(0)
    float_engine.warm_up([1, 4, 9])


def test_a_typed_graph_is_known_by_its_bytes(tmp_path, engines):
    assert not is_typed(write_tiny(tmp_path / "plain.onnx").read_bytes())
    assert not is_typed((engines / "face3d_resnet50.onnx").read_bytes())
    for precision in ("fp16", "int8"):
        assert is_typed((engines / f"face3d_resnet50.{precision}.onnx").read_bytes())
    for junk in (b"", b"\x08", os.urandom(1000), (engines / "face3d_resnet50.onnx").read_bytes()[:5000]):
        with pytest.raises(ValueError, match=r"it (is|holds)"):
            is_typed(junk)


def test_the_int8_twin_computes_int8_and_not_noise(engines):
    """ONNX Runtime's optimizations make half of the variation of such a graph; the graph as written, a tenth."""
    from face3d_trt.faces.samples import sample_crops

    images = to_input(sample_crops(), "float32")
    with OrtEngine(engines / "face3d_resnet50.onnx") as exact, OrtEngine(engines / "face3d_resnet50.int8.plan") as int8:
        reference, found = exact(images)["coeffs"], int8(images)["coeffs"]
    spread = np.linalg.norm(reference - reference.mean(0))
    assert 0.001 < np.linalg.norm(found - reference) / spread < 0.15


@pytest.mark.parametrize("damage", ["missing", "noise", "cut", "foreign"])
def test_an_onnx_file_that_is_none_is_named(tmp_path, damage):
    import onnx

    path = write_tiny(tmp_path / "a.onnx")
    if damage == "missing":
        path.unlink()
    elif damage == "noise":
        path.write_bytes(os.urandom(3000))
    elif damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        model = onnx.load(path)
        del model.metadata_props[:]
        onnx.save(model, path)
    with pytest.raises(GraphError, match=r"a\.onnx") as caught:
        OrtEngine(path)
    assert "face3d-trt export" in caught.value.run


def test_a_plan_whose_typed_graph_is_gone_or_changed_is_refused(float_plan, tmp_path):
    for file in (float_plan, manifest_path(float_plan)):
        shutil.copy(file, tmp_path)
    plan = tmp_path / float_plan.name
    with pytest.raises(PlanError, match=r"float\.fp32\.onnx is missing"):
        OrtEngine(plan)
    write_tiny(tmp_path / "float.fp32.onnx", seed=3)
    with pytest.raises(PlanError, match="is not the graph that float"):
        OrtEngine(plan)


def test_a_gpu_is_refused_by_an_onnx_runtime_without_cuda(float_plan):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    for device in ("cuda", 0):
        with pytest.raises(MissingError, match="does not run on a GPU here") as caught:
            OrtEngine(float_plan, device)
        assert "onnxruntime-gpu" in str(caught.value)


@pytest.fixture(scope="session")
def cuda():
    """ONNX Runtime with CUDA, and what the plan beside it is made with."""
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no CUDA")


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_on_cuda_it_computes_the_same(float_plan, expected):
    with OrtEngine(float_plan, "cuda") as engine:
        assert np.allclose(engine(floats())["coeffs"], expected, rtol=1e-2, atol=1e-2)
