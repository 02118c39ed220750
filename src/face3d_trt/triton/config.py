"""A manifest and options as the configuration of a Triton model.

https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import PlanError, UsageError
from face3d_trt.triton.pbtxt import Name, pbtxt
from face3d_trt.triton.shapes import ANY, input_dims, largest_batch, preferred_batches

if TYPE_CHECKING:
    from face3d_trt.records import Manifest, ProfileRecord, TensorRecord
    from face3d_trt.triton.options import Group, TritonOptions

MODEL_FILE = "model.plan"
# https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html#datatypes
_TYPES = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "bool": "TYPE_BOOL",
}
_SEAL = re.compile(r"(?:^#.*\n)*^# sha256 of what follows: ([0-9a-f]{64})\n", re.MULTILINE)
_MICRO = 1_000_000


@dataclass(frozen=True)
class Config:
    """A model's configuration.

    Args:
        body: As text, without the comments above it.
        max_batch: Most pictures of a batch.
        profiles: Indices of the optimization profiles that are used.
        beyond: The largest batch of a profile, where Triton cannot be given batches as large as that; else None.
    """

    body: str
    max_batch: int
    profiles: tuple[int, ...]
    beyond: int | None

    def text(self, comment: str) -> str:
        """The file: a comment, a seal by which an edit shows, and the body."""
        lines = "".join(f"# {line}\n" for line in comment.splitlines())
        return f"{lines}# sha256 of what follows: {_digest(self.body)}\n{self.body}"


def body_of(text: str) -> tuple[str, bool]:
    """A file's configuration without what `text` put above it, and whether it is as `text` wrote it."""
    seal = _SEAL.match(text)
    if seal is None:
        return text, False
    body = text[seal.end() :]
    return body, seal[1] == _digest(body)


def model_config(name: str, manifest: Manifest, options: TritonOptions) -> Config:
    """Configure a model.

    Args:
        name: Of the model, and of its folder.
        manifest: Of its plan.
        options: See TritonOptions.

    Raises:
        UsageError: Options and the plan's profiles do not go together.
        PlanError: The plan has a fixed batch, or a type that Triton does not know.
    """
    groups = [_profiles_of(group, manifest) for group in options.groups]
    reach = min(largest_batch([manifest.profiles[index] for index in indices]) for indices in groups)
    largest = _largest(reach, manifest, options)
    groups = [tuple(i for i in indices if manifest.profiles[i].min[0] <= largest) for indices in groups]
    used = tuple(sorted({index for indices in groups for index in indices}))
    profiles = [manifest.profiles[index] for index in used]
    for tensor in (*manifest.inputs, *manifest.outputs):
        if tensor.shape[0] != ANY:
            raise PlanError(
                f"{tensor.name} has a fixed batch of {tensor.shape[0]}", allowed="a plan that takes any batch"
            )
    dims = {each.name: input_dims(each.shape, profiles) for each in manifest.inputs}
    message: dict[str, Any] = {
        "name": name,
        "platform": "tensorrt_plan",
        "default_model_filename": MODEL_FILE,
        "max_batch_size": largest,
        "input": [_tensor(each, dims[each.name]) for each in manifest.inputs],
        "output": [_tensor(each, each.shape[1:]) for each in manifest.outputs],
        "version_policy": _policy(options),
        "instance_group": [_group(*each) for each in zip(options.groups, groups, strict=True)],
        "dynamic_batching": _batching(profiles, largest, options),
        "response_cache": {"enable": False},
    }
    if options.warm_up:
        message["model_warmup"] = [
            _warm_up(index, manifest.inputs, manifest.profiles[index], largest) for index in used
        ]
    most = max(manifest.profiles[index].max[0] for indices in groups for index in indices)
    beyond = most if options.max_batch is None and most > largest else None
    return Config(pbtxt(message), largest, used, beyond)


def _profiles_of(group: Group, manifest: Manifest) -> tuple[int, ...]:
    count = len(manifest.profiles)
    if outside := [index for index in group.profiles if index >= count]:
        raise UsageError(
            f"there is no profile {outside[0]}", allowed=f"0 to {count - 1}: the plan has {count}" if count > 1 else "0"
        )
    return group.profiles or tuple(range(count))


def _largest(reach: int, manifest: Manifest, options: TritonOptions) -> int:
    if reach == 0:
        least = min(each.min[0] for each in manifest.profiles)
        raise UsageError(
            f"at some size of picture no profile takes a batch of one (the smallest batch of all is {least}), "
            "and Triton sends what has come",
            allowed="profiles, or a choice of them, that take every batch from 1 on at each of their sizes",
            run="face3d-trt build --profile 'min=1x3x224x224,opt=8x3x224x224,max=32x3x224x224'    # and its options",
        )
    if options.max_batch is not None and options.max_batch > reach:
        raise UsageError(
            f"--max-batch {options.max_batch}: some batch up to that fits no profile at every size",
            allowed=f"1 to {reach}",
        )
    return options.max_batch or reach


def _tensor(tensor: TensorRecord, dims: tuple[int, ...]) -> dict[str, Any]:
    if tensor.dtype not in _TYPES:
        raise PlanError(
            f"{tensor.name} is of type {tensor.dtype}, which Triton does not know", allowed=", ".join(_TYPES)
        )
    return {"name": tensor.name, "data_type": Name(_TYPES[tensor.dtype]), "dims": dims}


def _policy(options: TritonOptions) -> dict[str, Any]:
    if options.serve_versions is None:
        return {"all": {}}
    return {"latest": {"num_versions": options.serve_versions}}


def _group(group: Group, profiles: tuple[int, ...]) -> dict[str, Any]:
    gpus = {"gpus": group.gpus} if group.gpus else {}
    return {"count": group.count, "kind": Name("KIND_GPU"), **gpus, "profile": tuple(map(str, profiles))}


def _batching(profiles: list[ProfileRecord], largest: int, options: TritonOptions) -> dict[str, Any]:
    preferred = preferred_batches(profiles, largest) if options.preferred is None else options.preferred
    if wrong := [size for size in preferred if not 1 <= size <= largest]:
        raise UsageError(f"--preferred {wrong[0]}", allowed=f"1 to {largest}, the largest batch")
    return {
        **({"preferred_batch_size": preferred} if preferred else {}),
        "max_queue_delay_microseconds": round(options.max_wait_s * _MICRO) if largest > 1 else 0,
        "default_queue_policy": {
            "timeout_action": Name("REJECT"),
            "default_timeout_microseconds": round(options.deadline_s * _MICRO),
            "allow_timeout_override": True,
            "max_queue_size": options.max_queue,
        },
    }


def _warm_up(index: int, inputs: tuple[TensorRecord, ...], profile: ProfileRecord, largest: int) -> dict[str, Any]:
    """A request of the usual shape of a profile. Profiles are the first input's, and there is one input."""
    return {
        "name": f"profile {index}",
        "batch_size": min(profile.opt[0], largest),
        "inputs": [
            {
                "key": each.name,
                "value": {"data_type": Name(_TYPES[each.dtype]), "dims": profile.opt[1:], "zero_data": True},
            }
            for each in inputs
        ],
    }


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
