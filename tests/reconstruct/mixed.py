"""Folders as people have them: photos, aligned crops, and files that no picture can be read from."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

ORIENTATION = 0x0112  # EXIF tag


def write_mixed(folder: Path, astronaut: Path, crops: np.ndarray, rounds: int = 1) -> dict[str, str]:
    """Fill `folder` with 23 files a round.

    Args:
        folder: Is made.
        astronaut: A photo with one face, (512, 512, 3).
        crops: (N, 224, 224, 3) uint8 RGB aligned faces, N at least 4.
        rounds: How often, each in a folder of its own and with other sizes.

    Returns:
        What has to become of each file, by name: "done", or the stage at which it fails.
    """
    expected = {}
    for index in range(rounds):
        inside = folder / f"round{index}"
        inside.mkdir(parents=True)
        found = _one_round(inside, Image.open(astronaut).convert("RGB"), crops, index)
        expected |= {f"{inside.name}/{name}": outcome for name, outcome in found.items()}
    return expected


def _one_round(folder: Path, photo: Image.Image, crops: np.ndarray, index: int) -> dict[str, str]:
    side = 260 + 8 * index
    small = photo.resize((side, side))
    small.save(folder / "small.jpg", quality=92)
    photo.resize((side + 60, side + 60)).save(folder / "larger.png")
    photo.resize((side, side)).save(folder / "photo.webp")
    small.convert("CMYK").save(folder / "cmyk.jpg")
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    small.transpose(Image.Transpose.ROTATE_90).save(folder / "rotated.jpg", exif=exif, quality=92)
    two = Image.new("RGB", (2 * side, side))
    two.paste(small, (0, 0))
    two.paste(small.resize((side * 3 // 4, side * 3 // 4)), (side, 0))
    two.save(folder / "two faces.jpg", quality=92)
    for name, crop in zip(("a.jpg", "b.png", "a.png", "ä ö.bmp"), np.roll(crops, -index, axis=0), strict=False):
        Image.fromarray(crop).save(folder / name)
    done = ("small.jpg", "larger.png", "photo.webp", "cmyk.jpg", "rotated.jpg", "two faces.jpg")
    odd = (os.fsdecode(b"latin \xe9.png"), "名" * 80 + ".png")  # no UTF-8; nearly as long as a name can be
    for name in odd:
        Image.fromarray(crops[0]).save(folder / name)
    expected = dict.fromkeys((*done, *odd, "a.jpg", "b.png", "a.png", "ä ö.bmp"), "done")
    return expected | _bad(folder, (folder / "small.jpg").read_bytes(), index)


def _bad(folder: Path, jpeg: bytes, index: int) -> dict[str, str]:
    (folder / "text.jpg").write_text("this is no picture")
    (folder / "cut.jpg").write_bytes(jpeg[: len(jpeg) // 2 + index])
    (folder / "cut header.jpg").write_bytes(jpeg[:30])
    (folder / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("ordered on Monday")
    (folder / "bomb.png").write_bytes(_png_header(60_000, 60_000))
    (folder / "gone.jpg").symlink_to(folder / "nowhere.jpg")
    Image.new("RGB", (1, 1)).save(folder / "dot.png")
    noise = np.random.default_rng(index).integers(0, 60, (150, 180, 3), np.uint8)
    Image.fromarray(noise).save(folder / "no face.png")
    (folder / "film.mp4").write_bytes(b"no film")
    os.mkfifo(folder / "pipe.jpg")  # to which nobody writes
    stages = {"notes.txt": "source", "dot.png": "detect", "no face.png": "detect"}
    names = ("text.jpg", "cut.jpg", "cut header.jpg", "empty.png", "bomb.png", "gone.jpg", "film.mp4", "pipe.jpg")
    return stages | dict.fromkeys(names, "decode")


def _png_header(width: int, height: int) -> bytes:
    """The start of a PNG that claims to be as large as that."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(bytes(1000)))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_video(path: Path, pictures: list[np.ndarray]) -> Path:
    """A video without loss (FFV1), 5 pictures a second: equal pictures are equal frames."""
    import cv2

    height, width = pictures[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"FFV1"), 5, (width, height))
    assert writer.isOpened()
    for picture in pictures:
        writer.write(cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    writer.release()
    return path
