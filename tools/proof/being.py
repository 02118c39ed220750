"""A process that is one step."""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from . import machine
from .children import function
from .results import NotHere, Result

if TYPE_CHECKING:
    from .results import Settings
    from .steps import Step

ROOT = Path(__file__).resolve().parents[2]


def use_this_checkout() -> None:
    """For this process and all that it starts, whatever is installed."""
    source = str(ROOT / "src")
    sys.path.insert(0, source)
    others = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder not in ("", source)]
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *others])


def be_step(step: Step, settings: Settings) -> int:
    """Measure, and write the result; the exit code."""
    begun, figures, skipped = time.monotonic(), {}, None
    try:
        figures = function(step.home)(settings, **step.arguments)
    except NotHere as reason:
        skipped = str(reason)
    except Exception:
        traceback.print_exc()
        return 1
    Result(
        step=step.name,
        files=tuple(figures.pop("files", ())),
        figures=figures,
        seconds=round(time.monotonic() - begun, 1),
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=shlex.join([sys.executable, *sys.argv]),
        versions=machine.versions(),
        gpu=machine.gpu(settings.device),
        scale=settings.scale,
        skipped=skipped,
    ).write(settings.out)
    return 0
