"""The network's own error and its own inconsistency, in the terms of `compare`, and beside them those of typed graphs.

    python tools/own_error.py model/ engines/face3d_resnet50.fp16.onnx engines/face3d_resnet50.int8.onnx

Prints the tables of docs/accuracy.md. On renders of random faces of the model directory's morphable model:

* own error: the float32 network against the true coefficients;
* second photo: the same moment (face, pose, expression, light) taken twice, with another background, exposure, blur and
  noise: the float32 network against itself;
* other photo: the same person with another pose, expression and light: the float32 network against itself, identity and
  albedo alone, since the rest did change;
* each graph: against the float32 network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from face3d_trt.decode import Decoder
from face3d_trt.model.load import load_model
from face3d_trt.model.random_faces import photograph, random_backgrounds, random_coeffs
from face3d_trt.model.render import Renderer
from face3d_trt.names import GROUPS, INPUT
from face3d_trt.parity.meaning import MEASURES, Meter, find_similarity
from face3d_trt.parity.runners import quiet, typed_runner

AT_ONCE = 16
OF_THE_PERSON = ("shape_mean", "shape_p99", "shape_max", "albedo_psnr", "albedo_ssim")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("graphs", type=Path, nargs="*", help="typed ONNX files")
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--seed", type=int, default=4711)
    chosen = parser.parse_args()
    model = load_model(chosen.model)
    assert model.morphable is not None
    meter = Meter(Decoder.of(model.morphable), find_similarity())
    camera = Camera(model.network, Renderer(model.morphable), chosen.seed)
    pictures, truth, found = unseen(camera, chosen.pictures)
    columns = own_columns(meter, camera, truth, found)
    for path in chosen.graphs:
        columns[path.name] = meter.measure(found, run(path, pictures))
    width, height, depth = meter.decoder.head_mm
    print(f"{chosen.pictures} renders, mean face {width:.0f} x {height:.0f} x {depth:.0f} mm. Median / 95 % / worst.\n")
    print("| |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for name, measure in MEASURES.items():
        cells = [cell(name, column[name]) if name in column else "" for column in columns.values()]
        if any(cells):
            print(f"| {measure.label} |", " | ".join(cells), "|")


class Camera:
    """Photographs random faces, and asks the network what it sees.

    Args:
        network: float32.
        renderer: Of the network's morphable model.
        seed: Of all that is random.
        device: Where all of it is done; the same seed gives other pictures on another kind of device.
    """

    def __init__(self, network: torch.nn.Module, renderer: Renderer, seed: int, device: str = "cpu") -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self._network = network.to(device)
        self._renderer = renderer.to(device)

    @torch.inference_mode()
    def take(self, coeffs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Pictures (N, 3, 224, 224) float32 of whole grey levels, and the network's coefficients (N, 257)."""
        pictures, found = [], []
        for part in coeffs.split(AT_ONCE):
            drawn = self._renderer(part, random_backgrounds(len(part), self.generator))
            taken = (photograph(drawn, self.generator) * 255).round() / 255
            pictures.append(taken.cpu().numpy())
            found.append(self._network(taken).cpu().numpy())
            print(".", end="", file=sys.stderr, flush=True)
        return np.concatenate(pictures), np.concatenate(found)


def unseen(camera: Camera, count: int) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """Pictures (N, 3, 224, 224) of random faces, their true coefficients (N, 257), and those that the network finds."""
    truth = random_coeffs(count, camera.generator)
    pictures, found = camera.take(truth)
    return pictures, truth, found


def own_columns(
    meter: Meter, camera: Camera, truth: torch.Tensor, found: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """By what is compared and measure, a value for each picture; see above.

    Args:
        meter: Of the morphable model.
        camera: Which has taken the pictures.
        truth: (N, 257).
        found: What the network finds in these pictures, (N, 257).
    """
    columns = {
        "own error": meter.measure(truth.cpu().numpy(), found),
        "second photo": meter.measure(found, camera.take(truth)[1]),
    }
    changed = random_coeffs(len(truth), camera.generator)
    for group in ("identity", "texture"):
        changed[:, GROUPS[group]] = truth[:, GROUPS[group]]
    other = meter.measure(person(found), person(camera.take(changed)[1]))
    columns["other photo"] = {name: other[name] for name in OF_THE_PERSON if name in other}
    return columns


def person(coeffs: np.ndarray) -> np.ndarray:
    """What stays of a person from photo to photo: identity and texture."""
    kept = np.zeros_like(coeffs)
    for group in ("identity", "texture"):
        kept[:, GROUPS[group]] = coeffs[:, GROUPS[group]]
    return kept


def run(path: Path, pictures: np.ndarray) -> np.ndarray:
    """Coefficients of a typed graph, as `compare` runs it."""
    starts = range(0, len(pictures), AT_ONCE)
    with quiet(), typed_runner(path) as runner:
        answers = [runner.infer({INPUT: pictures[start : start + AT_ONCE]})["coeffs"].copy() for start in starts]
    return np.concatenate(answers)


def of_all(name: str, values: np.ndarray) -> tuple[float, float, float]:
    """Median, what 95 % keep, worst."""
    shares = (50, 95, 100) if MEASURES[name].better == "low" else (50, 5, 0)
    median, most, worst = (float(np.percentile(values, share)) for share in shares)
    return median, most, worst


def cell(name: str, values: np.ndarray) -> str:
    """`of_all` as text."""
    return shown(name, of_all(name, values))


def shown(name: str, values: Iterable[float]) -> str:
    """Figures of one measure, with as many digits as it has."""
    digits = 5 if not MEASURES[name].unit else 3 if MEASURES[name].better == "low" else 1
    return " / ".join(f"{value:.{digits}f}" for value in values)


if __name__ == "__main__":
    main()
