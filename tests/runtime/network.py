"""A network small enough to be computed by hand, for a plan of TensorRT and for its double: means of each picture's
channels, times two matrices. A row's results depend on that row alone."""

from __future__ import annotations

import numpy as np

from face3d_trt.records import ModelInfo, ProfileRecord, TensorRecord

SIDE = 64
LARGEST = 32
INPUTS = (TensorRecord(name="input", dtype="float32", shape=(-1, 3, -1, -1)),)
OUTPUTS = (
    TensorRecord(name="coeffs", dtype="float32", shape=(-1, 257)),
    TensorRecord(name="vertex", dtype="float32", shape=(-1, 20, 3)),
)
PROFILES = (
    ProfileRecord(min=(1, 3, 64, 64), opt=(1, 3, 64, 64), max=(4, 3, 96, 96)),
    ProfileRecord(min=(1, 3, 64, 64), opt=(24, 3, 64, 64), max=(LARGEST, 3, 96, 96)),
)
_random = np.random.default_rng(11)
MATRICES = {
    "coeffs": _random.uniform(-1, 1, (3, 257)).astype(np.float32),
    "vertex": _random.uniform(-1, 1, (3, 60)).astype(np.float32),
}
MODEL = ModelInfo(
    source="network.py",
    revision=None,
    weights="seeded",
    checkpoint_sha256="0" * 64,
    width=1,
    vertices=20,
    outputs="mesh",
    input="float32",
    template=(),
    version="test",
)


def pictures(batch: int, seed: int = 0, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    """(batch, 3, height, width) float32: a colour and a slope per row, so that no two rows look alike."""
    random = np.random.default_rng((seed, batch))
    colours = random.uniform(0.2, 0.8, (batch, 3, 1, 1))
    slopes = random.uniform(-0.2, 0.2, (batch, 1, height, 1))
    return np.broadcast_to(colours + slopes, (batch, 3, height, width)).astype(np.float32)


def expected(images: np.ndarray) -> dict[str, np.ndarray]:
    """What the network gives, in float64."""
    means = images.astype(np.float64).mean(axis=(2, 3))
    return {
        "coeffs": means @ MATRICES["coeffs"],
        "vertex": (means @ MATRICES["vertex"]).reshape(len(images), 20, 3),
    }


def build_plan() -> bytes:
    """The network as a plan of this machine's TensorRT, for the GPU of this machine."""
    from face3d_trt.engine.callbacks import speaking_to
    from face3d_trt.engine.flavour import find_flavour
    from face3d_trt.engine.messages import Messages

    trt = find_flavour().module
    with speaking_to(trt, Messages()) as logger:
        builder = trt.Builder(logger)
        explicit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)  # before 10
        network = builder.create_network(0 if explicit is None else 1 << int(explicit))
        images = network.add_input("input", trt.float32, (-1, 3, -1, -1))
        means = network.add_reduce(images, trt.ReduceOperation.AVG, 0b1100, keep_dims=False).get_output(0)
        for record in OUTPUTS:
            matrix = MATRICES[record.name]
            constant = network.add_constant(matrix.shape, trt.Weights(np.ascontiguousarray(matrix))).get_output(0)
            none = trt.MatrixOperation.NONE
            product = network.add_matrix_multiply(means, none, constant, none).get_output(0)
            if len(record.shape) == 3:
                shuffle = network.add_shuffle(product)
                shuffle.reshape_dims = record.shape
                product = shuffle.get_output(0)
            product.name = record.name
            network.mark_output(product)
        config = builder.create_builder_config()
        config.clear_flag(trt.BuilderFlag.TF32)
        sharing = getattr(trt.PreviewFeature, "PROFILE_SHARING_0806", None)
        if sharing is not None:
            config.set_preview_feature(sharing, True)
        if hasattr(trt.TacticSource, "CUDNN"):
            foreign = (trt.TacticSource.CUBLAS, trt.TacticSource.CUBLAS_LT, trt.TacticSource.CUDNN)
            config.set_tactic_sources(config.get_tactic_sources() & ~sum(1 << int(source) for source in foreign))
        for each in PROFILES:
            profile = builder.create_optimization_profile()
            profile.set_shape("input", each.min, each.opt, each.max)
            config.add_optimization_profile(profile)
        return bytes(builder.build_serialized_network(network, config))
