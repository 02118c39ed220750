from __future__ import annotations

import numpy as np

from face3d_trt.faces.detect import detector
from face3d_trt.faces.samples import sample_crops


def test_the_samples_are_eight_different_aligned_faces(template):
    crops = sample_crops()
    assert (crops.shape, crops.dtype) == ((8, 224, 224, 3), np.uint8)
    assert len({crop.tobytes() for crop in crops}) == 8
    mtcnn = detector("mtcnn")
    for number, crop in enumerate(crops):
        (face,) = mtcnn.detect(crop, str(number))
        middle = face.points.mean(axis=0)
        assert np.abs(middle - (112, 112 - 102 * template[:, 1].mean())).max() < 16  # a turned head moves it
        assert 50 < np.hypot(*(face.points[1] - face.points[0])) < 78
