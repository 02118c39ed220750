"""Names and sizes that the graph, the runtime and the comparison share. Standard library only."""

from __future__ import annotations

INPUT = "input"  # (batch, 3, height, width) float32 RGB 0..1, or (batch, height, width, 3) uint8 RGB
COEFFS = "coeffs"  # (batch, 257) float32
VERTEX = "vertex"  # (batch, V, 3) float32, 1.0 = 100 mm, world space: y up, camera at z = 10
TEXTURE = "texture"  # (batch, V, 3) float32 RGB 0..1: albedo per vertex
IMAGE = "image"  # the float32 NCHW tensor inside a uint8 graph: where the front ends and the network begins

DEFAULT_ONNX = "engines/face3d_resnet50.onnx"  # what `export` writes and `build` reads unless told otherwise

COEFFICIENTS = 257
GROUPS: dict[str, slice] = {
    "identity": slice(0, 80),
    "expression": slice(80, 144),
    "texture": slice(144, 224),
    "angle": slice(224, 227),  # radians: pitch, yaw, roll
    "lighting": slice(227, 254),  # spherical harmonics, 9 per colour channel
    "translation": slice(254, 257),  # 1.0 = 100 mm
}
MM_PER_UNIT = 100.0  # the morphable model's unit is 100 mm

CROP = 224  # side of the aligned crop in pixels that the network was trained on
MIN_SIDE, MAX_SIDE = 64, 1024  # height and width that the exported graph accepts
MAX_BATCH = 1 << 16  # likewise; the smallest batch is 1
