"""A report as Markdown, and its place in a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt.files import storage_errors, write_text

if TYPE_CHECKING:
    from face3d_trt.bench.page.content import Section
    from face3d_trt.bench.page.table import Table

BEGIN, END = "<!-- written by face3d-trt bench report: begin -->", "<!-- written by face3d-trt bench report: end -->"
_TITLE = "# Benchmarks"


def markdown(sections: Sequence[Section], command: str, pictures: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The text, without a title of its own.

    Args:
        sections: What to say.
        command: That was run, to be shown.
        pictures: Anchor of a section to its plots: path relative to the document, and what is to be seen.
    """
    parts = [f"```bash\n{command}\n```"] if command else []
    for section in sections:
        parts += _section(section, pictures.get(section.anchor, ()))
    return "\n\n".join(parts) + "\n"


def put_into(document: Path, text: str) -> None:
    """Put the text between the two marks of a document; at its end where it has none yet.

    Raises:
        StorageError: It cannot be written.
    """
    with storage_errors(document):
        before = document.read_text(encoding="utf-8") if document.is_file() else f"{_TITLE}\n"
    block = f"{BEGIN}\n\n{text}\n{END}"
    if BEGIN in before and END in before:
        head, rest = before.split(BEGIN, 1)
        whole = head + block + rest.split(END, 1)[1]
    else:
        whole = f"{before.rstrip()}\n\n{block}\n"
    write_text(document, whole)


def table_text(table: Table) -> str:
    """A Markdown table under its title."""
    rule = ["---" if at < table.texts else "---:" for at in range(len(table.head))]
    lines = [_line(table.head), _line(rule)]
    lines += [
        _line([f"**{cell}**" if (at, column) in table.best else cell for column, cell in enumerate(row)])
        for at, row in enumerate(table.rows)
    ]
    note = f" {table.note}" if table.note else ""
    return f"**{table.title}.**{note}\n\n" + "\n".join(lines)


def _section(section: Section, pictures: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"## {section.title}"
    if section.sentences:
        yield "\n".join(f"* {sentence}" for sentence in (*section.sentences, section.noise))
    else:
        yield section.noise
    for path, text in pictures:
        yield f"![{text}]({path})"
    for block in section.blocks:
        yield f"### {block.title}"
        if block.words:
            yield block.words
        if block.folded:
            yield f"<details>\n<summary>{block.title}: the tables</summary>"
        yield from map(table_text, block.tables)
        if block.folded:
            yield "</details>"
    yield "### Machine and versions"
    rows = "\n".join(_line(fact) for fact in section.facts)
    yield f"| | |\n| --- | --- |\n{rows}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
