"""Why bytes are no JSON, for people: looked for when msgspec has refused them, because it says it for machines."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

MAX_BYTES: Final = 1024 * 1024
"""A longer message is not looked at a second time."""

_MARKS: Final = (
    (b"\xef\xbb\xbf", "it begins with a byte order mark (0xef 0xbb 0xbf), which JSON does not have"),
    (b"\xff\xfe", "it is in UTF-16 or UTF-32, and JSON is in UTF-8"),
    (b"\xfe\xff", "it is in UTF-16, and JSON is in UTF-8"),
    (b"\0\0\xfe\xff", "it is in UTF-32, and JSON is in UTF-8"),
)


def why_no_json(data: bytes, said: str, root: str) -> str:
    """
    Say what is wrong with a message.

    Args:
        data: its bytes, which msgspec refuses.
        said: what msgspec says.
        root: what people call the value, for the path.
    """
    if not data:
        return "it is empty"
    if (known := next((text for mark, text in _MARKS if data.startswith(mark)), None)) is not None:
        return known
    if (path := _half_pair(data)) is not None:
        return f"{root}{path} holds half of a surrogate pair, which is not a character"
    if "truncated" in said:
        return f"it ends inside of a value, after {len(data)} {'byte' if len(data) == 1 else 'bytes'}"
    return said


def half_pair(value: Any) -> str:
    """The path of a text with half of a surrogate pair in a value that is to be written; empty: the value is one."""
    try:
        return _path(msgspec.to_builtins(value, enc_hook=str)) or ""
    except (TypeError, ValueError, RecursionError):
        return ""


def _half_pair(data: bytes) -> str | None:
    """The path of a text with half of a surrogate pair, which the `json` of Python takes; None: all are whole."""
    if len(data) > MAX_BYTES or b"\\u" not in data:
        return None
    try:
        return _path(json.loads(data))
    except (ValueError, RecursionError):
        return None


def _path(value: Any) -> str | None:
    if isinstance(value, str):
        return "" if _is_half(value) else None
    if isinstance(value, dict):
        for written, one in value.items():
            key = str(written)  # whole numbers become text
            if _is_half(key):
                return f"[{key!r:.60}]"
            if (path := _path(one)) is not None:
                return f".{key:.60}{path}" if key.isidentifier() else f"[{key!r:.60}]{path}"
    if isinstance(value, list | tuple):
        for place, one in enumerate(value):
            if (path := _path(one)) is not None:
                return f"[{place}]{path}"
    return None


def _is_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
