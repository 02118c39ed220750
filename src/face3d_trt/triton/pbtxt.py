"""Protocol buffers' text format, as much of it as a model's configuration needs.

Written by hand, so that the command needs no protobuf. Tests read it with tritonclient's own messages.
https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_INDENT = "  "


class Name(str):
    """An enumeration's value, which has no quotes."""

    __slots__ = ()


def pbtxt(message: Mapping[str, Any], depth: int = 0) -> str:
    """Write a message.

    Args:
        message: Fields by name, in the order in which they are to stand. A value is a text, a Name, a bool, a whole
            number, a message, or a sequence of one of these for a repeated field. A map is a sequence of messages with
            `key` and `value`.
        depth: Of the indentation.
    """
    lines: list[str] = []
    for key, value in message.items():
        lines += _field(key, value, depth)
    return "".join(f"{line}\n" for line in lines)


def _field(key: str, value: Any, depth: int) -> list[str]:
    indent = _INDENT * depth
    if isinstance(value, Mapping):
        return [f"{indent}{key} {{", *pbtxt(value, depth + 1).splitlines(), f"{indent}}}"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and isinstance(value[0], Mapping):
            return [line for each in value for line in _field(key, each, depth)]
        return [f"{indent}{key}: [ {', '.join(map(_scalar, value))} ]"]
    return [f"{indent}{key}: {_scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Name):
        return str(value)
    return f'"{"".join(map(_character, str(value)))}"'


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())
