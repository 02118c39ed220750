"""Draws `docs/report.png`: the top of the report about one plan, in headless Chromium.

Usage: python tools/make_report_picture.py REPORT.html
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import browser, find_chromium  # noqa: E402  # the tests' browser

WIDTH = 1120  # px
PICTURES = 2  # of the worst, so that the picture is not endless
COLOURS = 256  # a palette: a third of the bytes


def main() -> None:
    """Open, cut after the second of the worst pictures, write."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium on this machine")
    output = ROOT / "docs/report.png"
    with tempfile.TemporaryDirectory() as folder, browser(chromium) as tab:
        whole = Path(folder) / "whole.png"
        tab.open(Path(sys.argv[1]), width=WIDTH)
        height = tab.run(f"document.querySelectorAll('.face')[{PICTURES - 1}].getBoundingClientRect().bottom")
        tab.picture(whole, round(height))
        small = Image.open(whole).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(output, optimize=True)
    print(f"{output}: {small.width} x {small.height}, {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
