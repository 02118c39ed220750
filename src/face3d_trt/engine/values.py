"""What goes into a build and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.engine.network import tensor_record

if TYPE_CHECKING:
    from face3d_trt.engine import api
    from face3d_trt.engine.messages import Messages
    from face3d_trt.engine.profile import Profile
    from face3d_trt.graph.counts import Tally
    from face3d_trt.records import Precision, TensorRecord


@dataclass(frozen=True)
class Recipe:
    """What a plan is built with, apart from the graph.

    Args:
        precision: Asked for.
        profiles: At least one.
        workspace: Limit of the scratch memory in bytes; None leaves it to TensorRT.
        targets: Compute capabilities, for a flavour that has `targets`.
        optimization_level: 0 to 5: how long TensorRT looks for faster kernels; None is its default, 3.
        hardware_compat: Build for every GPU of Ampere and newer, not for this one alone.
        version_compat: Build for later TensorRTs too.
        pinned: Nodes that have to compute in float32, where flags decide over the types of the rest.
    """

    precision: Precision
    profiles: tuple[Profile, ...]
    workspace: int | None = None
    targets: tuple[str, ...] = ()
    optimization_level: int | None = None
    hardware_compat: bool = False
    version_compat: bool = False
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """What a build gives.

    Args:
        plan: Raw.
        timing_cache: Where one was asked for.
        tally: In which precision the layers compute: of the network as parsed, where its types bind TensorRT, else of
            the finished engine.
        inspected: Of the finished engine, where a GPU could load it. Fused layers count once there, and layers without
            weights not at all.
        inspection: The engine inspector's JSON, likewise, at the usual shape of the first profile.
    """

    plan: bytes
    timing_cache: bytes | None
    tally: Tally
    inspected: Tally | None = None
    inspection: str | None = None


@dataclass(frozen=True)
class Parsed:
    """A network in TensorRT's hands. It lives as long as the builder and the parser that it came from."""

    network: api.Network
    builder: api.Builder
    parser: api.Parser
    messages: Messages

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """Inputs, -1 for a dynamic dimension."""
        return tuple(tensor_record(self.network.get_input(index)) for index in range(self.network.num_inputs))

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """Outputs, likewise."""
        return tuple(tensor_record(self.network.get_output(index)) for index in range(self.network.num_outputs))
