"""The OpenAPI document says what the server does: schemathesis, with a small budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.serving.served import Served

HOOKS = Path(__file__).with_name("bodies.py")


def test_schemathesis_finds_nothing(server: Served, tmp_path: Path):
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
        *("--max-examples", "5", "--seed", "7", "--checks", "all", "--no-color", "--request-timeout", "60"),
        *("--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": str(HOOKS)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.ask("GET", "/readyz").status == 200
