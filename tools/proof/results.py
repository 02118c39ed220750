"""What a step leaves: `<step>.json`, whole or not at all, and what it was told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1


class NotHere(Exception):  # noqa: N818  it is a reason, not an error
    """A step cannot show its claim on this machine, for the reason that is its text."""


@dataclass(frozen=True)
class Settings:
    """What all steps are told.

    Attributes:
        out: Where results and plans go.
        graphs: Typed graphs, see graphs.py.
        largest: Largest batch of the throughput profile.
        scale: Share of the calls and cycles that are made; below 1 it is a rehearsal, and the report says so.
        device: Index of the GPU.
    """

    out: Path
    graphs: Path
    largest: int = 256
    scale: float = 1.0
    device: int = 0

    def plan(self, name: str) -> Path:
        """`uint8_int8` → `OUT/plans/uint8_int8.plan`."""
        return self.out / "plans" / f"{name}.plan"

    def graph(self, name: str) -> Path:
        """`full.uint8.int8` → `GRAPHS/full.uint8.int8.onnx`."""
        return self.graphs / f"{name}.onnx"

    def times(self, count: int, least: int = 1) -> int:
        """So many, scaled."""
        return max(least, round(count * self.scale))

    def log(self, step: str) -> Path:
        """What a step printed."""
        return self.out / f"{step}.log"

    def words(self) -> list[str]:
        """These settings as the options of the command that is a step."""
        words = ["--out", str(self.out), "--graphs", str(self.graphs), "--largest", str(self.largest)]
        return [*words, "--scale", str(self.scale), "--device", str(self.device)]


@dataclass(frozen=True)
class Result:
    """What a step found.

    Attributes:
        step: Name.
        figures: What was measured; the step's module says how it is laid out.
        seconds: Wall clock.
        when: ISO 8601, UTC.
        command: How the step was called.
        versions: Of Python and of the packages that the interpreter has.
        gpu: Name, compute capability and driver; None where the step saw no GPU.
        scale: As in Settings.
        skipped: Why there is nothing to measure on this machine; None where there was.
        files: What has to be there still for the step to count as done, relative to the results' folder.
    """

    step: str
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    when: str = ""
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    gpu: dict[str, str] | None = None
    scale: float = 1.0
    skipped: str | None = None
    files: tuple[str, ...] = ()

    def write(self, out: Path) -> None:
        """Write under its name; a former one is replaced at once."""
        path = path_of(self.step, out)
        temporary = path.with_suffix(".json.part")
        temporary.write_text(
            json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        temporary.replace(path)


def path_of(step: str, out: Path) -> Path:
    """Where a step's result stands."""
    return out / f"{step}.json"


def read(step: str, out: Path) -> Result | None:
    """A step's result; None where there is none, or none that this version can read."""
    try:
        content = json.loads(path_of(step, out).read_text(encoding="utf-8"))
        if content.pop("schema") != SCHEMA:
            return None
        return Result(**{**content, "files": tuple(content["files"])})
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def done(step: str, settings: Settings) -> Result | None:
    """A step's result, provided that it was measured at this scale and its files are there still."""
    result = read(step, settings.out)
    if result is None or result.scale != settings.scale:
        return None
    return result if all((settings.out / name).is_file() for name in result.files) else None
