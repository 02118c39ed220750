"""What `ui` is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from face3d_trt.errors import UsageError

PORT = 7860  # Gradio's usual one
LOCAL = ("127.0.0.1", "localhost", "::1")
_BYTES, _PIXELS = (1 << 10, 1 << 30), (1 << 10, 200_000_000)


@dataclass(frozen=True)
class UiOptions:
    """How the page is served.

    Attributes:
        plan: A plan, or an ONNX file of `export`; None: the one in `engines/`, fp16 first.
        host: Address to listen on.
        port: 0: one that is free.
        max_bytes: Of a photo's file.
        max_pixels: Of a photo, known from its header.
    """

    plan: Path | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    max_bytes: int = 32 << 20
    max_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: A number out of range.
        """
        numbers = (
            ("--port", self.port, (0, 65535)),
            ("--max-size", self.max_bytes, _BYTES),
            ("--max-pixels", self.max_pixels, _PIXELS),
        )
        for option, value, (least, most) in numbers:
            if not least <= value <= most:
                raise UsageError(f"{option} {value}", allowed=f"{least} to {most}")
