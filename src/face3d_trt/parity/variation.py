"""Do the pictures differ enough? Errors are judged in shares of how much they do, so near-copies fail good engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from face3d_trt.names import COEFFS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from face3d_trt.parity.truth import Truth

# Share of the samples' variation. Measured on the learned stand-in, over all coefficients: 300 draws of 8, 16 and 32 of
# the 128 renders in calibration/ gave 0.70 and more, twelve shifted and noisy copies of one picture 0.28 and 0.11.
LITTLE = 0.5


def variation_notes(truths: Iterable[Truth]) -> tuple[str, ...]:
    """A note where the coefficients of the pictures vary far less than those of the package's sample faces."""
    shares = [
        truth.scales[COEFFS, None].value / truth.usual
        for truth in truths
        if truth.usual is not None and truth.scales[COEFFS, None].kind == "variation"
    ]
    if not shares or min(shares) >= LITTLE:
        return ()
    share = min(shares)
    note = (
        f"the pictures differ little: their coefficients vary by {share:.0%} of what those of the package's sample "
        f"faces do, so that errors look {1 / share:.1f} times as large; compare on pictures of different people"
    )
    return (note,)
