"""The report in headless Chromium: on light, dark and narrow screens, and on paper. Skipped where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import Tab, browser, find_chromium
from tests.parity.pages import made, odd

from face3d_trt.parity.page.write import PageOptions, write_page

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder

A4 = 718  # CSS px between the margins
VIEWS = {
    "light": {"width": 1200},
    "dark": {"width": 1200, "dark": True},
    "narrow": {"width": 390},
    "narrow and dark": {"width": 390, "dark": True},
    "paper": {"width": A4, "media": "print"},
    "paper of a dark screen": {"width": A4, "media": "print", "dark": True},
}
# For each text: its contrast against the nearest background that is painted, by WCAG 2.2, and what is asked of it.
CONTRASTS = """
(() => {
  const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
      if (colour[3] > 0) throw new Error("half transparent: " + e.className);
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, style = getComputedStyle(element);
    if (!texts.currentNode.data.trim() || !element.getClientRects().length || element.tagName === "title") continue;
    const ink = light(numbers(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(behind(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([contrast, texts.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
})()
"""
# Whatever sticks out of the page, or (on paper, where nobody scrolls) out of its table.
CUT = """
[...document.querySelectorAll("body *")].filter(e =>
  e.getBoundingClientRect().right > innerWidth + 1 && (matchMedia("print").matches || !e.closest(".scroll"))
).map(e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 40)}`)
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine")
    with browser(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, decoder: Decoder) -> Path:
    """A plan that passed, and one that is odd in every way."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(PageOptions(path, command="face3d-trt compare"), [made({"rotation": [0.1, 0.3]}), odd(decoder)])
    return path


@pytest.mark.parametrize("view", VIEWS)
def test_it_can_be_read(tab: Tab, report: Path, view: str) -> None:
    options: dict[str, Any] = VIEWS[view]
    tab.open(report, **options)
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [report.as_uri()]
    assert tab.run("document.documentElement.scrollWidth") <= options["width"]
    assert tab.run(CUT) == []
    contrasts = tab.run(CONTRASTS)
    assert len(contrasts) > 100
    assert [each for each in contrasts if each[0] < 4.5] == []  # AA for text of any size
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert tab.run(broken) == 0


def test_dark_screens_get_a_dark_page_and_paper_a_white_one(tab: Tab, report: Path) -> None:
    found = {}
    for view in ("light", "dark", "paper of a dark screen"):
        tab.open(report, **VIEWS[view])  # type: ignore[arg-type]
        found[view] = tab.run("getComputedStyle(document.body).backgroundColor")
    red = {view: int(re.findall(r"\d+", colour)[0]) for view, colour in found.items()}
    assert red["light"] > 230
    assert red["dark"] < 40
    assert red["paper of a dark screen"] == 255


def test_a_keyboard_reaches_every_table_that_scrolls(tab: Tab, report: Path) -> None:
    tab.open(report, width=390)
    script = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth && e.tabIndex !== 0)"
    assert tab.run("[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)")
    assert tab.run(f"{script}.length") == 0


def test_it_prints(tab: Tab, report: Path) -> None:
    tab.open(report)
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 2 <= pages <= 20  # hundreds of pictures are no hundred pages
