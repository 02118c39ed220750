"""The least time that arithmetic, memory and copies allow, by the rates that were measured on this machine.

A bound is no prediction: work of one kind hides behind another, so the largest of the parts is the bound. What caches
keep need not come from memory, so a small batch may beat its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from face3d_trt.names import COEFFICIENTS

if TYPE_CHECKING:
    from face3d_trt.bench.records import Arithmetic, Ceilings, Row, Work

Limit = Literal["arithmetic", "memory", "copies"]
# Bytes of an element: (weights, activations). Autocast keeps weights in float32 and casts them as it goes.
BYTES: dict[Arithmetic, tuple[int, int]] = {
    "fp32": (4, 4),
    "tf32": (4, 4),
    "amp": (4, 2),
    "bf16": (2, 2),
    "fp16": (2, 2),
    "int8": (1, 1),
}
_RATES: dict[Arithmetic, str] = {
    "fp32": "fp32_flops",
    "tf32": "tf32_flops",
    "amp": "fp16_flops",
    "bf16": "fp16_flops",  # tensor cores do both at one rate
    "fp16": "fp16_flops",
    "int8": "int8_ops",
}
_FLOAT_BYTES = 4  # of a coefficient on the host


@dataclass(frozen=True)
class Bound:
    """The least milliseconds of a call.

    Attributes:
        arithmetic: At the measured rate of its products; None: that was not measured.
        memory: At the measured bandwidth of the device's memory.
        copies: Between host and device, the slower direction of the two that overlap; None: there are none.
    """

    arithmetic: float | None
    memory: float | None
    copies: float | None = None

    @property
    def ms(self) -> float | None:
        """The largest part; None where nothing was measured."""
        return max((value for value in self._parts.values() if value is not None), default=None)

    @property
    def limit(self) -> Limit | None:
        """Which part that is."""
        known = [(value, name) for name, value in self._parts.items() if value is not None]
        return max(known)[1] if known else None

    @property
    def _parts(self) -> dict[Limit, float | None]:
        return {"arithmetic": self.arithmetic, "memory": self.memory, "copies": self.copies}


def bound_of(
    work: Work, ceilings: Ceilings, arithmetic: Arithmetic, batch: int, copied: tuple[float, float] | None = None
) -> Bound:
    """The bound of some work.

    Args:
        work: Of one picture.
        ceilings: Measured.
        arithmetic: What it computes in.
        batch: Pictures of a call.
        copied: Bytes of one picture to the device and back; None: everything stays there.
    """
    rate = getattr(ceilings, _RATES[arithmetic])
    weight, activation = BYTES[arithmetic]
    moved = work.weight_elements * weight + work.activation_elements * activation * batch
    return Bound(
        arithmetic=_ms(work.flops * batch, rate),
        memory=_ms(moved, ceilings.memory_bytes_per_s),
        copies=None if copied is None else _copies(copied, batch, ceilings),
    )


def bound_of_row(row: Row, work: Work, ceilings: Ceilings) -> Bound:
    """The bound of a row; host to host with its copies, where device and host have memories of their own."""
    copied = None
    if row.mode == "host":
        pixels = 3 * row.height * row.width * (1 if row.input == "uint8" else 4)
        copied = (float(pixels), float(COEFFICIENTS * _FLOAT_BYTES))
    return bound_of(work, ceilings, row.arithmetic, row.batch, copied)


def share_of_bound(row: Row, bound: Bound) -> float | None:
    """Bound over measured time: 1 is the ceiling itself. None where one of them is not known."""
    return None if row.rate is None or bound.ms is None else bound.ms / row.rate.ms


def _copies(copied: tuple[float, float], batch: int, ceilings: Ceilings) -> float | None:
    ways = zip(copied, (ceilings.upload_bytes_per_s, ceilings.download_bytes_per_s), strict=True)
    return max((ms for nbytes, rate in ways if (ms := _ms(nbytes * batch, rate)) is not None), default=None)


def _ms(amount: float, rate: float | None) -> float | None:
    return None if not rate else amount / rate * 1000
