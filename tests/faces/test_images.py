from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from face3d_trt.errors import ImageError
from face3d_trt.faces.images import BACKGROUND, LONG_SIDE, image_files, read_image, read_photo


@pytest.fixture
def picture():
    """Smooth, without any symmetry: rows, columns and channels can be told apart."""
    y, x = np.mgrid[0:40, 0:64]
    return np.stack([x * 4, y * 6, (x + y) * 2], axis=-1).astype(np.uint8)


def png(path, width, height, depth, colour, rows):
    """A PNG file written by hand: `rows` are the raw bytes of each line."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), level=1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.png", {}), ("a.bmp", {}), ("a.webp", {"lossless": True}), ("a.PNG", {}), ("png named.jpg", {"format": "PNG"})],
)
def test_lossless_formats_give_the_very_pixels(tmp_path, picture, name, options):
    Image.fromarray(picture).save(tmp_path / name, **options)
    assert np.array_equal(read_image(tmp_path / name), picture)


def test_jpeg_is_close(tmp_path, picture):
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=98, subsampling=0)
    assert np.abs(read_image(tmp_path / "a.jpg").astype(int) - picture).max() < 8


# EXIF 2.32, tag 274: where row 0 and column 0 of the stored picture lie in the scene.
STORED = {
    1: lambda a: a,  # top, left
    2: lambda a: a[:, ::-1],  # top, right
    3: lambda a: a[::-1, ::-1],  # bottom, right
    4: lambda a: a[::-1],  # bottom, left
    5: lambda a: a.swapaxes(0, 1),  # left, top
    6: lambda a: a[:, ::-1].swapaxes(0, 1),  # right, top
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),  # right, bottom
    8: lambda a: a[::-1].swapaxes(0, 1),  # left, bottom
}


@pytest.mark.parametrize("orientation", STORED)
def test_exif_orientation_gives_the_scene_upright(tmp_path, picture, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(np.ascontiguousarray(STORED[orientation](picture))).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png"), picture)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's note, which stops nothing by itself
@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"Exif\0\0garbage", b"Exif\0\0"])
def test_damaged_exif_does_not_cost_the_picture(tmp_path, picture, exif):
    Image.fromarray(picture).save(tmp_path / "a.jpg", exif=exif)
    assert read_image(tmp_path / "a.jpg").shape == picture.shape


def test_16_bit_grey_is_divided_by_257(tmp_path):
    values = np.array([0, 128, 129, 257, 257 * 100, 257 * 100 + 128, 257 * 101 - 128, 65535], dtype=">u2")
    image = read_image(png(tmp_path / "a.png", 8, 1, 16, 0, [values.tobytes()]))
    assert image[0, :, 0].tolist() == [0, 0, 1, 1, 100, 100, 101, 255]
    assert (image == image[..., :1]).all()


def test_16_bit_colour_keeps_its_whole_range(tmp_path):
    values = np.array([[0, 257 * 7, 65535], [65535, 257 * 200, 0]], dtype=">u2")
    image = read_image(png(tmp_path / "a.png", 2, 1, 16, 2, [values.tobytes()]))
    assert image[0].tolist() == [[0, 7, 255], [255, 200, 0]]


def test_grey_and_bilevel_become_three_equal_channels(tmp_path):
    Image.fromarray(np.array([[0, 77, 255]], np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.array([[0, 1, 0]], bool)).save(tmp_path / "bilevel.png")
    assert read_image(tmp_path / "grey.png")[0].tolist() == [[0] * 3, [77] * 3, [255] * 3]
    assert read_image(tmp_path / "bilevel.png")[0].tolist() == [[0] * 3, [255] * 3, [0] * 3]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_shows_the_background(tmp_path, mode):
    colour = (200, 200, 200) if mode == "RGBA" else (200,)
    image = Image.new(mode, (3, 1))
    for x, alpha in enumerate((0, 255, 51)):
        image.putpixel((x, 0), (*colour, alpha))
    image.save(tmp_path / "a.png")
    clear, opaque, fifth = read_image(tmp_path / "a.png")[0].astype(int)
    assert tuple(clear) == BACKGROUND
    assert opaque.tolist() == [200] * 3
    assert np.abs(fifth - (0.2 * 200 + 0.8 * BACKGROUND[0])).max() <= 1


def test_palette_with_and_without_transparency(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "clear.png", transparency=b"\x00\xff")
    assert read_image(tmp_path / "plain.png")[0].tolist() == [[10, 20, 30], [200, 100, 50]]
    assert read_image(tmp_path / "clear.png")[0].tolist() == [list(BACKGROUND), [200, 100, 50]]


def test_cmyk_red_is_red_whether_adobe_stored_it_inverted_or_not(tmp_path):
    red = (0, 255, 255, 0)
    Image.new("CMYK", (32, 32), red).save(tmp_path / "adobe.jpg", quality=95)  # Pillow writes as Adobe does
    Image.new("CMYK", (32, 32), tuple(255 - v for v in red)).save(tmp_path / "plain.jpg", quality=95)
    marked = (tmp_path / "plain.jpg").read_bytes()
    start = marked.index(b"\xff\xee")
    length = int.from_bytes(marked[start + 2 : start + 4], "big")
    (tmp_path / "plain.jpg").write_bytes(marked[:start] + marked[start + 2 + length :])
    for name in ("adobe.jpg", "plain.jpg"):
        assert np.abs(read_image(tmp_path / name)[16, 16].astype(int) - (255, 0, 0)).max() < 4, name


def test_one_pixel_is_a_picture(tmp_path):
    Image.new("RGB", (1, 1), (1, 2, 3)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").tolist() == [[[1, 2, 3]]]


def test_the_pixel_limit_holds_before_anything_is_decoded(tmp_path):
    path = png(tmp_path / "bomb.png", 40000, 20000, 8, 2, [])
    start = time.perf_counter()
    with pytest.raises(ImageError, match=r"40000x20000.*800 million") as caught:
        read_image(path)
    assert time.perf_counter() - start < 0.5
    assert "200 million" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_12000x9000_is_read_in_bounded_memory_without_a_warning(tmp_path, kind):
    """108 million pixels: Pillow alone would warn, and 756 MB would hold them twice."""
    path = tmp_path / f"large.{kind}"
    if kind == "jpg":
        image = Image.new("RGB", (12000, 9000), (10, 200, 30))
        image.paste((200, 10, 30), (6000, 0, 12000, 9000))
        image.save(path, quality=80)
    else:
        line = bytes([10, 200, 30]) * 6000 + bytes([200, 10, 30]) * 6000
        png(path, 12000, 9000, 8, 2, [line] * 9000)
    code = (
        "import sys\nfrom face3d_trt.faces.images import read_photo\np = read_photo(sys.argv[1])\n"
        "print(p.pixels.shape, p.scale, p.pixels[1500, 1000], p.pixels[1500, 3000],"
        " [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0], sep='|')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, path], capture_output=True, text=True, check=True)
    shape, scale, left, right, kilobytes = done.stdout.strip().split("|")
    assert shape == f"(3072, {LONG_SIDE}, 3)"
    assert float(scale) == pytest.approx(LONG_SIDE / 12000)
    assert np.abs(np.fromstring(left.strip("[]"), sep=" ") - (10, 200, 30)).max() < 4
    assert np.abs(np.fromstring(right.strip("[]"), sep=" ") - (200, 10, 30)).max() < 4
    assert int(kilobytes) < (300_000 if kind == "jpg" else 700_000)


def test_shrinking_keeps_orientation_and_tells_the_scale(tmp_path, picture):
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(np.ascontiguousarray(STORED[6](picture))).save(tmp_path / "a.png", exif=exif)
    photo = read_photo(tmp_path / "a.png", long_side=16)
    assert photo.pixels.shape == (10, 16, 3)
    assert photo.scale == 0.25
    means = picture.reshape(10, 4, 16, 4, 3).mean(axis=(1, 3))
    assert np.abs(photo.pixels[1:-1, 1:-1] - means[1:-1, 1:-1]).max() < 2


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp"])
@pytest.mark.parametrize("part", [0.03, 0.5, 0.9])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, portrait, suffix, part):
    path = tmp_path / f"cut.{suffix}"
    Image.fromarray(portrait).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(ImageError, match=r"cut\."):
        read_image(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"just some text, long enough to have a header", "no JPEG, PNG, WebP or BMP")],
)
def test_what_is_no_picture_is_told(tmp_path, content, reason):
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(ImageError, match=reason):
        read_image(tmp_path / "a.jpg")


def test_formats_outside_the_four_are_told_what_is_allowed(tmp_path, picture):
    Image.fromarray(picture).save(tmp_path / "a.png", format="TIFF")
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert "JPEG, PNG, WebP or BMP" in str(caught.value)


def test_missing_files_and_folders_are_image_errors(tmp_path):
    for path in (tmp_path / "none.jpg", tmp_path):
        with pytest.raises(ImageError, match="cannot read"):
            read_image(path)


def test_every_flipped_byte_gives_a_picture_or_an_image_error(tmp_path, picture):
    """Whatever a damaged file makes Pillow raise, nothing else comes out."""
    rng = np.random.default_rng(1)
    for suffix in ("jpg", "png", "webp", "bmp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(picture).save(path)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(60):
            damaged = whole.copy()
            damaged[rng.integers(0, min(damaged.size, 200), 3)] = rng.integers(0, 256, 3)
            path.write_bytes(damaged.tobytes())
            with contextlib.suppress(ImageError):
                assert read_image(path).shape[2] == 3


def test_image_files_are_sorted_and_the_rest_is_listed(tmp_path):
    for name in ("b/2.PNG", "b/1.jpeg", "a.webp", "c.bmp", "README.md", "b/points.json", ".hidden.jpg", ".git/x.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    pictures, others = image_files(tmp_path)
    assert [path.as_posix() for path in pictures] == ["a.webp", "b/1.jpeg", "b/2.PNG", "c.bmp"]
    assert [path.as_posix() for path in others] == ["README.md", "b/points.json"]


def test_a_folder_that_links_to_itself_ends(tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert len(image_files(tmp_path)[0]) == 1
