"""What the three servers that docs/serving.md compares have in common: the engine on bytes, and their arguments.

python tools/serving_choice/bare.py PLAN --port 8080          # FastAPI on one uvicorn
python tools/serving_choice/ray_serve.py PLAN --port 8080     # pip install 'ray[serve]'
python tools/serving_choice/lit.py PLAN --port 8080           # pip install litserve

PLAN is a plan or ONNX file with uint8 input; with that of light.py only the server is left to be measured, by
tools/load.py. All three take (batch, 224, 224, 3) uint8 RGB at POST /v1/coeffs, answer (batch, 257) float32, gather
up to 32 requests or 5 ms, and run them in one process.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

SIDE, MAX_BATCH, MAX_WAIT_S = 224, 32, 0.005


class Model:
    """The engine on the bodies of requests."""

    def __init__(self, plan: str) -> None:
        from face3d_trt import open_engine

        self.engine: Any = open_engine(plan)

    def run(self, bodies: list[bytes]) -> list[bytes]:
        """Crops of several requests at once."""
        crops = [np.frombuffer(body, np.uint8).reshape(-1, SIDE, SIDE, 3) for body in bodies]
        coeffs = self.engine(np.concatenate(crops), outputs=["coeffs"])["coeffs"]
        ends = np.cumsum([len(each) for each in crops])[:-1]
        return [part.tobytes() for part in np.split(coeffs, ends)]


def arguments() -> argparse.Namespace:
    """`plan` and `port`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--port", type=int, default=8080)
    return parser.parse_args()
