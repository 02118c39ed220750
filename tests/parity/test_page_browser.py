"""The report in headless Chromium: on light, dark and narrow screens, and on paper. Skipped where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import CONTRASTS, CUT, VIEWS, Tab, browser, find_chromium
from tests.parity.pages import made, odd

from face3d_trt.parity.page.write import PageOptions, write_page

if TYPE_CHECKING:
    from face3d_trt.decode import Decoder


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
