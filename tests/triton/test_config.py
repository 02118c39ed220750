"""config.pbtxt, read with tritonclient's own messages and held against the plan's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tests.triton.conftest import MakePlan, batches, profile
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from face3d_trt.errors import Face3DError, UsageError
from face3d_trt.records import Manifest, ProfileRecord, manifest_path
from face3d_trt.triton.config import body_of, model_config
from face3d_trt.triton.options import Group, TritonOptions
from face3d_trt.triton.pbtxt import Name, pbtxt
from face3d_trt.triton.shapes import largest_batch

NUMPY = {"TYPE_FP32": "FP32", "TYPE_UINT8": "UINT8"}


def parsed(text: str) -> Any:
    """As Triton reads it: a field that ModelConfig has not is an error."""
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def configured(plan: Path, **options: Any) -> Any:
    manifest = Manifest.read(manifest_path(plan))
    return parsed(model_config("face", manifest, TritonOptions(Path("models"), (plan,), **options)).body)


def dtype(tensor: Any) -> str:
    import numpy as np

    return np.dtype(triton_to_np_dtype(NUMPY[model_config_pb2.DataType.Name(tensor.data_type)])).name


@pytest.mark.parametrize("mesh", [False, True])
def test_tensors_are_those_of_the_manifest(make: MakePlan, mesh):
    plan = make(mesh=mesh)
    config, manifest = configured(plan), Manifest.read(manifest_path(plan))
    assert (config.name, config.platform, config.default_model_filename) == ("face", "tensorrt_plan", "model.plan")
    for found, recorded in ((config.input, manifest.inputs), (config.output, manifest.outputs)):
        assert [(each.name, dtype(each), len(each.dims)) for each in found] == [
            (each.name, each.dtype, len(each.shape) - 1) for each in recorded
        ]
    assert [list(each.dims) for each in config.output] == [list(each.shape[1:]) for each in manifest.outputs]
    assert list(config.input[0].dims) == ([-1, -1, 3] if mesh else [3, 224, 224])  # 64 to 224 px; 224 px
    assert config.max_batch_size == max(each.max[0] for each in manifest.profiles) == (4 if mesh else 8)


def test_a_group_has_every_profile_and_each_is_run_at_its_usual_shape_before_the_model_is_ready(make: MakePlan):
    plan = make()
    config, manifest = configured(plan), Manifest.read(manifest_path(plan))
    (group,) = config.instance_group
    assert (group.count, list(group.gpus), list(group.profile)) == (1, [], ["0", "1"])
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    shapes = [
        (each.batch_size, *each.inputs["input"].dims) for each in config.model_warmup if each.inputs["input"].zero_data
    ]
    assert shapes == [each.opt for each in manifest.profiles]
    assert {each.inputs["input"].data_type for each in config.model_warmup} == {config.input[0].data_type}
    assert not configured(plan, warm_up=False).model_warmup


def test_batching_queue_versions_and_cache(make: MakePlan):
    config = configured(make(), max_wait_s=0.0021, deadline_s=1.5, max_queue=7, serve_versions=2)
    batching = config.dynamic_batching
    assert list(batching.preferred_batch_size) == [8]  # the optima are 1 and 8; a batch of one is nothing to prefer
    assert batching.max_queue_delay_microseconds == 2100
    policy = batching.default_queue_policy
    assert (policy.default_timeout_microseconds, policy.max_queue_size) == (1_500_000, 7)
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.REJECT
    assert policy.allow_timeout_override
    assert config.version_policy.latest.num_versions == 2
    assert configured(make(), serve_versions=None).version_policy.WhichOneof("policy_choice") == "all"
    assert config.HasField("response_cache")
    assert not config.response_cache.enable


def test_groups_choose_gpus_and_profiles(make: MakePlan):
    groups = (Group.parse("count=2,gpus=0+1"), Group.parse("profiles=0"))
    config = configured(make(), groups=groups)
    assert [(each.count, list(each.gpus), list(each.profile)) for each in config.instance_group] == [
        (2, [0, 1], ["0", "1"]),
        (1, [], ["0"]),
    ]
    assert config.max_batch_size == 4  # any group may be given any batch
    assert all(size <= 4 for size in config.dynamic_batching.preferred_batch_size)
    assert all(each.batch_size <= 4 for each in config.model_warmup)


def test_a_profile_that_no_batch_reaches_is_left_out(make: MakePlan):
    """Batches 3 to 7 fit nothing, so Triton may not form any above 2."""
    plan = make(profiles=(batches(1, 1, 2), batches(8, 16, 16)))
    config = configured(plan)
    assert config.max_batch_size == 2
    assert list(config.instance_group[0].profile) == ["0"]
    assert len(config.model_warmup) == 1


@pytest.mark.parametrize(
    ("profiles", "largest"),
    [
        ([batches(1, 8, 32)], 32),
        ([batches(1, 1, 4), batches(1, 256, 256)], 256),
        ([batches(4, 8, 16), batches(1, 1, 3)], 16),
        ([batches(1, 1, 4), batches(6, 8, 16)], 4),
        ([batches(2, 8, 16)], 0),
        ([batches(1, 8, 32), batches(1, 1, 4, side=512)], 4),  # 5 pictures of 512 px fit nothing
        ([batches(1, 8, 32), profile((1, 3, 224, 224), (1, 3, 224, 224), (4, 3, 512, 512))], 4),
        (
            [batches(1, 1, 4), profile((2, 3, 64, 64), (8, 3, 224, 224), (8, 3, 512, 512))],
            0,
        ),  # one of 64 px fits nothing
    ],
)
def test_the_largest_batch_up_to_which_every_batch_fits(profiles: list[ProfileRecord], largest):
    assert largest_batch(profiles) == largest
    for size in {each.min[1:] for each in profiles} | {each.max[1:] for each in profiles}:
        for batch in range(1, largest + 1):  # by trying
            shape = (batch, *size)
            assert any(
                all(low <= each <= high for low, each, high in zip(p.min, shape, p.max, strict=True)) for p in profiles
            )


def test_one_profile_prefers_nothing_unless_asked(make: MakePlan):
    plan = make(profiles=(batches(1, 8, 32),))
    assert list(configured(plan).dynamic_batching.preferred_batch_size) == []
    assert list(configured(plan, preferred=(8, 32)).dynamic_batching.preferred_batch_size) == [8, 32]
    alone = configured(plan, max_batch=1).dynamic_batching
    assert alone.max_queue_delay_microseconds == 0  # nobody comes along


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_batch": 9}, "--max-batch 9"),
        ({"preferred": (9,)}, "--preferred 9"),
        ({"groups": (Group(profiles=(2,)),)}, "there is no profile 2"),
        ({"groups": (Group(), Group(profiles=(1,)))}, "no profile takes a batch of one"),
    ],
)
def test_what_does_not_go_together_is_refused(make: MakePlan, options, said):
    with pytest.raises(UsageError, match=said) as caught:
        configured(make(), **options)
    assert caught.value.allowed


@pytest.mark.parametrize("tensor", [{"dtype": "float8"}, {"shape": (1, 257)}])
def test_a_plan_that_triton_cannot_batch_is_refused(make: MakePlan, tensor):
    plan = make()
    output = Manifest.read(manifest_path(plan)).outputs[0].model_copy(update=tensor)
    with pytest.raises(Face3DError, match="coeffs"):
        configured(make(outputs=(output,)))


@pytest.mark.parametrize(
    "text", ["count=0", "count=1+2", "count", "gpus=a", "gpus=0+0", "gpus=-1", "count=1,count=2", "speed=1", "gpus="]
)
def test_a_group_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="group"):
        Group.parse(text)


def test_text_is_quoted_as_protobuf_reads_it():
    for text in ('a "b" \\ c', "line\nbreak\t\r", "größe 顔", "", "\x00\x7f"):
        assert parsed(pbtxt({"name": text})).name == text
    assert parsed(pbtxt({"instance_group": [{"kind": Name("KIND_GPU")}, {}]})).instance_group[0].kind == 1
    with pytest.raises(text_format.ParseError):
        parsed(pbtxt({"nothing_of_the_kind": 1}))


def test_an_edit_shows(make: MakePlan):
    plan = make()
    config = model_config("face", Manifest.read(manifest_path(plan)), TritonOptions(Path("models"), (plan,)))
    text = config.text("two\nlines")
    assert body_of(text) == (config.body, True)
    assert parsed(text) == parsed(config.body)
    assert body_of(text.replace("max_batch_size: 8", "max_batch_size: 4"))[1] is False
    assert body_of(config.body) == (config.body, False)
