"""Routing keys."""

from __future__ import annotations

from typing import Final

from cues_kafka.bridges.published import Names

LONGEST: Final = 255
"""Bytes of a routing key."""


def wrong_key(key: str) -> str:
    """Why a text cannot be a routing key; empty: it can."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which UTF-8 cannot carry"
    return f"is longer than {LONGEST} bytes" if size > LONGEST else ""


ROUTING_KEYS: Final = Names(*("routing key", "a", ".", "be another word", "words", "country", "exchange()"), wrong_key)
