"""The photo is made from a pattern that is known at every texel: what is baked can be held against it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from tests.reconstruct.known import Taken, make_coeffs, take, texels, waves

from face3d_trt.decode import gamma, light
from face3d_trt.errors import FaceError, InputError
from face3d_trt.reconstruct.products import IDENTITY, ProductOptions, make_products
from face3d_trt.reconstruct.texture import Baked, bake


def baked(decoder, taken, size=512) -> Baked:
    face = decoder.decode(taken.coeffs)
    back = cv2.invertAffineTransform(taken.crop_from_photo)
    return bake(decoder, face, face.crop @ back[:, :2].T + back[:, 2], taken.photo, size)


def on_the_face(size: int, radius: float = 0.495) -> np.ndarray:
    """Texels of the surface, which the stand-in spreads over a disc; without its rim."""
    return np.hypot(*np.moveaxis(texels(size) - 0.5, -1, 0)) < radius


def weight_of(result: Baked) -> np.ndarray:
    """Of the photo at each texel."""
    size = len(result.pixels)
    return cv2.resize(result.weight, (size, size), interpolation=cv2.INTER_LINEAR)


def trusted(result: Baked) -> np.ndarray:
    return on_the_face(len(result.pixels)) & (weight_of(result) > 0.99)


def psnr(result: Baked, colour) -> float:
    size = len(result.pixels)
    wanted = colour(texels(size).reshape(-1, 2)).reshape(size, size, 3)
    error = (result.pixels - wanted)[trusted(result)]
    return float(10 * np.log10(255**2 / np.mean(error**2)))


@pytest.mark.parametrize(("yaw", "pitch"), [(0.0, 0.0), (0.6, 0.1), (-0.4, -0.3)])
def test_what_the_photo_shows_is_found_at_its_texel(decoder, yaw, pitch):
    colour = waves(12)
    result = baked(decoder, take(decoder, make_coeffs(yaw, pitch), colour))
    assert psnr(result, colour) > 45  # the photo's own rounding to 8 bits is 59
    assert trusted(result).mean() > 0.3


def test_a_pixel_off_would_be_noticed(decoder):
    colour = waves(12)
    taken = take(decoder, make_coeffs(), colour)
    off = Taken(taken.photo, taken.crop_from_photo + np.array([[0, 0, 0.25], [0, 0, 0]]), taken.coeffs)
    assert psnr(baked(decoder, off), colour) < 40


def shaded(decoder, coeffs, gain):
    """The model's own colours under its light, as a function of UV, by the nearest vertex, and at every vertex."""
    from scipy.spatial import cKDTree

    row = coeffs[None]
    normals = decoder.basis.normals(decoder.basis.shape(row))
    colours = 255 * gain * decoder.basis.albedo(row)[0] * light(normals, gamma(row))[0]
    tree = cKDTree(decoder.uv)

    def colour(uv):
        distance, nearest = tree.query(uv, k=3)
        weight = 1 / (distance + 1e-4)
        return np.einsum("pk,pkc->pc", weight / weight.sum(axis=1, keepdims=True), colours[nearest])

    return colour


def test_what_the_photo_hides_is_painted_as_the_rest_leads_to_expect(decoder):
    coeffs = make_coeffs(yaw=0.7)
    gain = np.array([0.9, 0.7, 0.55])  # a warm, dim lamp, of which the coefficients know nothing
    colour = shaded(decoder, coeffs, gain)
    result = baked(decoder, take(decoder, coeffs, colour, ground=10))
    size = len(result.pixels)
    mapped = on_the_face(size)
    hidden = mapped & (weight_of(result) < 0.01)
    wanted = colour(texels(size)[hidden])
    error = np.abs(result.pixels[hidden] - wanted)
    assert hidden.sum() > 0.15 * mapped.sum()
    assert error.mean() < 9


def steps(pixels: np.ndarray) -> np.ndarray:
    """Differences between neighbouring texels, of what an eye takes for an edge and not for grain."""
    smooth = cv2.GaussianBlur(np.asarray(pixels, np.float32), (0, 0), 2)
    down, across = np.abs(np.diff(smooth, axis=0)), np.abs(np.diff(smooth, axis=1))
    return np.maximum(down[:, :-1], across[:-1]).max(axis=2)


def test_no_step_where_photo_and_paint_meet(decoder):
    coeffs = make_coeffs(yaw=0.7)
    colour = shaded(decoder, coeffs, np.array([0.9, 0.7, 0.55]))
    result = baked(decoder, take(decoder, coeffs, colour, ground=10))
    truth = colour(texels(512).reshape(-1, 2)).reshape(512, 512, 3)
    weight = weight_of(result)
    border = (on_the_face(512, 0.47) & (weight > 0.001) & (weight < 0.999))[:-1, :-1]
    assert border.sum() > 10_000
    more = steps(result.pixels) - steps(truth)  # eyes and lips have edges of their own
    assert more[border].max() < 3  # of 255
    assert np.abs(np.diff(weight, axis=1))[on_the_face(512, 0.47)[:, 1:]].max() < 0.25


def test_a_finer_texture_has_more_of_a_fine_photo(decoder):
    """140 waves over the texture: 256 texels cannot hold them, and must not turn them into others."""
    fine = waves(140)
    taken = take(decoder, make_coeffs(), fine, scale=5)
    large, small = baked(decoder, taken, 1024), baked(decoder, taken, 256)
    contrast = [result.pixels[trusted(result)].std(axis=0).mean() for result in (large, small)]
    assert psnr(large, fine) > 25
    assert contrast[0] > 30  # of 38 in the photo
    assert contrast[1] < 0.3 * contrast[0]


def test_texels_larger_than_pixels_take_all_of_them_in(decoder):
    """A checkerboard of single pixels is grey from afar; a sample here and there would be black or white."""
    rows, columns = np.indices((2240, 2240))
    photo = np.repeat((((rows + columns) % 2) * 255).astype(np.uint8)[..., None], 3, axis=2)
    result = baked(decoder, Taken(photo, IDENTITY / 10, make_coeffs()), 256)
    assert result.px_per_texel > 2
    assert np.abs(result.pixels[trusted(result)].astype(int) - 128).max() < 40


def test_a_turned_photo_gives_the_same_texture(decoder):
    taken = take(decoder, make_coeffs(0.3), waves(8))
    side = len(taken.photo)
    straight = baked(decoder, taken)
    quarter = np.ascontiguousarray(np.rot90(taken.photo))  # (x, y) goes to (y, side - 1 - x)
    back = np.array([[0, -1, side - 1], [1, 0, 0], [0, 0, 1]])
    turned = baked(decoder, Taken(quarter, taken.crop_from_photo @ back, taken.coeffs))
    both = trusted(straight) & trusted(turned)
    assert np.abs(straight.pixels[both].astype(int) - turned.pixels[both]).max() <= 3
    assert both.mean() > 0.95 * trusted(straight).mean()


def test_a_face_partly_outside_of_the_photo(decoder):
    taken = take(decoder, make_coeffs(), waves(8))
    whole = baked(decoder, taken)
    cut = len(taken.photo) // 2  # through the nose
    half = baked(decoder, Taken(taken.photo[:, :cut].copy(), taken.crop_from_photo, taken.coeffs))
    left = texels(512)[..., 0] < 0.40
    right = texels(512)[..., 0] > 0.56
    assert half.visible < 0.6 * whole.visible
    assert weight_of(half)[right].max() < 0.001
    same = left & trusted(whole) & trusted(half)
    assert same.sum() > 0.9 * (left & trusted(whole)).sum()
    assert np.abs(whole.pixels[same].astype(int) - half.pixels[same]).max() <= 4


def test_a_profile_is_a_face(decoder):
    result = baked(decoder, take(decoder, make_coeffs(yaw=1.5), waves(8)))
    assert 0.1 < result.visible < 0.6


def test_what_is_no_face_in_the_photo_is_refused(decoder, coeffs):
    photo = np.zeros((224, 224, 3), np.uint8)
    options = ProductOptions(texture_size=256)
    elsewhere = np.array([[1.0, 0, 5000], [0, 1, 0]])
    with pytest.raises(FaceError, match="no part of the face"):
        make_products(decoder, photo, elsewhere, coeffs, "a", options)
    behind = coeffs.copy()
    behind[256] = 9.6
    with pytest.raises(FaceError, match="behind the camera"):
        make_products(decoder, photo, IDENTITY, behind, "a", options)
    for bad, match in ((coeffs[:200], "shape"), (np.full(257, np.nan, np.float32), "finite")):
        with pytest.raises(InputError, match=match):
            make_products(decoder, photo, IDENTITY, bad, "a", options)
    with pytest.raises(InputError, match="photo"):
        make_products(decoder, photo[..., 0], IDENTITY, coeffs, "a", options)
    with pytest.raises(InputError, match="inverted"):
        make_products(decoder, photo, np.zeros((2, 3)), coeffs, "a", options)


def test_one_by_one_or_all_at_once_the_files_are_the_same(decoder):
    options = ProductOptions(frozenset({"coeffs", "mesh", "texture", "overlay"}), "glb", 256)
    photos = np.random.default_rng(2).integers(0, 256, (6, 300, 300, 3), np.uint8)

    def make(index: int) -> dict[str, bytes]:
        coeffs = make_coeffs(0.2 * index - 0.5, seed=index)
        return make_products(decoder, photos[index], IDENTITY, coeffs, f"f{index}", options)

    alone = [make(index) for index in range(6)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(6))) == alone


def test_rounding_in_the_network_does_not_change_the_picture(decoder):
    """Coefficients of a batch differ from single ones by less than 1e-5."""
    from skimage.metrics import structural_similarity

    taken = take(decoder, make_coeffs(0.4), waves(10))
    noise = np.random.default_rng(1).uniform(-1e-5, 1e-5, 257).astype(np.float32)
    one = baked(decoder, taken)
    other = baked(decoder, Taken(taken.photo, taken.crop_from_photo, taken.coeffs + noise))
    assert structural_similarity(one.pixels, other.pixels, channel_axis=2) >= 0.999
