"""How an entry stands in a file of LMDB: its key, its value with a checksum, and the part of time it is filed under."""

from __future__ import annotations

import hashlib
from typing import Final
from zlib import crc32

from cues_kafka.state.entries import TIME_BYTES

RAW_BYTES: Final = 448
"""Keys up to this length stand as they are, behind `FRONT`. LMDB takes 1 to 511 bytes."""

FRONT: Final = b"k"

LATE_PARTS: Final = 25
"""
An entry that is set again is filed under its new time only if it stands more parts of a lifetime behind than these: a
quarter of it. Else the sweep meets it too early, and files it again.
"""

SUM_BYTES: Final = 4
"""Behind each value: the checksum of key and value. LMDB has none, and a file may be on a disk that flips bits."""

WHOLE: Final = 0x2144DF1C
"""The checksum of anything that ends with its own one."""


class DamagedError(ValueError):
    """An entry is not as it was written."""


def closed(at: bytes, value: bytes) -> bytes:
    """The value with the checksum behind it."""
    return value + crc32(value, crc32(at)).to_bytes(SUM_BYTES, "little")


def opened(at: bytes, found: bytes) -> bytes:
    """
    The value without its checksum.

    Raises:
        DamagedError: they do not fit.
    """
    if crc32(found, crc32(at)) != WHOLE:
        raise DamagedError(f"the entry at {at[:40]!r} is not as it was written")
    return found[:-SUM_BYTES]


def short_key(key: bytes) -> bytes:
    """Stands for a long key: keys of which one begins like the other stay together."""
    return FRONT + key[:RAW_BYTES] + hashlib.sha256(key).digest()


def long_value(key: bytes, value: bytes) -> bytes:
    """The value of a long key, with the key in front."""
    return len(key).to_bytes(4, "big") + key + value


def key_of_long(found: bytes) -> bytes:
    """The key in front of a value."""
    return found[4 : 4 + int.from_bytes(found[:4], "big")]


def value_of_long(found: bytes) -> bytes:
    """The value behind its key."""
    return found[4 + int.from_bytes(found[:4], "big") :]


class PartsOfTime(dict[bytes, bytes]):
    """The beginning of the part of time that a time is in; both as bytes."""

    def __init__(self, width: int) -> None:
        self._width = width

    def __missing__(self, time: bytes) -> bytes:
        at = int.from_bytes(time, "big")
        self[time] = part = (at - at % self._width).to_bytes(TIME_BYTES, "big")
        return part


class OldestParts(dict[bytes, bytes]):
    """By a part of time, the oldest one under which an entry of it may stay filed; both as bytes."""

    def __init__(self, width: int) -> None:
        self._late = LATE_PARTS * width

    def __missing__(self, part: bytes) -> bytes:
        self[part] = oldest = max(0, int.from_bytes(part, "big") - self._late).to_bytes(TIME_BYTES, "big")
        return oldest
