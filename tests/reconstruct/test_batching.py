"""Which crops run together, and when."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from tests.reconstruct import small_memory
from tests.reconstruct.conftest import run
from tests.tiny import write_tiny

from face3d_trt.errors import EngineError, MissingError, StoppedError
from face3d_trt.reconstruct import fleet
from face3d_trt.reconstruct.batching import Batcher
from face3d_trt.reconstruct.engines import is_short_of_memory

SMALL, LARGE = (224, 224), (256, 192)


def test_a_full_batch_leaves_at_once_and_a_rest_when_its_first_crop_has_waited():
    batcher = Batcher(4, deadline_s=1.0)
    batcher.add(0, 0, 3, SMALL, now=10.0)
    assert batcher.take(10.9) is None
    batcher.add(1, 0, 3, SMALL, now=10.5)
    full = batcher.take(10.5)
    assert full.parts == ((0, 0, 3), (1, 0, 1))
    assert (full.rows, full.shape, len(batcher)) == (4, SMALL, 2)
    assert batcher.due() == 11.5
    assert batcher.take(11.4) is None
    assert batcher.take(11.5).parts == ((1, 1, 3),)
    assert batcher.due() is None


def test_crops_of_different_sizes_do_not_meet():
    batcher = Batcher(4, deadline_s=1.0)
    for index, shape in zip(range(6), (SMALL, LARGE) * 3, strict=True):
        batcher.add(index, 0, 1, shape, now=float(index))
    assert batcher.take(0.0) is None  # six crops, three of each size
    batches = [batcher.take(5.0, flush=True) for _ in range(2)]
    assert [(each.shape, [bay for bay, _, _ in each.parts]) for each in batches] == [
        (SMALL, [0, 2, 4]),
        (LARGE, [1, 3, 5]),
    ]


def test_every_crop_leaves_once_in_order_whatever_the_sizes():
    rng, batcher, numbers = np.random.default_rng(0), Batcher(7), count()
    wanted, found = [], []
    for bay in range(50):
        rows = int(rng.integers(1, 20))
        batcher.add(bay, 0, rows, SMALL, now=float(next(numbers)))
        wanted += [(bay, row) for row in range(rows)]
        while batch := batcher.take(0.0, flush=bool(rng.integers(2))):
            assert batch.rows <= 7
            found += [(bay, row) for bay, start, stop in batch.parts for row in range(start, stop)]
    while batch := batcher.take(0.0, flush=True):
        found += [(bay, row) for bay, start, stop in batch.parts for row in range(start, stop)]
    assert found == wanted


def test_out_of_memory_halves_the_batch_and_every_crop_is_done(monkeypatch, crops, tmp_path):
    plan = write_tiny(tmp_path / "tiny.onnx", layout="uint8")
    np.save(tmp_path / "crops.npy", np.concatenate([crops] * 5))
    alone = run(tmp_path / "alone", plan, tmp_path / "crops.npy", detector="aligned", workers=1)
    monkeypatch.setattr(fleet, "serve", small_memory.serve)
    found = run(tmp_path / "out", plan, tmp_path / "crops.npy", detector="aligned", workers=1, batch=32)
    assert found.summary.status.batch == 4  # 32, 16, 8, which do not fit into 5
    assert any("memory is too short" in note for note in found.summary.status.notes)
    assert found.tree() == alone.tree()
    assert found.summary.counts == {"done": 40}


def test_what_an_engine_says_when_memory_is_short_is_known():
    short = MissingError("GPU 0 (NVIDIA H200) has too little memory: cuMemAlloc failed: out of memory")
    wrapped = EngineError("ONNX Runtime failed at a batch of 32")
    wrapped.__cause__ = RuntimeError("Failed to allocate memory for requested buffer of size 77070336")
    assert is_short_of_memory(short)
    assert is_short_of_memory(wrapped)
    assert is_short_of_memory(MemoryError())
    assert not is_short_of_memory(EngineError("CUDA failed on GPU 0: an illegal memory access was encountered"))
    assert not is_short_of_memory(StoppedError("a full disk"))


@pytest.mark.parametrize("rows", [1, 6])
def test_a_batch_is_not_larger_than_asked_for(rows):
    batcher = Batcher(rows)
    batcher.add(0, 0, 13, SMALL, now=0.0)
    sizes = []
    while batch := batcher.take(0.0, flush=True):
        sizes.append(batch.rows)
    assert sizes == [rows] * (13 // rows) + ([13 % rows] if 13 % rows else [])
