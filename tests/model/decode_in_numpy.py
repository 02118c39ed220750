"""The published decoding formulas in float64 numpy, straight from the .mat file; shares no code with the package.

Deng et al. 2019, and the conventions listed in modelscope's bfm.py: R = Rz Ry Rx, row vectors times its transpose,
camera at z = 10 with a focal length of 1015 px for the 224 px crop.
"""

import numpy as np
from scipy.io import loadmat
from scipy.spatial.transform import Rotation


def decode(directory, coeffs):
    """Coefficients (batch, 257) -> vertex, albedo, landmarks (px, y down)."""
    mat = loadmat(directory / "assets/BFM_model_front.mat")
    coeffs = coeffs.astype(np.float64)
    mean = mat["meanshape"].astype(np.float64).reshape(-1, 3)
    mean = mean - mean.mean(axis=0)
    vertices, colours, marks = [], [], []
    for c in coeffs:
        shape = mean + (mat["idBase"] @ c[:80] + mat["exBase"] @ c[80:144]).reshape(-1, 3)
        turn = Rotation.from_euler("xyz", c[224:227]).as_matrix()  # extrinsic: x first, then y, then z
        vertex = np.array([turn @ point for point in shape]) + c[254:257]
        vertices.append(vertex)
        colours.append(((mat["meantex"].reshape(-1) + mat["texBase"] @ c[144:224]) / 255).reshape(-1, 3))
        points = vertex[mat["keypoints"].astype(int).reshape(-1) - 1]
        depth = 10 - points[:, 2]
        marks.append(np.stack([1015 * points[:, 0] / depth + 112, 224 - (1015 * points[:, 1] / depth + 112)], 1))
    return np.stack(vertices), np.stack(colours), np.stack(marks)
