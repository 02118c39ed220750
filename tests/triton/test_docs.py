"""The client of docs/triton.md, against a server that speaks Triton's protocol by tritonclient's own stubs.

Triton itself is not here. What stands in for it computes by ONNX Runtime; names, shapes, types and the way that tensors
travel are those of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from PIL import Image
from tests.tiny import crops, run, write_tiny
from tritonclient.grpc import InferenceServerClient, model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import triton_to_np_dtype

from face3d_trt.records import Manifest, manifest_path
from face3d_trt.triton.config import model_config
from face3d_trt.triton.options import TritonOptions

if TYPE_CHECKING:
    from tests.triton.conftest import MakePlan

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "triton.md"


class Double(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers for one model, and refuses what its configuration does not take."""

    def __init__(self, config: Any, onnx: Path) -> None:
        self.config, self.onnx = config, onnx

    def ModelMetadata(self, request, context):  # noqa: N802  the protocol's name
        (tensor,) = self.config.input
        kind = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
        inputs = [
            service_pb2.ModelMetadataResponse.TensorMetadata(name="input", datatype=kind, shape=[-1, *tensor.dims])
        ]
        return service_pb2.ModelMetadataResponse(name=request.name, inputs=inputs)

    def ModelInfer(self, request, context):  # noqa: N802
        (tensor,), (raw,) = request.inputs, request.raw_input_contents
        (taken,) = self.config.input
        batch, *dims = tensor.shape
        wrong = tensor.datatype != model_config_pb2.DataType.Name(taken.data_type).removeprefix("TYPE_")
        wrong |= not 1 <= batch <= self.config.max_batch_size
        wrong |= any(want not in (-1, has) for want, has in zip(taken.dims, dims, strict=True))
        if wrong:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unexpected input {list(tensor.shape)} {tensor.datatype}")
        pictures = np.frombuffer(raw, triton_to_np_dtype(tensor.datatype)).reshape(tensor.shape)
        if pictures.dtype == np.float32:
            pictures = np.rint(pictures.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
        coeffs = run(self.onnx, pictures)[0]
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        answer.outputs.add(name="coeffs", datatype="FP32", shape=coeffs.shape)
        answer.raw_output_contents.append(coeffs.astype("<f4").tobytes())
        return answer


@pytest.fixture(params=["float32", "uint8"])
def served(request: pytest.FixtureRequest, make: MakePlan, tmp_path: Path) -> Iterator[SimpleNamespace]:
    from google.protobuf import text_format

    plan = make(mesh=request.param == "uint8")
    options = TritonOptions(tmp_path, (plan,))
    text = model_config("face", Manifest.read(manifest_path(plan)), options).body
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    onnx = write_tiny(tmp_path / "tiny.onnx", layout=request.param)
    unlimited = [("grpc.max_receive_message_length", -1)]  # gRPC's 4 MiB are too few for a batch of float32
    server = grpc.server(ThreadPoolExecutor(1), options=unlimited)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Double(config, onnx), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield SimpleNamespace(client=client, onnx=onnx, uint8=request.param == "uint8", most=config.max_batch_size)
    server.stop(0).wait()


def test_the_client_gets_the_coefficients_of_crops(served, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "client"}
    exec(compile(code, "docs/triton.md", "exec"), names)
    pictures = crops(served.most)
    paths = [tmp_path / f"{index}.png" for index in range(served.most)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    (taken,) = served.client.get_model_metadata("face").inputs
    assert (taken.datatype == "UINT8") is served.uint8
    faces = names["read"](paths, uint8=served.uint8)
    found = names["coefficients"](served.client, faces)
    assert found.shape == (served.most, 257)
    assert np.allclose(found, run(served.onnx, pictures)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="unexpected input"):
        names["coefficients"](served.client, np.concatenate([faces, faces]))
