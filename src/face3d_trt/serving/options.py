"""What `serve` is told, and what follows from it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.names import CROP

CROP_BYTES = CROP * CROP * 3
MEDIA_TYPES = ("image/jpeg", "image/png", "image/webp", "image/bmp")
_CORES_A_FRONT = 4  # the other three: what the engine, and the clients of a load test, want
_MOST_FRONTS = 8
_LEAST_QUEUE = 1024
_LEAST_TOKEN = 16  # characters


@dataclass(frozen=True)
class ServeOptions:
    """How a server runs.

    Attributes:
        plan: A plan, or an ONNX file of `export`.
        host: Address to listen on.
        port: 0: one that is free.
        replicas: Processes with an engine; None: one for each GPU, or one on the CPU.
        max_batch: Most crops of a batch; None: the plan's most, at most 256.
        max_wait_s: That a crop waits for others while the engine is busy. An idle engine waits for nobody.
        max_queue: Crops that are accepted and not answered, in all; beyond that, 429. None: room for two of the largest
            requests in each front, at least 1024.
        max_crops: Of one request to /v1/coeffs.
        max_body: Bytes of one request to /v1/reconstruct.
        max_pixels: Of a photo, known from its header.
        max_images: Of one request to /v1/reconstruct.
        deadline_s: From a request's headers to its answer; beyond that, 504.
        body_s: For a request's headers, and again for its body; beyond that, 408.
        drain_s: Between SIGTERM and the end of accepting connections.
        token_file: File with the bearer token that /v1 wants; None: it wants none.
        fronts: Processes that speak HTTP; None: one for every four cores.
        photo_workers: Processes that read photos; None: one for every two cores; 0: no /v1/reconstruct.
    """

    plan: Path
    host: str = "127.0.0.1"
    port: int = 8080
    replicas: int | None = None
    max_batch: int | None = None
    max_wait_s: float = 0.005
    max_queue: int | None = None
    max_crops: int = 256
    max_body: int = 32 << 20
    max_pixels: int = 50_000_000
    max_images: int = 16
    deadline_s: float = 10.0
    body_s: float = 10.0
    drain_s: float = 0.5
    token_file: Path | None = None
    fronts: int | None = None
    photo_workers: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: A number out of range.
        """
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"--{_option(name)} {value}", allowed=f"{least} to {most}")
        if self.queue < self.max_crops * self.front_count:
            raise UsageError(
                f"--max-queue {self.queue} has no room for a request of {self.max_crops} crops in each of "
                f"{self.front_count} fronts",
                allowed=f"{self.max_crops * self.front_count} and more, or fewer --max-crops or --fronts",
            )

    @property
    def front_count(self) -> int:
        """Processes that speak HTTP."""
        return self.fronts or max(1, min(_MOST_FRONTS, _cores() // _CORES_A_FRONT))

    @property
    def photo_count(self) -> int:
        """Processes that read photos; a multiple of the fronts' number is shared evenly."""
        if self.photo_workers is None:
            return max(self.front_count, _cores() // 2)
        return 0 if not self.photo_workers else max(self.front_count, self.photo_workers)

    @property
    def queue(self) -> int:
        """Crops that are accepted and not answered."""
        return self.max_queue or max(_LEAST_QUEUE, 2 * self.max_crops * self.front_count)

    @property
    def front_queue(self) -> int:
        """Crops that one front has room for."""
        return self.queue // self.front_count

    def token(self) -> str | None:
        """The bearer token.

        Raises:
            UsageError: The file has none that is worth the name.
            MissingError: It cannot be read.
        """
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise MissingError(f"cannot read {self.token_file}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.token_file} has more than ASCII characters", run=_make_token(self)) from error
        if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
            raise UsageError(
                f"{self.token_file} holds no token",
                allowed=f"one line of at least {_LEAST_TOKEN} ASCII characters, without blanks",
                run=_make_token(self),
            )
        return token

    def as_json(self) -> str:
        """Every setting, what was left to the machine filled in."""
        told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        told |= {"fronts": self.front_count, "photo_workers": self.photo_count, "max_queue": self.queue}
        return json.dumps(told, indent=1)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("port", 0, 65535),
    ("replicas", 1, 64),
    ("max_batch", 1, 4096),
    ("max_wait_s", 0, 10),
    ("max_queue", 1, 65536),
    ("max_crops", 1, 4096),
    ("max_body", 1 << 10, 1 << 30),
    ("max_pixels", 1 << 10, 200_000_000),
    ("max_images", 1, 256),
    ("deadline_s", 0.01, 3600),
    ("body_s", 0.01, 3600),
    ("drain_s", 0, 600),
    ("fronts", 1, 64),
    ("photo_workers", 0, 256),
)


def _option(name: str) -> str:
    return name.removesuffix("_s").replace("_", "-")


def _make_token(options: ServeOptions) -> str:
    return f"openssl rand -hex 32 > {options.token_file}"


def _cores() -> int:
    return len(os.sched_getaffinity(0))
