"""Durations as people write them, such as `"7 days"`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}


def milliseconds(duration: str | timedelta, what: str) -> int:
    """
    A duration in milliseconds.

    Args:
        duration: a number of seconds, minutes, hours, days or weeks, such as `"90 seconds"`; or a timedelta.
        what: it is, for the message of the error.

    Raises:
        ValueError: it is nothing of this, or less than a millisecond.
    """
    found = 0.0
    if isinstance(duration, timedelta):
        found = duration / timedelta(milliseconds=1)
    elif isinstance(duration, str) and (parts := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", duration)):
        found = float(parts[1]) * _UNITS.get(parts[2], 0)
    if not 1 <= found < 2**53:
        units = "seconds, minutes, hours, days or weeks"
        raise ValueError(f'{what}={duration!r}: takes a number of {units}, such as "7 days", or a timedelta')
    return int(found)


def written(duration: str | timedelta, what: str) -> str:
    """The same duration as text, equal for equal durations; `what` is it, for the message of the error."""
    return f"{milliseconds(duration, what) / 1000} seconds"
