"""Words of the command line, what is there of a model, and what follows for this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiny import write_tiny

from face3d_trt.bench.choose import _cases, choose
from face3d_trt.bench.error import relative_error
from face3d_trt.bench.options import BenchOptions, parse_backends, parse_batches, parse_device, parse_size
from face3d_trt.bench.registry import BACKENDS
from face3d_trt.bench.subject import Subject, find_subject, read_facts
from face3d_trt.errors import GraphError, MissingError, UsageError
from face3d_trt.names import COEFFICIENTS, GROUPS


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx", layout="uint8")


@pytest.fixture
def subject(onnx: Path, tmp_path: Path) -> Subject:
    return find_subject(BenchOptions(onnx=onnx, device="cpu"))


def test_backends_come_in_lists_or_one_by_one() -> None:
    assert parse_backends(["trt, ort-fp32", "trt", "torch-compile:max-autotune"]) == (
        "trt",
        "ort-fp32",
        "torch-compile:max-autotune",
    )
    with pytest.raises(UsageError, match="torch-fp8"):
        parse_backends(["torch-fp8"])


def test_batches_are_sorted_and_each_is_there_once() -> None:
    assert parse_batches("8, 1,8,2") == (1, 2, 8)


@pytest.mark.parametrize("text", ["", "0", "1,x", "1;2", "-1", "1000000"])
def test_batches_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--batches"):
        parse_batches(text)


def test_sizes_and_devices() -> None:
    assert (parse_size("224"), parse_size("160x192")) == ((224, 224), (160, 192))
    assert (parse_device(None), parse_device("cpu"), parse_device("1")) == (None, "cpu", 1)
    for parse, text in ((parse_size, "20"), (parse_size, "ax3"), (parse_device, "cuda"), (parse_device, "-1")):
        with pytest.raises(UsageError):
            parse(text)


def test_the_facts_in_a_graph_are_read_without_onnx(onnx: Path, tmp_path: Path) -> None:
    from onnx import load

    written = {each.key: each.value for each in load(onnx).metadata_props}["face3d"]
    assert read_facts(onnx).model_dump_json() == written
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(onnx.read_bytes()[:-40])
    for path in (broken, tmp_path / "none.onnx"):
        with pytest.raises(GraphError):
            read_facts(path)


def test_a_model_and_a_graph_of_two_checkpoints_do_not_belong_together(onnx: Path, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.pt").write_bytes(b"another")
    with pytest.raises(UsageError, match="of another model"):
        find_subject(BenchOptions(onnx=onnx, model=str(tmp_path), device="cpu"))


def test_cases_take_what_the_graph_takes(subject: Subject, tmp_path: Path) -> None:
    options = BenchOptions(backends=("ort-fp32",), transfers=True, batches=(1, 4))
    (planned,) = choose(options, subject, None, tmp_path)
    assert [(case.batch, case.input, case.mode, case.shape) for case in planned.cases] == [
        (1, "uint8", "engine", (1, 224, 224, 3)),  # without a GPU there is nothing to transfer
        (4, "uint8", "engine", (4, 224, 224, 3)),
    ]


def test_host_to_host_may_be_asked_for_at_some_batches(subject: Subject) -> None:
    options = BenchOptions(batches=(1, 2, 8), transfers_at=(1, 16))
    cases = _cases(options, None, subject, 0)
    assert [(case.mode, case.batch) for case in cases] == [
        ("engine", 1),
        ("engine", 2),
        ("engine", 8),
        ("host", 1),
        ("host", 16),
    ]


@pytest.mark.parametrize(
    ("batches", "first"), [((1,), [1]), ((1, 8), [1, 8]), ((1, 2, 4, 8, 16), [1, 16, 4]), ((1, 3, 9, 27), [1, 27, 9])]
)
def test_with_a_budget_what_tells_most_comes_first(
    batches: tuple[int, ...], first: list[int], subject: Subject
) -> None:
    plain = BenchOptions(batches=batches, transfers=True)
    hurried = _cases(replace(plain, budget_s=60), None, subject, 0)
    assert sorted(map(str, hurried)) == sorted(map(str, _cases(plain, None, subject, 0)))
    told = [(case.mode, case.batch) for case in hurried[: 2 * len(first)]]
    assert told == [("engine", batch) for batch in first] + [("host", batch) for batch in first]


class Warned:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


def test_what_cannot_run_is_left_out_with_its_reason(subject: Subject, tmp_path: Path) -> None:
    heard = Warned()
    planned = choose(BenchOptions(), subject, None, tmp_path, heard)  # type: ignore[arg-type]
    assert [each.backend for each in planned] == ["ort-fp32", "ort-int8"]  # no model directory is here
    assert [text.partition(" is left out")[0] for text in heard.texts] == ["torch-fp32"]
    assert "--model" in str(_refused("torch-fp32", subject, None, tmp_path).allowed)


def test_figures_of_a_cpu_do_not_come_beside_those_of_a_gpu(subject: Subject, tmp_path: Path) -> None:
    from onnxruntime import get_available_providers

    if "CUDAExecutionProvider" in get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    error = _refused("ort-fp32", subject, 0, tmp_path)
    assert isinstance(error, MissingError)
    assert "--device cpu" in str(error.run)


@pytest.mark.parametrize("device", [None, 0])
@pytest.mark.parametrize("name", [name for name in BACKENDS if not name.startswith("ort-")])
def test_without_its_files_every_backend_says_which(
    name: str, device: int | None, subject: Subject, tmp_path: Path
) -> None:
    assert name in _refused(name, subject, device, tmp_path).problem


def _refused(name: str, subject: Subject, device: int | None, folder: Path) -> UsageError | MissingError:
    options = replace(BenchOptions(), backends=(name,))
    with pytest.raises((UsageError, MissingError)) as raised:
        choose(options, subject, device, folder)
    return raised.value


def test_the_error_is_that_of_the_worst_group_in_shares_of_its_variation() -> None:
    random = np.random.default_rng(0)
    reference = random.normal(0, 1, (50, COEFFICIENTS)).astype(np.float32) + 5  # the offset is no variation
    assert relative_error(reference, reference.copy()) == 0
    wrong = reference.copy()
    wrong[:, GROUPS["angle"]] += 0.3
    assert relative_error(reference, wrong) == pytest.approx(0.3, rel=0.1)
    wrong[3, 7] = np.nan
    assert relative_error(reference, wrong) == float("inf")
