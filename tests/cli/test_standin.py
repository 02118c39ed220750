import json
import subprocess
import sys

import pytest
import typer

from face3d_trt.cli.standin import duration


def run(*arguments):
    command = [sys.executable, "-m", "face3d_trt", "standin", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["10", "m", "-5s", "10 minutes"])
def test_what_is_no_duration_says_how_to_write_one(text):
    with pytest.raises(typer.BadParameter, match="10m"):
        duration(text)


def test_seeded_weights_say_so_and_leave_the_shipped_ones(tmp_path):
    result = run(tmp_path / "model", "--seeded")
    assert result.returncode == 0, result.stderr
    assert "weights: seeded" in result.stdout
    facts = json.loads((tmp_path / "model/configuration.json").read_text())
    assert facts["face3d_trt"]["weights"] == "seeded"
    again = run(tmp_path / "model")
    assert "weights: learned" in again.stdout
    assert "reused" not in again.stderr


def test_seeded_and_taught_exclude_each_other(tmp_path):
    result = run(tmp_path / "model", "--seeded", "--train", "10s")
    assert result.returncode == 2
    assert "--seeded or --train" in result.stderr
    assert not (tmp_path / "model").exists()
