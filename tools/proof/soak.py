"""Claim 5: many threads, many calls, changing batch sizes; every row right, no memory lost, a clean end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .children import run_child
from .pictures import different_pictures
from .stats import gpu_growth, growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from .results import Settings

CALLS = 200_000
THREADS = 16
PICTURES = 48
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
WEIGHTS = (30, 15, 10, 15, 6, 6, 12, 4, 1.5, 0.5)  # mostly small: calls are what is counted, not rows
FIRST = 1000  # calls after which memory has to stay as it is
SAMPLES = 100  # of memory, over the run
MARGIN = 10  # two pictures' answers differ by at least so many tolerances, so that a swapped row is seen

Rows = npt.NDArray[np.float32]


def run(settings: Settings) -> dict[str, Any]:
    """`{"calls", "rows", "wrong_rows", "code", "stderr", "gpu_growth", "gpu_by", "host_growth", ...}`, in bytes."""
    child = run_child(
        "soak:hammer",
        timeout_s=580,
        plan=str(settings.plan("uint8_int8")),
        calls=settings.times(CALLS, 20 * THREADS),
        device=settings.device,
    )
    return {**child.expect(), "code": child.code, "stderr": child.stderr, "seconds": round(child.seconds, 1)}


def hammer(plan: str, calls: int, device: int) -> dict[str, Any]:
    """In a process of its own."""
    from face3d_trt import Engine
    from face3d_trt.monitor.memory import GpuMemory, resident

    memory = GpuMemory(device)
    with Engine(plan, device=device) as engine:
        pictures = different_pictures(PICTURES, engine.inputs[0].dtype)
        expected = Expected.of(lambda images: engine(images)["coeffs"], pictures, SIZES)
        tally = Tally(calls, lambda: (memory.sample(), resident()))
        threads = [
            threading.Thread(target=tally.work, args=(engine, pictures, expected, seed)) for seed in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {**tally.figures(), **expected.figures(), "threads": THREADS, "sizes": SIZES}


class Expected:
    """The right answer to each picture, and how far an answer may be from it.

    TensorRT may take another kernel for another batch size, which rounds otherwise. So each picture is run once in each
    size, and twice the largest difference found is the tolerance. Pictures differ by far more.

    Args:
        answers: (pictures, values).
        tolerance: Largest absolute difference of a value.
    """

    def __init__(self, answers: Rows, tolerance: float) -> None:
        self.answers = answers
        self.tolerance = tolerance
        self.apart = least_distance(answers)

    @classmethod
    def of(cls, call: Callable[[Any], Rows], pictures: Any, sizes: tuple[int, ...]) -> Expected:
        """Ask an engine, one picture at a time and then in every size.

        Raises:
            RuntimeError: Pictures are answered too alike for a swapped row to be seen.
        """
        answers = np.concatenate([call(pictures[index : index + 1]) for index in range(len(pictures))])
        spread = 0.0
        for size in sizes:
            order = np.resize(np.arange(len(pictures)), -(-len(pictures) // size) * size)
            for chosen in order.reshape(-1, size):
                spread = max(spread, float(np.abs(call(pictures[chosen]) - answers[chosen]).max()))
        made = cls(answers, 2 * spread + 1e-6 * float(np.abs(answers).max()))
        if made.apart < MARGIN * made.tolerance:
            raise RuntimeError(f"answers are {made.apart:.3g} apart at least, and may be off by {made.tolerance:.3g}")
        return made

    def wrong(self, rows: Rows, chosen: npt.NDArray[Any]) -> tuple[int, float]:
        """How many rows are not the answers to the chosen pictures, and the largest deviation; NaN counts as wrong."""
        off = np.abs(rows - self.answers[chosen]).max(axis=1)
        return int((~(off <= self.tolerance)).sum()), float(off.max())

    def figures(self) -> dict[str, float]:
        """What the rows were held against."""
        return {"tolerance": self.tolerance, "least_distance": self.apart}


def least_distance(answers: Rows) -> float:
    """Of two different rows: their largest difference in any value."""
    found = [np.abs(answers[index + 1 :] - answers[index]).max(axis=1).min() for index in range(len(answers) - 1)]
    return float(min(found))


class Tally:
    """What all threads found together.

    Args:
        calls: How many they make in all.
        measure: Bytes of GPU memory, of this process (None: unknown) and of all, and of host memory.
    """

    def __init__(self, calls: int, measure: Callable[[], tuple[tuple[int | None, int], int]]) -> None:
        self._calls = calls
        self._measure = measure
        self._every = max(1, (calls - min(FIRST, calls // 2)) // SAMPLES)
        self._first = min(FIRST, calls // 2)
        self._lock = threading.Lock()
        self._taken = self._finished = self._rows = self._wrong = 0
        self._worst = 0.0
        self._memory: list[tuple[tuple[int | None, int], int]] = []
        self._errors: list[str] = []

    def work(self, engine: Any, pictures: Any, expected: Expected, seed: int) -> None:
        """One thread: call until all calls are made, or one failed."""
        rng = np.random.default_rng(seed)
        weights = np.array(WEIGHTS) / sum(WEIGHTS)
        try:
            while self._take():
                chosen = rng.integers(0, len(pictures), rng.choice(SIZES, p=weights))
                rows = engine(pictures[chosen])["coeffs"]
                if len(rows) != len(chosen):
                    raise RuntimeError(f"{len(rows)} rows for {len(chosen)} pictures")
                self._add(len(chosen), *expected.wrong(rows, chosen))
        except Exception as error:  # whatever it is, it belongs into the result
            with self._lock:
                self._errors.append(f"{type(error).__name__}: {error}")

    def figures(self) -> dict[str, Any]:
        """As a result has it."""
        host = [each for _, each in self._memory]
        return {
            "calls": self._finished,
            "rows": self._rows,
            "wrong_rows": self._wrong,
            "worst": self._worst,
            "errors": self._errors,
            **gpu_growth([gpu for gpu, _ in self._memory]),
            "host_growth": growth(host),
            "host_samples": host,
        }

    def _take(self) -> bool:
        with self._lock:
            self._taken += 1
            return self._taken <= self._calls and not self._errors

    def _add(self, rows: int, wrong: int, worst: float) -> None:
        with self._lock:
            self._finished += 1
            self._rows += rows
            self._wrong += wrong
            self._worst = max(self._worst, worst)
            after = self._finished - self._first
            if after >= 0 and after % self._every == 0:
                self._memory.append(self._measure())
