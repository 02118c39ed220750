"""The page in headless Chromium, over the real server, engine and detector. Skipped where there is no Chromium."""

from __future__ import annotations

import io
import struct
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trimesh
from PIL import Image
from tests.browser import CONTRASTS

from face3d_trt.names import GROUPS
from face3d_trt.reconstruct.coeffs import read_coeffs

if TYPE_CHECKING:
    from tests.browser import Tab
    from tests.ui.conftest import Page

INPUT = "#photo input[type=file]"
MESSAGE = "(document.querySelector('#message')?.innerText ?? '')"
LINKS = "[...document.querySelectorAll('#files a[href]')].map(a => a.href)"
HALF = """if (colour[3] > 0) throw new Error("half transparent: " + e.className);"""  # Gradio's layers are
# Whether the viewer has drawn something: colours beside the one in the corner.
DRAWN = """
(() => {
  const canvas = document.querySelector('#mesh canvas');
  if (!canvas) return 0;
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext('2d');
  return new Promise(done => requestAnimationFrame(() => {
    context.drawImage(canvas, 0, 0);
    const data = new Uint32Array(context.getImageData(0, 0, copy.width, copy.height).data.buffer);
    done(new Set(data).size);
  }));
})()
"""


def open_page(tab: Tab, page: Page, *, width: int = 1200, dark: bool = False) -> None:
    tab.visit(page.url, width=width, dark=dark)
    tab.wait(f"!!document.querySelector('{INPUT}')")
    tab.wait("[...document.querySelectorAll('.gallery-item img')].filter(i => i.naturalWidth).length === 4")


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def is_outside(url: str, page: Page) -> bool:
    return not url.startswith((page.url, "blob:", "data:"))


def test_a_photo_becomes_a_mesh_a_texture_coefficients_and_times(tab: Tab, page: Page, astronaut: Path) -> None:
    open_page(tab, page)
    tab.choose(INPUT, astronaut)
    message = tab.wait(f"{MESSAGE}.includes('reconstructed') && {MESSAGE}")
    assert "One face in 512x512 px" in message
    assert "ONNX Runtime" in message

    found = {url.rpartition("/")[2]: fetched(url) for url in tab.wait(f"{LINKS}.length === 3 && {LINKS}")}
    mesh = trimesh.load(io.BytesIO(found["face.glb"]), file_type="glb", force="mesh")
    assert len(mesh.faces) > 1000
    assert 0.1 < mesh.extents[1] < 0.4  # m from chin to forehead
    picture = mesh.visual.material.baseColorTexture
    assert np.asarray(picture.convert("L")).std() > 10
    with zipfile.ZipFile(io.BytesIO(found["face.obj.zip"])) as archive:
        assert sorted(archive.namelist()) == ["face.mtl", "face.obj", "face.png"]
        assert archive.testzip() is None
    coeffs = read_coeffs(found["face.coeffs.json"])
    assert coeffs.std() > 0.01

    tab.wait(f"{DRAWN}.then(colours => colours > 500)")  # skin has many
    assert tab.wait("document.querySelector('#texture img')?.naturalWidth") == 1024
    table = tab.wait(
        "document.querySelectorAll('#coeffs [role=gridcell]').length && document.querySelector('#coeffs').innerText"
    )
    assert all(name in table for name in GROUPS)
    assert f"yaw {np.degrees(coeffs[GROUPS['angle']][1]):.1f}°" in table
    times = tab.wait("document.querySelector('#times')?.innerText")
    for stage in ("read the photo", "find and align", "network", "mesh and texture"):
        assert stage in times
    assert [url for url in tab.requests if is_outside(url, page)] == []
    refused = [text for text in tab.complaints if "Content Security Policy" in text or "exceptionThrown" in text]
    assert refused == []


def test_an_example_needs_one_click(tab: Tab, page: Page) -> None:
    open_page(tab, page, width=390, dark=True)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.run("document.body.classList.contains('dark')")
    tab.run("document.querySelectorAll('.gallery-item')[1].click()")
    assert "An aligned face in 224x224 px" in tab.wait(f"{MESSAGE}.includes('reconstructed') && {MESSAGE}")
    tab.run("document.querySelector('#mesh').scrollIntoView()")  # it draws where it is seen
    tab.wait(f"{DRAWN}.then(colours => colours > 500)")
    assert tab.run("document.documentElement.scrollWidth") <= 390


def _header(width: int, height: int) -> bytes:
    """A PNG that announces so many pixels and has next to none."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def _encoded(kind: str, side: int) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 60)).save(target, kind)
    return target.getvalue()


BAD: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no face": ("green.jpg", lambda: _encoded("JPEG", 300), "no face found"),
    "one pixel": ("dot.png", lambda: _encoded("PNG", 1), "too small to show a face"),
    "a bomb": ("bomb.png", lambda: _header(60_000, 60_000), "3600 million pixels"),
    "text": ("notes.jpg", lambda: b"<b>no</b> picture at all " * 9, "whatever its name says"),
    "HEIC": ("phone.png", lambda: b"\0\0\0\x18ftypheic" + bytes(200), "JPEG, PNG, WebP or BMP"),
    "GIF": ("old.gif", lambda: _encoded("GIF", 300), "JPEG, PNG, WebP or BMP"),
    "cut off": ("half.jpg", lambda: _encoded("JPEG", 300)[:400], "cannot read this file"),
    "empty": ("empty.png", lambda: b"", "empty"),
}


def test_what_has_no_face_is_told_so_and_nothing_old_stays(tab: Tab, page: Page, tmp_path: Path) -> None:
    open_page(tab, page)
    tab.run("document.querySelectorAll('.gallery-item')[1].click()")
    tab.wait(f"{LINKS}.length === 3")
    for kind, (name, content, words) in BAD.items():
        (tmp_path / name).write_bytes(content())
        tab.run("document.querySelector('#photo button[aria-label=\"Remove Image\"]').click()")
        tab.wait(f"{MESSAGE}.startsWith('Choose a photo')")
        tab.choose(INPUT, tmp_path / name)
        message = tab.wait(f"{MESSAGE}.startsWith('No result') && {MESSAGE}")
        assert words in message, kind
        tab.wait("document.querySelectorAll('#files a[href], #mesh canvas, #texture img').length === 0")


def test_what_is_too_large_to_send_is_told_so(tab: Tab, page: Page, tmp_path: Path, astronaut: Path) -> None:
    open_page(tab, page)
    told = "(e => e.hidden ? '' : e.innerText)(document.querySelector('#refused'))"
    large, film = tmp_path / "large.jpg", tmp_path / "film.mp4"
    large.write_bytes(bytes(5 << 20))
    film.write_bytes(bytes(1000))
    for path, words in ((large, "5.0 MiB. What works: at most 4 MiB"), (film, "no picture")):
        tab.choose(INPUT, path)
        assert words in tab.wait(told)
    assert not [url for url in tab.requests if "/upload" in url]
    tab.choose(INPUT, astronaut)
    tab.wait(f"{MESSAGE}.includes('reconstructed')")
    assert tab.run(told) == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_components_have_names_and_can_be_read(tab: Tab, page: Page, scheme: str) -> None:
    open_page(tab, page, dark=scheme == "dark")
    nameless = """
    [...document.querySelectorAll("button, input:not([type=file]), a")].filter(e => e.getClientRects().length
      && !(e.innerText || e.ariaLabel || e.title || e.labels?.length || e.getAttribute("aria-labelledby")
      || e.querySelector("img[alt]:not([alt=''])"))).map(e => e.outerHTML.slice(0, 200))
    """
    assert tab.run(nameless) == []
    tab.run("document.querySelectorAll('.gallery-item')[1].click()")
    tab.wait(f"{LINKS}.length === 3")
    assert [each for each in tab.run(CONTRASTS.replace(HALF, "")) if each[0] < 4.5] == []  # AA for text of any size
    labels = tab.run("document.body.innerText")
    for label in ("Photo", "Mesh", "Texture", "Files", "Coefficients by group", "Time by stage", "Examples"):
        assert label in labels
