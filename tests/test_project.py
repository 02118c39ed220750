"""Facts of the repository: what is tracked, what the documents promise, which versions are named."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from packaging.requirements import Requirement
from packaging.version import Version

import face3d_trt
from face3d_trt.cli import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/*.md", "calibration/*.md", "engines/*.md") for path in ROOT.glob(pattern)
)
MAX_BYTES = 500_000
# The pictures and samples that ship, and what tests need where there is no package to make it.
LARGE_FILES = re.compile(r"calibration/|(src/face3d_trt|tests)/\w+/data/")
HOME_PATHS = re.compile(r"(?<![\w.~])/(?:work|root|home)/[\w.-]+")
VERBS = typer.main.get_command(app).commands


def tracked() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("not a git checkout")
    return [path for name in answer.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def shown_commands() -> list[tuple[str, str]]:
    """(document, command) for every `face3d-trt ...` in a code block or in back quotes of a document."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text().replace("\\\n", " ")
        blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.DOTALL)
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)
        found += [
            (path.name, match[0]) for line in lines if (match := re.search(r"(?<![\w'\"/-])face3d-trt [a-z-].*", line))
        ]
    return found


def test_no_tracked_file_names_a_folder_of_somebodys_machine():
    offenders = []
    for path in tracked():
        text = path.read_bytes()
        if b"\0" not in text:
            offenders += [f"{path.relative_to(ROOT)}: {hit}" for hit in HOME_PATHS.findall(text.decode())]
    assert offenders == []


def test_no_tracked_file_is_large():
    large = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in tracked()}
    assert {n: s for n, s in large.items() if s > MAX_BYTES and not LARGE_FILES.match(n)} == {}


def test_no_engine_model_or_archive_is_tracked():
    suffixes = {".plan", ".engine", ".trt", ".mat", ".pt", ".pth", ".onnx"}
    names = [path.relative_to(ROOT).as_posix() for path in tracked() if path.suffix in suffixes]
    assert [name for name in names if not LARGE_FILES.match(name)] == []


@pytest.mark.parametrize(("document", "command"), shown_commands(), ids=lambda text: text[:60])
def test_documented_commands_exist_with_their_options(document, command):
    words = shlex.split(re.split(r"\s+#|\s[|>]\s?|\s&&\s", command)[0], comments=False)[1:]
    if words[0].startswith("-"):
        assert words[0] in {"--help", "--version"}
        return
    assert words[0] in VERBS, f"{document} shows a command that does not exist"
    verb = VERBS[words[0]]
    verb = getattr(verb, "commands", {}).get(next(iter(words[1:]), ""), verb)  # `bench report`
    known = {"--help"} | {option for p in verb.params for option in (*p.opts, *p.secondary_opts)}
    used = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)}
    assert used <= known, f"{document} shows options that do not exist"


def test_readme_shows_every_command():
    shown = {command.split()[1] for document, command in shown_commands() if document == "README.md"}
    assert set(VERBS) <= shown


def test_documents_link_to_files_that_exist():
    broken = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_make_targets_named_in_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [path.read_text() for path in DOCUMENTS]
    named = {name for text in texts for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert named <= targets
    assert {"install", "demo", "test", "test-gpu", "check", "clean", "help"} <= targets


def test_ci_script_can_be_executed():
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_one_version_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] == face3d_trt.__version__


def test_pinned_versions_satisfy_pyproject():
    project = pyproject()["project"]
    declared = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    wanted = {Requirement(text).name: Requirement(text).specifier for text in declared}
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line]
    for pin in pins:
        version = next(iter(pin.specifier)).version
        assert Version(version) in wanted.get(pin.name, Requirement(pin.name).specifier), pin
    unpinned = set(wanted) - {pin.name for pin in pins}
    assert unpinned == {"cuda-python", "onnxruntime-gpu", "tensorrt"}  # they have to suit the driver


def test_pre_commit_runs_the_ruff_that_is_pinned():
    revision = re.search(r"ruff-pre-commit\n\s+rev: v(\S+)", (ROOT / ".pre-commit-config.yaml").read_text())
    pin = re.search(r"^ruff==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert revision is not None
    assert pin is not None
    assert revision[1] == pin[1]
