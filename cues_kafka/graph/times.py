"""Points in time: what people write and read, and the milliseconds of records. The meaning is the same everywhere.

What is printed is in UTC and says so. What is given has a zone: without one it would mean another time on another
machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cues_kafka.errors import ConfigError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def shown_time(ms: float, *, fine: bool = False) -> str:
    """
    The time of a record for people, such as ``2026-11-28T18:00:00Z``.

    A record may have any number as its time: a program that counts in microseconds writes the year 55840. What is
    outside of the years 1 to 9999 stays a number.

    Args:
        ms: milliseconds since the epoch.
        fine: with milliseconds.
    """
    try:
        when = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{int(ms)} ms"
    return when.isoformat(timespec="milliseconds" if fine else "seconds").replace("+00:00", "Z")


def milliseconds_of(when: datetime, what: str) -> int:
    """
    The millisecond since the epoch that a time is in: records have no finer times, and none of it is left out.

    Args:
        when: a time with a zone.
        what: names it in the error.

    Raises:
        ConfigError: it has no zone.
    """
    if when.tzinfo is None:
        raise ConfigError(
            f"{what}{when!r} has no zone, so it would mean another time on another machine. "
            "Write datetime(..., tzinfo=UTC), or datetime.now(UTC)."
        )
    return (when - EPOCH) // _MS


def time_of(text: str) -> datetime | None:
    """
    A time in ISO form; None: the text is not one.

    Raises:
        ConfigError: it has no zone.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        full = when.isoformat()  # a date alone takes no zone
        raise ConfigError(f"{text}: the time has no zone. Write {full}Z for UTC, or {full}+02:00.")
    return when
