"""Draws `docs/ui.jpg`: the page of `face3d-trt ui` with a reconstructed photo, in headless Chromium.

Usage: python tools/make_ui_picture.py PLAN
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import browser, find_chromium  # noqa: E402  # the tests' browser

WIDTH = 1120  # px
START_S, DRAW_S = 60, 3  # until the page is there; until the mesh is drawn
DONE = "document.querySelector('#message')?.innerText.startsWith('{}')"
READY = "[...document.querySelectorAll('.gallery-item img')].some(i => i.naturalWidth)"


def main() -> None:
    """Start the page, click the first example, draw."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium on this machine")
    output = ROOT / "docs/ui.jpg"
    command = [sys.executable, "-m", "face3d_trt", "ui", sys.argv[1], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as page, tempfile.TemporaryDirectory() as folder:
        try:
            url = next(line.split()[1] for line in page.stderr or () if line.startswith("page"))
            with browser(chromium, webgl=True) as tab:
                tab.visit(url, width=WIDTH)
                tab.wait(READY, START_S)
                for index, words in ((1, "An aligned face"), (0, "One face")):  # the times are those of a second photo
                    tab.run(f"document.querySelectorAll('.gallery-item')[{index}].click()")
                    tab.wait(DONE.format(words))
                    time.sleep(DRAW_S)
                whole = Path(folder) / "whole.png"
                tab.picture(whole)
                Image.open(whole).convert("RGB").save(output, quality=82, optimize=True)
        finally:
            page.terminate()
    with Image.open(output) as picture:
        print(f"{output}: {picture.width} x {picture.height}, {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
