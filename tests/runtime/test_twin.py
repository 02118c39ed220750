"""The twin against the same tests that the engine has to pass, on the same network and profiles, given as ONNX."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.engine_cases import (  # noqa: F401
    test_a_billion_rows_that_are_one_are_refused_at_once,
    test_a_callback_may_close_the_engine,
    test_a_part_of_a_pinned_array_is_its_own_batch,
    test_callbacks_of_futures_may_use_the_engine,
    test_close_can_be_called_twice_and_closed_engines_say_so,
    test_close_waits_for_what_is_in_flight,
    test_every_batch_gives_its_rows,
    test_images_may_be_overwritten_once_submit_returns,
    test_images_with_any_strides_are_taken,
    test_map_keeps_the_order,
    test_map_pulls_no_more_than_there_is_room_for,
    test_numbers_that_are_none_are_named,
    test_one_size_is_warmed_up_like_some,
    test_only_asked_outputs_come_and_in_the_order_asked_for,
    test_picture_sizes_in_any_order_give_their_rows,
    test_pinned_arrays_are_read_where_they_lie,
    test_results_are_written_into_out,
    test_submitted_results_are_arrays_of_their_own,
    test_threads_that_wait_for_room_hear_of_the_close,
    test_threads_with_changing_batches_get_their_own_rows,
    test_threads_with_pieces_do_not_wait_for_each_other_for_ever,
    test_two_engines_work_side_by_side,
    test_unknown_options_are_named,
    test_what_it_does_not_take_is_named,
)
from tests.runtime.network import INPUTS, MATRICES, MODEL, OUTPUTS, PROFILES

from face3d_trt import OrtEngine
from face3d_trt.records import Manifest, manifest_path


def write_onnx(path: Path) -> bytes:
    """The network of network.py."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(matrix, name) for name, matrix in MATRICES.items()]
    weights += [numpy_helper.from_array(np.array([-1, 20, 3]), "shape")]
    nodes = [
        helper.make_node("ReduceMean", ["input"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["means", "coeffs.matrix"], ["coeffs"]),
        helper.make_node("MatMul", ["means", "vertex.matrix"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["vertex"]),
    ]
    for tensor in weights[:2]:
        tensor.name += ".matrix"
    images = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    results = [helper.make_tensor_value_info(o.name, TensorProto.FLOAT, ["batch", *o.shape[1:]]) for o in OUTPUTS]
    graph = helper.make_graph(nodes, "network", [images], results, initializer=weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.metadata_props.add(key="face3d", value=MODEL.model_dump_json())
    onnx.save(model, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that nothing can run, whose manifest names the network's ONNX."""
    folder = tmp_path_factory.mktemp("twin")
    data, graph = b"ftrt: of a TensorRT that is not here", write_onnx(folder / "network.onnx")
    plan = folder / "network.plan"
    plan.write_bytes(data)
    digest = hashlib.sha256(graph).hexdigest()
    facts: dict[str, Any] = {
        "flavour": "tensorrt",
        "flavour_version": "8.6.0",
        "gpu": None,
        "targets": (),
        "profiles": PROFILES,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "precision": "fp32",
        "layers": {},
        "workspace_bytes": None,
        "onnx": "network.onnx",
        "onnx_sha256": digest,
        "typed": "network.onnx",
        "typed_sha256": digest,
        "calibration": None,
        "plan_sha256": hashlib.sha256(data).hexdigest(),
        "plan_bytes": len(data),
        "fingerprint": "",
        "model": MODEL,
        "command": "face3d-trt build",
        "created": "",
        "seconds": 0.0,
        "version": "test",
    }
    Manifest(**facts).write(manifest_path(plan))
    return plan


class Parts:
    """As engine_parts.Parts: what opens engines, and closes them."""

    def __init__(self, plan: Path) -> None:
        self.plan = plan
        self.engines: list[OrtEngine] = []

    def open(self, **_: Any) -> OrtEngine:
        self.engines.append(OrtEngine(self.plan, threads=1))
        return self.engines[-1]


@pytest.fixture
def parts(plan: Path) -> Iterator[Parts]:
    made = Parts(plan)
    yield made
    for engine in made.engines:
        engine.close()
