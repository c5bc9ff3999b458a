"""Values that others may have written, in which a page must not lose its way."""

from __future__ import annotations

import json
from typing import Any, Final

from cues_kafka.ui.views import to_json

HOSTILE: Final = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\u202eevil\u202c",
    "\x1b[2J\x00\x07",
    "\u200b\u2028\u2029",
    "line\nline\r",
    "'; DROP TABLE orders; --",
    "{{constructor.constructor('x')()}}",
]

_UNSAFE: Final = "\u202e\u202c\x1b\x00\x07\u200b\u2028\u2029\n\r"


def on_page(data: Any) -> Any:
    """
    What a page gets of an answer.

    Raises:
        AssertionError: a text in it has a character that hides or turns it.
    """
    body = to_json(data)
    found = json.loads(body)
    for text in _texts(found):
        assert not set(text) & set(_UNSAFE), ascii(text)
    return found


def _texts(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for pair in data.items() for one in pair for text in _texts(one)]
    return [text for one in data for text in _texts(one)] if isinstance(data, list) else []
