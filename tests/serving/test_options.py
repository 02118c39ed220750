"""Settings: what is refused before anything starts, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from face3d_trt.cli import app
from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.serving.options import ServeOptions


def test_all_settings_are_printed_and_nothing_starts():
    line = "serve x.plan --emit-config --max-wait 2ms --max-body 1MiB --replicas 2 --fronts 2 --deadline 1m"
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["max_wait_s"], told["max_body"], told["replicas"], told["deadline_s"]) == (0.002, 1 << 20, 2, 60)
    assert (told["fronts"], told["max_queue"]) == (2, 1024)
    assert set(told) == set(ServeOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"port": 70000}, "--port"),
        ({"max_batch": 0}, "--max-batch"),
        ({"deadline_s": 0.0}, "--deadline"),
        ({"max_queue": 100}, "--max-crops"),
        ({"max_queue": 300, "fronts": 2}, "--fronts"),
        ({"max_pixels": 10**12}, "--max-pixels"),
    ],
)
def test_what_cannot_work_is_refused(options, named):
    with pytest.raises(UsageError) as told:
        ServeOptions(Path("x.plan"), **options)
    assert named in str(told.value)


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a token", "ä".encode() * 20, None])
def test_a_file_without_a_token_is_refused(content, tmp_path: Path):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Face3DError) as told:
        ServeOptions(Path("x.plan"), token_file=path).token()
    assert "token" in str(told.value)
