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
FACES = 350  # px at the bottom that have the faces
EXACT = 72  # colours


def main() -> None:
    """Open, cut after the worst picture, write."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium on this machine")
    output = ROOT / "docs/report.png"
    with tempfile.TemporaryDirectory() as folder, browser(chromium) as tab:
        whole = Path(folder) / "whole.png"
        tab.open(Path(sys.argv[1]), width=WIDTH)
        tab.picture(whole, round(tab.run("document.querySelector('.face').getBoundingClientRect().bottom")))
        picture = with_palette(Image.open(whole).convert("RGB"))
        picture.save(output, optimize=True)
    print(f"{output}: {picture.width} x {picture.height}, {output.stat().st_size} bytes")


def with_palette(shot: Image.Image) -> Image.Image:
    """In 256 colours, a third of the bytes: those of text and areas as they are, the faces' dithered."""
    counts = sorted(shot.getcolors(shot.width * shot.height), reverse=True)
    exact = [channel for _, colour in counts[:EXACT] for channel in colour]
    faces = shot.crop((0, shot.height - FACES, shot.width, shot.height))
    others = faces.quantize(256 - EXACT, Image.Quantize.MAXCOVERAGE).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette((exact + others)[: 3 * 256])
    return shot.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


if __name__ == "__main__":
    main()
