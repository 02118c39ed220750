"""What `bench report` writes: a page, Markdown, plots, a document; each figure from the rows that it is given."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.bench.runs import CPU, engine_side, row, rows_of, run, torch_side
from tests.browser import CONTRASTS, CUT, VIEWS, Tab, browser, find_chromium
from tests.parity.pages import Outline

from face3d_trt.bench.page.content import sections
from face3d_trt.bench.page.markdown import BEGIN, END, markdown, put_into
from face3d_trt.bench.page.write import ReportOptions, write_report
from face3d_trt.bench.records import Rate
from face3d_trt.cli.bench_report import command
from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from face3d_trt.bench.records import BenchFile

MOST_BYTES = 60_000  # of a plot
LATER = {"created": "2026-11-30T12:00:00Z"}


def everything() -> list[BenchFile]:
    """Two interpreters of one machine, the engines twice, and a CPU."""
    cpu = run(rows_of(["torch-fp32", "ort-fp32"], (1, 8)), CPU)
    return [torch_side(), engine_side(), engine_side(**LATER), cpu]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, its plots as files, and a document."""
    path = tmp_path_factory.mktemp("bench")
    options = ReportOptions(path / "bench.html", path / "doc.md", path / "plots", 5.0, "face3d-trt bench report a.json")
    write_report(options, everything())
    return path


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine")
    with browser(path) as opened:
        yield opened


def test_the_page_loads_nothing_runs_nothing_and_is_sound(folder: Path) -> None:
    text = (folder / "bench.html").read_text()
    read = Outline(text)
    levels = [level for level, _ in read.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:url\(|href="|labelledby=")#?([\w-]+)', text):
        assert reference in ids or reference == "data"
    for tag, attributes in read.tags:
        assert tag != "script"
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in text
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)


@pytest.mark.parametrize("view", VIEWS)
def test_the_page_can_be_read(tab: Tab, folder: Path, view: str) -> None:
    tab.open(folder / "bench.html", **VIEWS[view])
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [(folder / "bench.html").as_uri()]
    assert tab.run("document.documentElement.scrollWidth") <= VIEWS[view]["width"]
    assert tab.run(CUT) == []
    contrasts = tab.run(CONTRASTS)
    assert len(contrasts) > 300
    assert [each for each in contrasts if each[0] < 4.5] == []  # AA for text of any size


def test_it_prints(tab: Tab, folder: Path) -> None:
    tab.open(folder / "bench.html")
    assert tab.pdf().startswith(b"%PDF")


def test_plots_are_small_svg_whose_text_is_text(folder: Path) -> None:
    files = sorted((folder / "plots").glob("*.svg"))
    names = {path.stem.removeprefix("benchmarks-invented-gpu-") for path in files if "gpu" in path.name}
    assert names == {"throughput", "latency", "speed-up", "memory"}
    for path in files:
        assert path.stat().st_size < MOST_BYTES
        texts = {"".join(each.itertext()).strip() for each in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}
        assert {"batch", "torch, float32"} <= texts
        assert "DejaVu" not in path.read_text()


def test_plots_are_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    write_report(ReportOptions(plots=tmp_path), everything())
    for path in tmp_path.glob("*.svg"):
        assert path.read_text() == (folder / "plots" / path.name).read_text()


def test_the_document_gets_its_tables_between_the_marks_and_keeps_the_rest(folder: Path, tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(f"# Title\n\nby hand\n\n{BEGIN}\nold\n{END}\n\nthe end\n")
    put_into(document, "new\n")
    assert document.read_text() == f"# Title\n\nby hand\n\n{BEGIN}\n\nnew\n\n{END}\n\nthe end\n"
    text = (folder / "doc.md").read_text()
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(links) == 8
    assert all((folder / link).is_file() for link in links)
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(widths) > 100
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)


def test_speed_ups_are_ratios_of_the_rows_and_the_rival_is_named() -> None:
    rows = [row("torch-fp32", 8, 10.0), row("torch-compile", 8, 3.0), row("trt-fp16", 8, 2.0), row("trt-int8", 8, 1.25)]
    (section,) = sections([run(rows)], draw=False)
    text = markdown([section], "", {})
    assert "the fastest is TensorRT, int8: 6,400 images/s at batch 8, 2.40 times the best PyTorch row there" in text
    assert "| TensorRT, int8 | **2.40** |" in text  # 3.0 / 1.25
    assert "| TensorRT, int8 | **8.00** |" in text  # 10 / 1.25
    assert "| the best PyTorch | torch-compile |" in text
    assert "| engine only | trt | float32 | fp16 | 8 | 4,000 | 6,400 | 1.60 |" in text  # 2.0 / 1.25


def test_a_latency_limit_recommends_a_batch_or_says_that_none_keeps_it() -> None:
    rows = [row("trt-int8", batch, ms) for batch, ms in ((1, 0.4), (8, 0.8), (64, 3.0))]  # p99 is 1.5 times as long
    (section,) = sections([run(rows)], limit_ms=2.0, draw=False)
    assert (
        "Engine only, for 2 ms TensorRT, int8, batch 8: 10,000 images/s, 99 of 100 calls within 1.20 ms."
        in section.sentences
    )
    (section,) = sections([run(rows)], limit_ms=0.5, draw=False)
    assert "Engine only, nothing keeps 0.5 ms in 99 of 100 calls." in section.sentences


def test_skipped_rows_show_their_reason() -> None:
    gpu, _ = sections(everything(), draw=False)
    text = markdown([gpu], "", {})
    assert "| torch, float32 | engine only | 256 | out of memory |" in text


def test_rows_that_never_settled_are_counted() -> None:
    restless = Rate(ms=2.0, images_per_second=4000.0, spread=0.3, settled=False, windows=(2.0, 2.6))
    (section,) = sections([run([row("torch-fp32", 8), row("trt-int8", 8, rate=restless)])], draw=False)
    assert any(text.startswith("1 of 2 rows never settled") and "30 %" in text for text in section.sentences)


def test_machines_have_sections_and_files_of_their_own() -> None:
    other = run(rows_of(["torch-fp32"], (1,)), CPU.model_copy(update={"cores": 4}))
    anchors = [section.anchor for section in sections([*everything(), other], draw=False)]
    assert anchors == ["invented-gpu", "invented-cpu", "invented-cpu-2"]


def test_series_with_one_label_are_told_apart() -> None:
    rows = [row("trt-int8", 8, 1.0), row("trt-int8", 8, 1.1, input="uint8"), row("trt-int8", 8, 1.2, plan="b.plan")]
    (section,) = sections([run(rows)], draw=False)
    text = markdown([section], "", {})
    assert "| TensorRT, int8, uint8 input |" in text
    assert "| TensorRT, int8, float32 input, m.int8.plan |" in text
    assert "| TensorRT, int8, float32 input, b.plan |" in text


def test_a_run_where_all_was_skipped_is_still_a_report(tmp_path: Path) -> None:
    from tests.bench.runs import skipped

    options = ReportOptions(tmp_path / "a.html", plots=tmp_path)
    _, written = write_report(options, [run([skipped("torch-fp32", 1, "no GPU")])])
    assert written == (tmp_path / "a.html",)
    assert "no GPU" in written[0].read_text()


def test_the_command_writes_markdown_and_prints_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [tmp_path / "torch.json", tmp_path / "engine.json"]
    for path, file in zip(runs, (torch_side(), engine_side()), strict=True):
        file.write(path)
    command(runs, tmp_path / "bench.md", "5ms")
    shown = capsys.readouterr().out
    assert "Invented GPU: 224x224, coefficients" in shown
    assert shown.splitlines()[-1] == f"report: {tmp_path / 'bench.md'}"
    assert "| TensorRT, int8 |" in (tmp_path / "bench.md").read_text()


def test_what_cannot_be_written_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HTML or Markdown"):
        write_report(ReportOptions(tmp_path / "a.pdf"), [])
    with pytest.raises(UsageError, match="nothing is to be written"):
        write_report(ReportOptions(), [])
