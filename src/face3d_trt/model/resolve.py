"""Which directory holds the model: one that the user names, or ModelScope's cache of a pinned revision."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from face3d_trt.errors import MissingError, ModelError
from face3d_trt.optional import require

DEFAULT_MODEL = "damo/cv_resnet50_face-reconstruction"
REVISION = "v2.0.0-HRN"  # an earlier revision is another model (v1); the hub's master need not be this layout
FILES = ("configuration.json", "pytorch_model.pt", "assets/*.mat", "assets/*.npy")
OFFLINE = "FACE3D_OFFLINE"  # set to 1: never ask the hub
_TRY = "face3d-trt standin model/    # makes a stand-in to try everything with"
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Resolved:
    """Where the model lies, and what the user called it.

    Attributes:
        directory: The model directory.
        source: The directory or ModelScope id as the user gave it, without a revision.
        revision: The revision of a ModelScope id; None for a directory.
    """

    directory: Path
    source: str
    revision: str | None


def resolve_model(model: str | Path) -> Resolved:
    """Find the model directory.

    Args:
        model: A directory, or a ModelScope id, `owner/name` or `owner/name@revision`. The cache is looked at first;
            MODELSCOPE_CACHE moves it, FACE3D_OFFLINE=1 forbids the hub.

    Raises:
        ModelError: Neither a directory nor an id.
        MissingError: Not in the cache, and the hub is out of reach or not allowed.
    """
    text = str(model)
    if not text.strip():
        raise ModelError(
            "the model's name is empty", allowed=f"a directory, or an id such as {DEFAULT_MODEL}", run=_TRY
        )
    path = Path(text).expanduser()
    if path.is_dir():
        return Resolved(path, text, None)
    name, _, revision = text.partition("@")
    first = path.parts[0] if path.parts else ""
    if path.exists() or Path(first).exists() or not _ID.fullmatch(name) or text.startswith((".", "/", "~")):
        raise ModelError(
            f"{text} is not a model directory",
            allowed="a directory with configuration.json and pytorch_model.pt, "
            f"or a ModelScope id such as {DEFAULT_MODEL}",
            run=_TRY,
        )
    return Resolved(_snapshot(name, revision or REVISION), name, revision or REVISION)


def _snapshot(name: str, revision: str) -> Path:
    snapshot = require("modelscope_hub.compat.snapshot_download", "export", "a ModelScope id")
    errors = require("modelscope_hub.errors", "export", "a ModelScope id")
    options = {"revision": revision, "allow_patterns": list(FILES), "cache_dir": os.environ.get("MODELSCOPE_CACHE")}
    try:
        return Path(snapshot.snapshot_download(name, local_files_only=True, **options))
    except errors.CacheError as error:
        reason = "it is not in the cache, and FACE3D_OFFLINE forbids the hub"
        if os.environ.get(OFFLINE, "") not in ("", "0"):
            raise _missing(name, revision, reason) from error
    try:
        return Path(snapshot.snapshot_download(name, **options))
    except (errors.HubError, OSError) as error:
        raise _missing(name, revision, f"the hub did not give it ({_root(error)})") from error


def _root(error: BaseException) -> str:
    """The innermost reason of a chain of network errors, which ends with what really went wrong."""
    text = str(error)
    for mark in ("Caused by ", "(Caused by "):
        text = text.rpartition(mark)[2] or text
    return text if len(text) < 160 else "… " + text[-160:]


def _missing(name: str, revision: str, reason: str) -> MissingError:
    return MissingError(
        f"the model {name} at revision {revision} cannot be had: {reason}",
        allowed="a network that reaches ModelScope, its cache (MODELSCOPE_CACHE), or a copy of the model's directory",
        run="face3d-trt export --model DIRECTORY    # or, to try without the model: face3d-trt standin model/\n"
        f"           {OFFLINE}=1 skips the hub at once",
    )
