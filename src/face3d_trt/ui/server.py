"""The page on an address, until Ctrl-C or SIGTERM. It sends nothing to anybody and loads nothing from elsewhere.

open_ui(UiOptions(Path("engines/face3d_resnet50.fp16.plan")))
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import UsageError
from face3d_trt.optional import require
from face3d_trt.reconstruct.options import find_plan
from face3d_trt.report import SILENT, Reporter
from face3d_trt.ui.guard import Guard
from face3d_trt.ui.options import LOCAL, UiOptions
from face3d_trt.ui.work import PhotoWork

if TYPE_CHECKING:
    from collections.abc import Iterator

_PURPOSE = "the page"
_FORM_ROOM = 64 << 10  # bytes of a request beside its file
_PATIENCE_S = 2  # for connections that listen for news, when it ends


def open_ui(options: UiOptions, report: Reporter = SILENT) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        options: See UiOptions.
        report: Told what runs the plan, and of the address.

    Raises:
        MissingError: A package, the plan, or the morphable model beside it.
        UsageError: The port is taken, or the plan is not for this machine.
    """
    plan = find_plan(options.plan)
    with _listening(options) as listener, _private_folder() as folder:
        os.environ.update(_environment(folder))  # Gradio and ONNX Runtime read it when they are imported
        gradio = require("gradio", "ui", _PURPOSE)
        require("trimesh", "reconstruct", "writing meshes")
        report.stage(f"opening   {plan}")
        with PhotoWork(plan, options.max_pixels) as work:
            report.stage(f"ready     {work.backend}")
            app = _app(gradio, work, folder, options)
            _told(options, listener, report)
            _serve(app, listener)
    report.stage("closed")


def _app(gradio: Any, work: PhotoWork, folder: Path, options: UiOptions) -> Any:
    from fastapi import FastAPI

    from face3d_trt.ui.page import CSS, make_page
    from face3d_trt.ui.script import head

    app = FastAPI(openapi_url=None)
    app.add_middleware(Guard, most=options.max_bytes + _FORM_ROOM)  # type: ignore[arg-type, unused-ignore]
    fonts = {"font": ("system-ui", "sans-serif"), "font_mono": ("ui-monospace", "monospace")}  # of the reader's device
    return gradio.mount_gradio_app(
        app, make_page(gradio, work, folder), "/", server_name=options.host, footer_links=[], run_history=False,
        show_error=False, max_file_size=options.max_bytes, ssr_mode=False, enable_monitoring=False, pwa=False,
        mcp_server=False, theme=gradio.themes.Default(**fonts), css=CSS,
        head=head(options.max_bytes),
    )  # fmt: skip


def _serve(app: Any, listener: socket.socket) -> None:
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
        """One for which a signal is the end, and no error."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            former = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in former.items():
                    signal.signal(number, handler)

    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_PATIENCE_S, server_header=False)
    Server(config).run([listener])


def _told(options: UiOptions, listener: socket.socket, report: Reporter) -> None:
    host, port = listener.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if options.host not in LOCAL:
        report.warn(f"whoever reaches {options.host}, port {port}, can use this page: there is no password")
    report.stage(f"page      http://{f'[{here}]' if ':' in here else here}:{port}    (Ctrl-C ends it)")


@contextmanager
def _listening(options: UiOptions) -> Iterator[socket.socket]:
    """The socket, before anything that takes long.

    Raises:
        UsageError: The address is not this machine's, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {options.host}, port {options.port}: {error.strerror or error}",
            allowed="an address of this machine and a port that is free; --port 0 takes one",
        ) from error
    with listener:
        yield listener


@contextmanager
def _private_folder() -> Iterator[Path]:
    """For photos and results; goes with the page."""
    folder = Path(tempfile.mkdtemp(prefix="face3d-ui-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    return {
        "GRADIO_TEMP_DIR": str(folder),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_SHARE": "False",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
    }
