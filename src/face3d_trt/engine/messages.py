"""What TensorRT says while it works: each thing once, with how often it was said."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from face3d_trt.report import Reporter

Severity = Literal["error", "warning"]

# TensorRT 8.6 says these at every build of a half-precision or int8 plan. Overflow has a line of its own, which stays.
_HARMLESS = (
    "does not natively support INT64. Attempting to cast down to INT32",  # shapes, far below 2³¹
    "issues when converting weights between types",
    "modify the weights or retrain with regularization",
    "Check verbose logs for the list of affected weights",
    "Detected subnormal FP16 values",  # weights below 6e-5
    "less than smallest positive FP16 subnormal value",
)
_MOST = 1000  # of different texts: a service runs for months


class Messages:
    """Collects TensorRT's warnings and errors, which come from several threads and by the hundred."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Severity, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, severity: Severity, text: str) -> None:
        """Count one message; the first _MOST different ones are enough."""
        key = (severity, " ".join(text.split()))
        with self._lock:
            if key in self._counts or len(self._counts) < _MOST:
                self._counts[key] += 1

    def clear(self) -> None:
        """Forget everything; costs next to nothing where nothing was said."""
        if self._counts:
            with self._lock:
                self._counts.clear()

    def errors(self) -> list[str]:
        """The distinct errors so far, in order of appearance."""
        with self._lock:
            return [text for (severity, text) in self._counts if severity == "error"]

    def warn(self, report: Reporter, speaker: str) -> None:
        """Hand the distinct warnings to `report`, but for those known to be harmless, and forget them."""
        with self._lock:
            said = [(text, count) for (severity, text), count in self._counts.items() if severity == "warning"]
            for text, _ in said:
                del self._counts["warning", text]
        for text, count in said:
            if any(known in text for known in _HARMLESS):
                continue
            report.warn(f"{speaker}: {text}" + (f" (said {count} times)" if count > 1 else ""))
