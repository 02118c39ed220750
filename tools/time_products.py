"""Times what one face costs after the network: decoding, texture, files. Prints milliseconds, medians.

The portrait of the astronaut with the mean face of a model that `face3d-trt export` wrote; each step alone. Wall and
CPU time, as other processes may use the machine. Needs the extras `reconstruct` and `dev`.

Usage: python tools/time_products.py engines/face3d_resnet50.face.npz [--threads 1] [--photo 1024] [--rounds 9]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from skimage import data

from face3d_trt.names import GROUPS
from face3d_trt.reconstruct.draw import overlay
from face3d_trt.reconstruct.mesh import glb_file, obj_files, ply_file
from face3d_trt.reconstruct.products import ProductOptions, encode_texture, load_face_decoder, make_products
from face3d_trt.reconstruct.texture import bake, colours_at

SIZES = (256, 512, 1024, 2048, 4096)
DISTANCE = 1.27  # 100 mm nearer to the camera: the face as large as aligned crops have it


def main() -> None:
    """Time each step and print a line for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("face", type=Path)
    parser.add_argument("--threads", type=int, default=1, help="of OpenCV; numpy's BLAS follows OMP_NUM_THREADS")
    parser.add_argument("--photo", type=int, default=1024, help="side of the photo, px")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    cv2.setNumThreads(options.threads)
    timed = partial(measure, rounds=options.rounds)
    decoder = load_face_decoder(options.face)
    photo = cv2.resize(data.astronaut()[0:300, 80:380], (options.photo, options.photo), interpolation=cv2.INTER_CUBIC)
    matrix = np.eye(2, 3) * (224 / options.photo)
    matrix[:, 2] = 112 / options.photo - 0.5
    coeffs = np.zeros(257, np.float32)
    coeffs[GROUPS["translation"].stop - 1] = DISTANCE
    print(f"{len(decoder.uv)} vertices, photo {options.photo} px, {options.threads} threads", flush=True)
    face = decoder.decode(coeffs)
    place = (face.crop - matrix[:, 2]) / matrix[0, 0]
    timed("decode", lambda: decoder.decode(coeffs))
    for size in SIZES:
        baked = bake(decoder, face, place, photo, size)
        timed(f"texture {size}", partial(bake, decoder, face, place, photo, size))
        for kind in ("png", "jpg"):
            timed(f"encode {size} {kind}", partial(encode_texture, baked.pixels, kind))
    texture = encode_texture(baked.pixels, "jpg")
    decoder.prepare(ProductOptions())
    timed("obj", lambda: obj_files(decoder, face, "a", "a.png"))
    timed("glb", lambda: glb_file(decoder, face, texture, "image/jpeg"))
    timed("ply", lambda: ply_file(decoder, face, colours_at(baked.pixels, decoder.uv)))
    timed("overlay", lambda: overlay(decoder, face, place, photo))
    for kind in ("png", "jpg"):
        whole = ProductOptions(texture_format=kind)
        timed(f"all of a face, 1024 {kind}", partial(make_products, decoder, photo, matrix, coeffs, "a", whole))


def measure(name: str, step: Callable[[], object], rounds: int) -> None:
    """Print how long a step takes."""
    step()
    wall, cpu = [], []
    for _ in range(rounds):
        start = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    print(f"{name:28s} wall {np.median(wall) * 1e3:8.1f} ms   cpu {np.median(cpu) * 1e3:8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
