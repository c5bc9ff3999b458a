"""Kafka's partitioner: murmur2 as the Java client computes it, in pure Python.

All clients of a pipeline must put a key into the same partition, else joins miss and order is lost. librdkafka's own
default is another hash (CRC32), so the Kafka adapter forces ``murmur2_random``.
"""

from __future__ import annotations

import struct
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=65_536)
def murmur2(data: bytes) -> int:
    """
    The 32-bit hash, unsigned (Java's `Utils.murmur2` gives the same bits as a signed int).

    Cached, because a pipeline sees the same keys often, and Python needs a microsecond for four bytes.
    """
    length = len(data)
    words = length // 4
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _M) & _MASK
        mixed = ((mixed ^ (mixed >> 24)) * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ mixed
    tail = data[words * 4 :]
    if tail:
        hashed = ((hashed ^ int.from_bytes(tail, "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, as Java's default partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
