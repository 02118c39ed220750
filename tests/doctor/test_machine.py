from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from face3d_trt.doctor import machine


def test_every_installed_package_is_found_under_the_name_the_index_uses():
    packages = machine.installed()
    assert packages["numpy"] == importlib.metadata.version("numpy")
    assert packages["typing-extensions"] == importlib.metadata.version("typing_extensions")


def test_a_tensorrt_on_this_machine_is_where_it_says():
    for flavour in machine.find_tensorrt(machine.installed()):
        assert flavour.where is not None
        assert (Path(flavour.where) / "__init__.py").is_file()
        assert flavour.packages


def test_packages_of_one_flavour_are_not_counted_to_the_other():
    packages = {"tensorrt": "11.4", "tensorrt-cu13-libs": "11.4", "tensorrt-rtx-cu13": "1.7", "tensorrt-lean": "11.4"}
    full, rtx = (flavour.packages for flavour in machine.find_tensorrt(packages))
    assert full == {"tensorrt": "11.4", "tensorrt-cu13-libs": "11.4"}
    assert rtx == {"tensorrt-rtx-cu13": "1.7"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("1.7.1.116", (1, 7, 1, 116)), ("0.48.0rc1", (0, 48, 0)), ("unknown", ())],
)
def test_release_numbers(text, numbers):
    assert machine.release(text) == numbers


@pytest.mark.parametrize(
    "folder",
    [
        "models/damo--cv_resnet50_face-reconstruction/snapshots/v2.0.0-HRN",
        "models/iic/cv_resnet50_face-reconstruction",
        "hub/damo/cv_resnet50_face-reconstruction",
    ],
)
def test_a_cached_model_is_found_in_each_layout_once_its_weights_are_there(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    assert machine.cached_models(tmp_path) == ()  # a download that stopped leaves such a folder
    (tmp_path / folder / "pytorch_model.pt").touch()
    assert machine.cached_models(tmp_path) == (str(tmp_path / folder),)


@pytest.mark.parametrize("place", ["tensorrt", "tensorrt_bindings"])
def test_an_unpacked_tensorrt_states_its_version_itself(tmp_path, place):
    (tmp_path / "tensorrt").mkdir()
    (tmp_path / "tensorrt" / "__init__.py").write_text("import ctypes\n")
    assert machine.stated_version(tmp_path / "tensorrt") is None
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "__init__.py").write_text('import ctypes\n\n__version__ = "8.6.0"\n')
    assert machine.stated_version(tmp_path / "tensorrt") == "8.6.0"


def test_what_tensorrt_rtx_states_is_what_its_package_is():
    bindings = pytest.importorskip("tensorrt_rtx_bindings", reason="the extra rtx is not installed")
    stated = machine.stated_version(Path(bindings.__file__).parents[1] / "tensorrt_rtx")
    assert stated == bindings.__version__
