"""What is missing is answered with a command that installs it, wherever this package came from."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from face3d_trt.errors import MissingError
from face3d_trt.optional import install_command, reinstall_command, require, requirements_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WHEEL = [  # as hatchling, and as setuptools with conditions, write them
    "numpy>=1.24",
    "torch>=2.8; extra == 'export'",
    'scipy>=1.11; extra == "export"',
    "scipy>=1.11; extra == 'train'",
    "tensorrt-rtx-cu13<2,>=1.7; extra == 'rtx'",
    'typer>=1; (python_version < "3.11" or os_name == "nt") and extra == "export"',
]


@pytest.fixture
def installed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """face3d-trt as an installed distribution, with the requirements of pyproject.toml; gives its extras."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = ["Metadata-Version: 2.4", "Name: face3d-trt", "Version: 0.1.0", "Requires-Dist: numpy>=1.24"]
    lines += [f"Requires-Dist: {text}; extra == '{extra}'" for extra, texts in extras.items() for text in texts]
    folder = tmp_path / "site" / "face3d_trt-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return extras


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source tree on PYTHONPATH: no distribution of that name."""

    def none(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)


def test_an_extras_requirements_keep_their_other_conditions():
    assert requirements_of(WHEEL, ["rtx"]) == ("tensorrt-rtx-cu13<2,>=1.7",)
    assert requirements_of(WHEEL, ["train", "export"]) == (
        "scipy>=1.11",
        "torch>=2.8",
        'typer>=1; (python_version < "3.11" or os_name == "nt")',
    )
    assert requirements_of(WHEEL, []) == ()


@pytest.mark.parametrize("extras", [("rtx",), ("detect", "cpu"), ("export", "quantize")])
def test_the_command_names_packages_that_an_index_has(installed, extras):
    words = shlex.split(install_command(*extras))
    assert words[:2] == ["pip", "install"]
    named = {(r.name, str(r.specifier)) for r in map(Requirement, words[2:])}
    assert named == {(r.name, str(r.specifier)) for extra in extras for r in map(Requirement, installed[extra])}
    assert not any("face3d" in word for word in words)


@pytest.mark.usefixtures("uninstalled")
def test_a_source_tree_is_installed_with_its_extras(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    assert install_command("export", "cpu") == "pip install -e '.[export,cpu]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("rtx") == f"pip install -e '{root}[rtx]'"


@pytest.mark.usefixtures("installed")
def test_a_missing_module_is_answered_with_its_package():
    with pytest.raises(MissingError, match="drawing needs the package no_such_module") as caught:
        require("no_such_module.part", "rtx", "drawing")
    assert caught.value.run == "pip install 'tensorrt-rtx-cu13>=1.7,<2'"


def test_lost_files_come_back_by_a_command_that_works(root):
    words = shlex.split(reinstall_command())
    assert words[:3] == ["git", "-C", str(root)]
    assert (
        subprocess.run([*words[:3], "ls-files", "--error-unmatch", words[-1]], check=False, stdout=-3).returncode == 0
    )
