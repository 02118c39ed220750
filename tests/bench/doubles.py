"""A backend that does by batch size what real ones do on a bad day; made in the child's process."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import numpy as np

from face3d_trt.bench.backend import Case, Skip, Source
from face3d_trt.errors import MissingError

FINE, TOO_LARGE, CRASHES, HANGS, NOT_FINITE, SKIPS, WRONG = 1, 64, 3, 4, 5, 6, 2


def make(name: str, source: Source) -> Double:
    if name == "torch-half":
        raise MissingError("torch-half needs a package", run="pip install it")
    if name == "torch-graph":
        os.kill(os.getpid(), signal.SIGABRT)
    return Double(name, source)


class Double:
    label, arithmetic, plan = "a double", "fp16", None

    def __init__(self, name: str, source: Source) -> None:
        self.name, self._source = name, source

    def start(self) -> None:
        print("starting")

    def ready(self, case: Case) -> Answer:
        if case.batch >= TOO_LARGE:
            raise RuntimeError("CUDA error: out of memory")
        if case.batch == CRASHES:
            print("a driver's last words", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if case.batch == HANGS:
            assert self._source.folder is not None
            worker = subprocess.Popen(["sleep", "600"])
            (self._source.folder.parent / f"worker-{os.environ['DOUBLES_MARK']}").write_text(str(worker.pid))
            time.sleep(600)
        if case.batch == SKIPS:
            raise Skip("it does not like six")
        return Answer(case)

    def close(self) -> None:
        pass


class Answer:
    def __init__(self, case: Case) -> None:
        self._case = case

    def call(self) -> None:
        time.sleep(0.002)

    def finish(self) -> None:
        pass

    def window_ms(self, loops: int) -> float:
        return 2.0

    def allocator_peak(self) -> int | None:
        return 7

    def coeffs(self, images: np.ndarray) -> np.ndarray:
        assert images.shape == self._case.shape
        found = coeffs_of(images)
        if self._case.batch == NOT_FINITE:
            found[0, 0] = np.nan
        return found * (2 if self._case.batch == WRONG else 1)

    def close(self) -> None:
        pass


def coeffs_of(images: np.ndarray) -> np.ndarray:
    """(batch, 257): something of each picture."""
    means = images.reshape(len(images), -1)[:, :257].astype(np.float32)
    return means + np.arange(257, dtype=np.float32)
