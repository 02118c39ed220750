"""What TensorRT builds on this GPU is what was asked for, says so, and can be built again from its measurements."""

from __future__ import annotations

import subprocess

import pytest
from tools.proof.build import backbone, counted

from face3d_trt.engine.build import BuildOptions, build_engine
from face3d_trt.engine.flavour import find_flavour
from face3d_trt.engine.profile import Profile
from face3d_trt.records import Manifest, manifest_path

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SHAPES = ("min=1x3x224x224,opt=1x3x224x224,max=4x3x224x224", "min=1x3x224x224,opt=8x3x224x224,max=16x3x224x224")
MOSTLY = 50  # of the backbone's 53 convolutions


@pytest.fixture(scope="module", params=["fp16", "int8"])
def built(request, typed_graphs, tmp_path_factory):
    pytest.importorskip("tensorrt")
    folder = tmp_path_factory.mktemp("built")
    options = BuildOptions(
        from_typed=typed_graphs / f"small.float32.{request.param}.onnx",
        profiles=tuple(map(Profile.parse, SHAPES)),
        timing_cache=folder / "timing-cache",
        output=folder / f"{request.param}.plan",
    )
    build_engine(options)
    return options, Manifest.read(manifest_path(options.plan))


def test_the_backbone_computes_in_the_precision_that_was_asked_for(built):
    _, manifest = built
    found = backbone(manifest.engine_layers)
    assert counted(found.values()).get(manifest.precision, 0) >= MOSTLY, found


def test_the_manifest_names_this_gpu_and_this_tensorrt(built):
    import tensorrt

    _, manifest = built
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader", "--id=0"]
    name, capability, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split(", ")
    assert manifest.flavour_version == tensorrt.__version__
    assert manifest.gpu is not None
    gpu = manifest.gpu
    assert (gpu.name, gpu.compute_capability, gpu.driver) == (name, capability, driver.strip())
    assert find_flavour().can_run(manifest) is None


def test_the_plan_itself_has_the_profiles_and_tensors_of_its_manifest(built):
    pytest.importorskip("pycuda")
    from face3d_trt.runtime.cuda import Device

    options, manifest = built
    device = Device(0)
    try:
        with device.current():
            plan = find_flavour().load(options.plan.read_bytes(), str(options.plan))
            found = (plan.outputs, plan.profiles)
            (taken,), (declared,) = plan.inputs, manifest.inputs
            plan.close()
    finally:
        device.close()
    assert found == (manifest.outputs, manifest.profiles)
    assert (taken.name, taken.dtype) == (declared.name, declared.dtype)
    # a plan may give the size of a dimension that is dynamic in the graph and that every profile fixes
    fixed = [sizes.pop() if len(sizes) == 1 else -1 for sizes in map(set, zip(*_ends(manifest), strict=True))]
    assert all(size in (own, usual) for size, own, usual in zip(taken.shape, declared.shape, fixed, strict=True))


def _ends(manifest):
    return [shape for profile in manifest.profiles for shape in (profile.min, profile.max)]


def test_measurements_are_kept_and_the_plan_is_reused(built):
    options, manifest = built
    assert options.timing_cache.stat().st_size > 0
    assert build_engine(options) == manifest  # nothing was built: `created` would differ
