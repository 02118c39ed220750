"""Headless Chromium over its debugging pipe: the DevTools protocol needs no package."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
A4 = 718  # CSS px between the margins
VIEWS: dict[str, dict[str, Any]] = {
    "light": {"width": 1200},
    "dark": {"width": 1200, "dark": True},
    "narrow": {"width": 390},
    "narrow and dark": {"width": 390, "dark": True},
    "paper": {"width": A4, "media": "print"},
    "paper of a dark screen": {"width": A4, "media": "print", "dark": True},
}
# For each text: its contrast against the nearest background that is painted, by WCAG 2.2, and what is asked of it.
CONTRASTS = """
(() => {
  const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
      if (colour[3] > 0) throw new Error("half transparent: " + e.className);
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, style = getComputedStyle(element);
    if (!texts.currentNode.data.trim() || !element.getClientRects().length || element.tagName === "title") continue;
    const ink = light(numbers(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(behind(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([contrast, texts.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
})()
"""
# Whatever sticks out of the page, or (on paper, where nobody scrolls) out of its table.
CUT = """
[...document.querySelectorAll("body *")].filter(e =>
  e.getBoundingClientRect().right > innerWidth + 1 && (matchMedia("print").matches || !e.closest(".scroll"))
).map(e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 40)}`)
"""
_ABOVE = 10  # descriptors that are in nobody's way: Chromium reads from 3 and writes to 4


def find_chromium() -> str | None:
    """Where Chromium is; None: it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page in one browser.

    Attributes:
        requests: URLs that were asked for.
        complaints: What the page's console was told.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._left = b""
        self._count = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def attach(self) -> None:
        """Open the tab and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something, and wait for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, media: str = "screen") -> None:
        """Load a file, in a window of `width` px."""
        self.visit(path.resolve().as_uri(), width=width, dark=dark, media=media)

    def visit(self, url: str, *, width: int = 1200, dark: bool = False, media: str = "screen") -> None:
        """Load a page, in a window of `width` px."""
        self.requests.clear()
        self.complaints.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        while self.run("document.readyState + location.protocol") != f"complete{url.partition('/')[0]}":
            pass

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """The value of a JavaScript expression, once it is true."""
        until = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"it stays {value!r}: {script}; {self.complaints}"
            time.sleep(0.05)
        return value

    def choose(self, selector: str, path: Path) -> None:
        """Choose a file in an `<input type="file">`."""
        script = f"document.querySelector({json.dumps(selector)})"
        found = self.call("Runtime.evaluate", expression=script)["result"]
        self.call("DOM.setFileInputFiles", files=[str(path)], objectId=found["objectId"])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path, height: int | None = None) -> None:
        """Save the page as a PNG, `height` px of it or all."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed on A4."""
        answer = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has gone"
            self._left += data
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(text.decode())
        return message


@contextlib.contextmanager
def browser(path: str, *, webgl: bool = False) -> Iterator[Tab]:
    """Start Chromium; it ends with the block. With `webgl` the processor draws in 3D."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--hide-scrollbars")
        drawing = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader") if webgl else ("--disable-gpu",)
        arguments = [
            path,
            *options,
            *drawing,
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ]
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        process = os.posix_spawn(path, arguments, os.environ, file_actions=actions)
        os.close(theirs_in)
        os.close(theirs_out)
        tab = Tab(ours_out, ours_in)
        try:
            tab.attach()
            yield tab
        finally:
            os.close(ours_out)  # Chromium ends when its pipe does
            os.close(ours_in)
            os.waitpid(process, 0)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends)
    for end in ends:
        os.close(end)
    return moved  # type: ignore[return-value]
