"""Verdicts as JUnit XML: a suite for each plan, a case for each check and each row, for continuous integration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from face3d_trt.parity.meaning import MEASURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from face3d_trt.parity.verdict import Failure, MeaningRow, Row, Verdict

FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2
Case = tuple[str, str, str | None, bool]  # class, name, why it failed, whether it was judged
Key = tuple[str | None, str | None, str | None, int | None]  # candidate, output, group, batch


def to_junit(verdicts: Sequence[Verdict]) -> str:
    """The XML text; rows whose limits do not count are skipped cases."""
    root = ElementTree.Element("testsuites", name="face3d-trt compare")
    for verdict in verdicts:
        cases = list(_cases(verdict))
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=verdict.plan,
            tests=str(len(cases)),
            failures=str(sum(why is not None for _, _, why, _ in cases)),
            errors="0",
            skipped=str(sum(why is None and not judged for _, _, why, judged in cases)),
        )
        for where, name, why, judged in cases:
            case = ElementTree.SubElement(suite, "testcase", classname=where, name=name)
            if why is not None:
                ElementTree.SubElement(case, "failure", message=why).text = why
            elif not judged:
                ElementTree.SubElement(case, "skipped", message="shown and not gated")
    ElementTree.indent(root)
    text = FORBIDDEN.sub("�", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _cases(verdict: Verdict) -> Iterator[Case]:
    for check in verdict.checks:
        yield "files", check.name, None if check.passed else check.text, True
    rows: list[Row | MeaningRow] = [*verdict.rows, *verdict.meaning]
    left = {failure.text: failure for failure in verdict.failures if failure.kind != "integrity"}
    for row in rows:
        name, key = _named(row)
        failure = next((each for each in left.values() if _key(each) == key), None) if not row.passed else None
        if failure is not None:
            del left[failure.text]
        yield row.candidate, name, failure.text if failure is not None else None, row.gated
    for failure in left.values():  # those without a row: what could not be run
        yield failure.candidate or "files", failure.kind, failure.text, True


def _named(row: Row | MeaningRow) -> tuple[str, Key]:
    """The case's name, and what its failure is known by."""
    from face3d_trt.parity.verdict import MeaningRow

    if isinstance(row, MeaningRow):
        return MEASURES[row.measure].title, (row.candidate, "meaning", row.measure, row.worst_batch)
    name = f"{row.label} at batch {row.batch}, profile {row.profile}"
    return name, (row.candidate, row.output, row.group, row.batch)


def _key(failure: Failure) -> Key:
    return failure.candidate, failure.output, failure.group, failure.batch
