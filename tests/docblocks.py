"""The code in a document, and a way to run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

RUNTIME = Path(__file__).resolve().parents[1] / "docs" / "runtime.md"
FIRST = "Open"  # every other block continues it


def blocks(document: Path = RUNTIME) -> dict[str, str]:
    """Python code by the heading that it stands under; a second block under one heading has a number."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", document.read_text(), flags=re.MULTILINE)[1:]:
        heading = part.partition("\n")[0]
        for index, code in enumerate(re.findall(r"```python\n(.*?)```", part, re.DOTALL)):
            found[heading if index == 0 else f"{heading} {index + 1}"] = code
    return found


def run_block(heading: str) -> dict[str, Any]:
    """The first block and the one under `heading`, in the present folder; what they define. The engine stays open."""
    code = blocks()
    names: dict[str, Any] = {"__name__": "runtime_md"}
    for each in dict.fromkeys((FIRST, heading)):
        exec(compile(code[each], f"docs/runtime.md, {each}", "exec"), names)
    return names
