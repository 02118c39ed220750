"""Look at the activations of a float32 network while it runs on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

_SILENT = 4  # ONNX Runtime: fatal only


class Probe:
    """Runs `network` and gives the values of `tensors`, which need not be its outputs.

    Args:
        network: float32, without Q/DQ pairs: ONNX Runtime's optimizer would move those.
        tensors: Names of activations or outputs.
    """

    def __init__(self, network: ModelProto, tensors: Iterable[str]) -> None:
        import onnxruntime

        self.tensors = list(dict.fromkeys(tensors))
        options: Any = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT
        self._session: Any = onnxruntime.InferenceSession(
            exposed(network, self.tensors).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Values by name; what is fed can be asked for too."""
        made = [name for name in self.tensors if name not in feed]
        values = self._session.run(made, dict(feed)) if made else []
        return {**dict(zip(made, values, strict=True)), **{name: feed[name] for name in self.tensors if name in feed}}


def exposed(network: ModelProto, tensors: Iterable[str]) -> ModelProto:
    """A copy of `network` that has `tensors` among its outputs."""
    from onnx import TensorProto, helper

    copy = type(network)()
    copy.CopyFrom(network)
    there = {value.name for value in (*copy.graph.output, *copy.graph.input)}
    copy.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in tensors if name not in there
    )
    return copy
