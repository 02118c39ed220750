import itertools
import math

import pytest
import torch

from face3d_trt.errors import UsageError
from face3d_trt.model.load import load_model
from face3d_trt.model.network import ReconNet
from face3d_trt.model.quality import compare_coefficients, measure_quality
from face3d_trt.model.random_faces import random_coeffs
from face3d_trt.model.train import TEST_SEED, TrainOptions, schedule, train
from face3d_trt.names import GROUPS


@pytest.fixture(scope="module")
def model(standin):
    return load_model(standin)


def test_the_shipped_weights_read_unseen_renders(model):
    """A small sample of the model card's figures; the card has 1,024 renders."""
    quality = measure_quality(model.network, model.morphable, 64, TEST_SEED + 7)
    assert quality.explained["angle"] > 0.98
    assert quality.explained["translation"] > 0.9
    assert quality.explained["lighting, first band"] > 0.8
    assert all(quality.explained[f"{g}, ten leading"] > 0.6 for g in ("identity", "expression", "texture"))
    assert quality.shape_mm < 0.6 * quality.mean_face_mm


def test_quality_of_known_answers(model):
    truth = random_coeffs(200, torch.Generator().manual_seed(1))
    perfect = compare_coefficients(truth, truth, model.morphable)
    assert set(perfect.explained.values()) == {1.0}
    assert perfect.vertex_mm == 0
    mean = compare_coefficients(truth.mean(0).expand_as(truth), truth, model.morphable)
    assert all(abs(v) < 1e-4 for v in mean.explained.values())
    moved = truth.clone()
    moved[:, GROUPS["translation"].start] += 0.05
    assert compare_coefficients(moved, truth, model.morphable).vertex_mm == pytest.approx(5.0, rel=1e-3)


def test_the_learning_rate_rises_and_falls_to_nothing():
    rates = [schedule(done / 100) for done in range(101)]
    assert rates[0] < 0.01
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates[100] == pytest.approx(0, abs=1e-6)
    assert all(a >= b for a, b in itertools.pairwise(rates[4:]))


def test_an_interrupted_run_goes_on_with_the_pictures_it_would_have_seen(model, tmp_path):
    """Stopped after the first step and restored, the second step ends with the very loss of an uninterrupted run."""

    class StopAt:
        def __init__(self, step):
            self.step, self.calls = step, 0

        def stage(self, text):
            pass

        warn = stage

        def progress(self, text, done, total):
            self.calls += 1
            if self.calls == self.step:
                raise KeyboardInterrupt

    def run(checkpoint, stop):
        torch.manual_seed(0)
        options = TrainOptions(seconds=1e9, batch=2, checkpoint=tmp_path / checkpoint)
        with pytest.raises(KeyboardInterrupt):
            train(ReconNet(4), model.morphable, options, StopAt(stop))
        return torch.load(tmp_path / checkpoint, weights_only=True)

    run("a.pt", 1)
    resumed, straight = run("a.pt", 1), run("b.pt", 2)
    assert resumed["progress"]["step"] == straight["progress"]["step"] == 2
    assert math.isclose(resumed["progress"]["curve"][1][1], straight["progress"]["curve"][1][1], rel_tol=1e-4)
    with pytest.raises(UsageError, match="other options"):
        train(ReconNet(8), model.morphable, TrainOptions(seconds=1e9, batch=2, checkpoint=tmp_path / "a.pt"))
