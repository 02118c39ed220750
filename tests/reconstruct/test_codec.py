"""JPEG files by nvImageCodec against Pillow: on its CPU decoder wherever it is installed, and on a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.reconstruct.conftest import run
from tests.reconstruct.mixed import ORIENTATION

from face3d_trt.errors import MissingError, UsageError
from face3d_trt.faces.images import read_image
from face3d_trt.faces.samples import sample_crops
from face3d_trt.reconstruct import codec as module
from face3d_trt.reconstruct import pipeline
from face3d_trt.reconstruct.codec import Codec
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.options import ReconstructOptions

INSTALLED = bool(importlib.util.find_spec("nvidia")) and bool(importlib.util.find_spec(module.MODULE))
needs_codec = pytest.mark.skipif(not INSTALLED, reason="nvidia-nvimgcodec is not installed")
ON = pytest.mark.parametrize("device", [CPU, pytest.param(0, marks=pytest.mark.gpu)])
# Mean difference to Pillow, levels of 255. Both round the inverse DCT, the enlarged chroma and the colours, each by
# half a level or so. Repeated chroma is several levels off on these pictures: see the test of that.
LIMIT = 1.0
SIZES = ((224, 224), (331, 277), (64, 1000), (1024, 768))


def mosaic(height: int, width: int) -> np.ndarray:
    """A face behind squares of 16 px in all colours, with edges that are no multiples of a block."""
    face = np.asarray(Image.fromarray(sample_crops()[0]).resize((width, height)))
    rng = np.random.default_rng(height * width)
    colours = rng.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8)
    squares = colours.repeat(16, axis=0).repeat(16, axis=1)[5 : 5 + height, 3 : 3 + width]
    return (face // 2 + squares // 2).astype(np.uint8)


def difference(codec: Codec, path: Path) -> float:
    """Mean, in levels."""
    (found,) = codec.read([str(path)])
    assert found is not None
    expected = read_image(path)
    assert found.shape == expected.shape
    return float(np.abs(found.astype(int) - expected).mean())


@needs_codec
@ON
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_pixels_are_those_of_pillow(device, subsampling, progressive, tmp_path):
    codec = Codec(device)
    for height, width in SIZES:
        path = tmp_path / f"{height}.jpg"
        picture = Image.fromarray(mosaic(height, width))
        picture.save(path, quality=90, subsampling=subsampling, progressive=progressive)
        found = difference(codec, path)
        print(f"{subsampling} {'progressive' if progressive else 'baseline'} {width}x{height}: {found:.4f} levels")
        assert found <= LIMIT
    codec.close()


@needs_codec
def test_repeated_chroma_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_OPTIONS", ":fancy_upsampling=0")
    codec = Codec(CPU)
    for height, width in SIZES:
        Image.fromarray(mosaic(height, width)).save(tmp_path / "a.jpg", quality=90, subsampling="4:2:0")
        assert difference(codec, tmp_path / "a.jpg") > 2 * LIMIT
    codec.close()


@needs_codec
@ON
def test_every_orientation_and_grey_are_those_of_pillow(device, tmp_path):
    picture, paths = Image.fromarray(mosaic(120, 200)), []
    for turned in range(1, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = turned
        paths.append(tmp_path / f"{turned}.jpg")
        picture.save(paths[-1], exif=exif, subsampling="4:4:4")
    paths.append(tmp_path / "grey.jpg")
    picture.convert("L").save(paths[-1])
    codec = Codec(device)
    assert [difference(codec, path) <= LIMIT for path in paths] == [True] * 9
    codec.close()


@needs_codec
@ON
def test_what_is_not_for_the_codec_is_left_to_pillow(device, tmp_path):
    picture = Image.fromarray(mosaic(200, 300))
    picture.save(tmp_path / "good.jpg")
    whole = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.jpg").write_bytes(whole[:200] + bytes(range(256)) * 4 + b"\xff\xd9")
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").touch()
    picture.save(tmp_path / "png.jpg", "PNG")
    picture.convert("CMYK").save(tmp_path / "cmyk.jpg")
    picture.save(tmp_path / "rgb.jpg", keep_rgb=True)
    picture.resize((5000, 40)).save(tmp_path / "wide.jpg")
    names = ["cut", "good", "text", "empty", "png", "cmyk", "rgb", "wide", "gone"]
    names += ["noise"] if device == CPU else []  # what a GPU makes of damage in the midst is not promised
    codec = Codec(device)
    found = codec.read([str(tmp_path / f"{name}.jpg") for name in names])
    assert [name for name, each in zip(names, found, strict=True) if each is not None] == ["good"]
    codec.close()


@needs_codec
def test_a_run_decodes_by_the_codec_and_loses_nothing(mixed, mixed_run, exported, tmp_path, monkeypatch):
    """With the codec's decoder on the CPU, whose pixels are Pillow's: every file is that of a run without it."""
    monkeypatch.setattr(pipeline, "decoders_on", lambda options, devices: (CPU,))
    notes = []

    class Notes:
        def stage(self, text: str) -> None:
            notes.append(text)

        warn = progress = track = stage

    found = run(tmp_path / "out", exported, mixed[0], decode="gpu", report=Notes())
    assert found.tree().keys() == mixed_run.tree().keys()
    assert found.lines()[1:] == mixed_run.lines()[1:]
    assert any("6 JPEGs were decoded on the CPU" in text for text in notes)  # cmyk, cut, cut header, text, gone, a pipe


def test_decoding_on_a_gpu_needs_a_gpu(tmp_path):
    with pytest.raises(MissingError) as caught:
        pipeline.decoders_on(ReconstructOptions(("photos",), tmp_path, decode="gpu", devices="cpu"), (CPU,))
    assert caught.value.exit_code == 3
    assert "--decode gpu" in caught.value.problem
    with pytest.raises(UsageError, match="--decode tpu"):
        ReconstructOptions(("photos",), tmp_path, decode="tpu")
