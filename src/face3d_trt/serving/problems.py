"""Problem details (RFC 9457): what is told instead of a result."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"
SOON_S = 1  # Retry-After of what is over in a moment


class Problem(Exception):  # noqa: N818  RFC 9457's name for it
    """A request that gets no result.

    Args:
        status: Of HTTP.
        detail: What is wrong, for people.
        allowed: What would have been right.
        retry_s: Seconds after which another try makes sense.
        headers: Others.
        more: Further members of the document.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        allowed: str | None = None,
        retry_s: int | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.allowed, self.more = status, detail, allowed, more
        self.headers = dict(headers or {})
        if retry_s is not None:
            self.headers["Retry-After"] = str(retry_s)

    def document(self) -> dict[str, Any]:
        """The members of the document."""
        told = {"type": "about:blank", "title": title(self.status), "status": self.status, "detail": self.detail}
        return told | ({"allowed": self.allowed} if self.allowed else {}) | self.more

    def body(self) -> bytes:
        """The document."""
        return json.dumps(self.document(), ensure_ascii=True).encode()


def title(status: int) -> str:
    """The phrase of a status, as RFC 9457 wants it for the type about:blank."""
    return HTTPStatus(status).phrase
