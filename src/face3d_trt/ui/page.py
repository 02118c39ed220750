"""The page: one Gradio component for each thing that is shown."""

from __future__ import annotations

import logging
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import Face3DError, ImageError
from face3d_trt.ui.script import PLACE
from face3d_trt.ui.words import COLUMNS, about_weights, refusal, rows, shares, summary
from face3d_trt.ui.work import COEFFS, GLB, TEXTURE, ZIP

if TYPE_CHECKING:
    from face3d_trt.ui.work import PhotoWork

TITLE = "face3d-trt"
MOST_WAITING = 16  # photos; who comes then is told that the queue is full
_SWEEP_S, _KEEP_S = 60, 600  # every minute, files that are older than ten; a result is 4 MB
_START = "Choose a photo, take one, or click an example."
_CAMERA = (76, 86, None)  # degrees around and down; a little from the side, so that one sees a solid
_WIDTHS = ["21%", "8%", "11%", "12%", "11%", "37%"]  # of COLUMNS
CSS = """
#message { min-height: 3em; }
#refused { font-weight: bold; }
#early:has(#refused[hidden]), #files .label-clear-button { display: none; }
.dark #files a { color: #93c5fd; }
#message p, #weights p { overflow-wrap: anywhere; }
"""
_log = logging.getLogger("face3d_trt.ui")


def make_page(gr: Any, work: PhotoWork, folder: Path) -> Any:
    """The page as `gr.Blocks`.

    Args:
        gr: The module `gradio`.
        work: What reconstructs.
        folder: Gradio's own, for files.
    """
    _refuse_what_was_not_sent(gr, folder)
    shown = _Shown(gr, work, folder)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(_SWEEP_S, _KEEP_S)) as page:
        gr.Markdown("# A photo to a face in 3D")
        if text := about_weights(work.weights):
            gr.Markdown(text, elem_id="weights")
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                photo = _photo(gr)
                gr.HTML(PLACE, elem_id="early")
                message = gr.Markdown(_START, elem_id="message")
                gr.Examples(_examples(), photo, label="Examples", cache_examples=False, api_visibility="private")
            with gr.Column(scale=3, min_width=300):
                mesh = gr.Model3D(
                    label="Mesh: drag to turn, scroll to zoom", camera_position=_CAMERA, height=420, elem_id="mesh"
                )
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                texture = gr.Image(
                    label="Texture", interactive=False, height=315, alt_text="The texture of the mesh",
                    buttons=["download", "fullscreen"], elem_id="texture",
                )  # fmt: skip
                saved = gr.File(label="Files: mesh as GLB and OBJ, coefficients", interactive=False, elem_id="files")
            with gr.Column(scale=3, min_width=300):
                coeffs = gr.Dataframe(
                    headers=list(COLUMNS), label="Coefficients by group", interactive=False, wrap=True,
                    column_widths=_WIDTHS, elem_id="coeffs",
                )  # fmt: skip
                times = gr.Label(label="Time by stage", show_heading=False, elem_id="times")
        photo.change(
            shown.update, photo, [message, mesh, texture, saved, coeffs, times], preprocess=False, concurrency_limit=1,
            trigger_mode="always_last", show_progress="minimal", api_visibility="private",
        )  # fmt: skip
    return page.queue(max_size=MOST_WAITING, api_open=False)


class _Shown:
    """What the components show of a photo."""

    def __init__(self, gr: Any, work: PhotoWork, folder: Path) -> None:
        self._gr, self._work, self._folder = gr, work, folder

    def update(self, photo: dict[str, Any] | None) -> list[Any]:
        """The components' new values; a photo without a result empties them.

        Args:
            photo: As the client sends it; Gradio would decode what is too large.
        """
        if photo is None:
            return self._empty(_START)
        try:
            return self._result(self._sent(photo))
        except Face3DError as error:
            return self._empty(refusal(error))
        except Exception as error:  # a mistake of ours; the page goes on
            _log.exception("a photo could not be worked on")
            return self._empty(f"**No result:** the program failed on this photo ({type(error).__name__}).")

    def _sent(self, photo: dict[str, Any]) -> bytes:
        """The file's content.

        Raises:
            ImageError: It is none that was uploaded, or was deleted since.
        """
        path = Path(str(photo.get("path"))).resolve()
        if self._folder not in path.parents or not path.is_file():
            raise ImageError("this photo is not here, or not any more", allowed="a photo that is uploaded")
        return path.read_bytes()

    def _result(self, data: bytes) -> list[Any]:
        result = self._work.run(data)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        for name, content in result.files.items():
            (folder / name).write_bytes(content)
        paths = {name: str(folder / name) for name in result.files}
        return [
            summary(result, self._work.backend),
            paths[GLB],
            paths[TEXTURE],
            [paths[GLB], paths[ZIP], paths[COEFFS]],
            rows(result.coeffs),
            shares(result.seconds),
        ]

    def _empty(self, message: str) -> list[Any]:
        return [message, None, None, None, self._gr.Dataframe(value=[]), None]


def _refuse_what_was_not_sent(gr: Any, folder: Path) -> None:
    """Take files from clients only out of `folder`, where uploads go.

    A client may name any path, or an address. Gradio 6 holds paths against its folders only in pages that `launch` has
    started, not in those that are mounted, and would fetch the address. All components pass this one method. (A
    component class of our own would not do: its metaclass writes a file beside the source.)
    """
    own = {Path(example).resolve() for example in _examples()}
    keep = gr.blocks.Block.async_move_resource_to_block_cache

    async def only_what_was_sent(block: Any, where: str | Path | None) -> Any:
        if where is not None:
            path = Path(where).resolve()
            if folder not in path.parents and path not in own:
                raise gr.Error("A photo has to be uploaded, not named.", print_exception=False)
        return await keep(block, where)

    gr.blocks.Block.async_move_resource_to_block_cache = only_what_was_sent


def _photo(gr: Any) -> Any:
    return gr.Image(
        label="Photo", type="filepath", sources=["upload", "webcam", "clipboard"], height=360,
        webcam_options=gr.WebcamOptions(mirror=False), buttons=["fullscreen"], alt_text="The photo", elem_id="photo",
        placeholder="Drop a photo here\n- or -\nclick to choose one\nJPEG, PNG, WebP or BMP",
    )  # fmt: skip


def _examples() -> list[str]:
    """A portrait that has to be searched, and aligned renders; all of them in the package."""
    found = []
    for package, names in (("ui", _PORTRAITS), ("faces", _RENDERS)):
        for name in names:
            with as_file(files(f"face3d_trt.{package}") / name) as path:
                found.append(str(path))
    return found


_PORTRAITS = ("examples/astronaut.jpg",)
_RENDERS = ("data/render_001.jpg", "data/render_003.jpg", "data/render_004.jpg")
