"""What the questions of pages have in common."""

from __future__ import annotations

from collections.abc import Mapping

from cues_kafka.errors import ConfigError


def partition_of(given: Mapping[str, str]) -> int | None:
    """
    The partition that a page asks for; None: it asks for all.

    Args:
        given: the arguments of the request.

    Raises:
        ConfigError: it is not a number.
    """
    text = given.get("partition", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"partition {text!r:.80}: give a number, or leave it out.")
    return int(text)
