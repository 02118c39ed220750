"""The page as a user starts it, and a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.browser import Tab, browser, find_chromium

START_S, END_S = 60.0, 15.0
LIMITS = ("--max-pixels", "4000000", "--max-size", "4MiB")


@dataclass
class Page:
    """A running `face3d-trt ui`.

    Attributes:
        url: Where it is.
        folder: Where it may leave files.
    """

    process: subprocess.Popen[bytes]
    url: str
    folder: Path
    log: Path

    def left(self) -> list[Path]:
        """Its files of the moment."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def interrupt(self) -> int:
        """Ctrl-C, and how it ended."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(END_S)


def start_page(plan: Path, folder: Path, *options: str) -> Page:
    """Start it, with `folder` for its files."""
    log = folder.with_suffix(".log")
    folder.mkdir()
    command = [sys.executable, "-m", "face3d_trt", "ui", str(plan), "--port", "0", *options]
    with log.open("wb") as file:
        environment = os.environ | {"COLUMNS": "200", "TMPDIR": str(folder)}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    until = time.monotonic() + START_S
    while not (found := re.search(r"^page\s+(http://\S+)", log.read_text(), re.MULTILINE)):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return Page(process, found[1], folder, log)


@pytest.fixture(scope="package")
def page(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The learned stand-in; it ends cleanly and leaves nothing."""
    page = start_page(exported, tmp_path_factory.mktemp("ui") / "files", *LIMITS)
    try:
        yield page
        assert page.interrupt() == 0, page.log.read_text()
        assert page.left() == []
        assert "Traceback" not in page.log.read_text()
    finally:
        if page.process.poll() is None:
            page.process.kill()
            page.process.wait()


@pytest.fixture(scope="package")
def tab() -> Iterator[Tab]:
    """Chromium that draws in 3D."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine")
    with browser(path, webgl=True) as opened:
        yield opened
