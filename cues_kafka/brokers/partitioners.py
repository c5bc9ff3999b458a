"""Where the partitioners of Kafka's clients put a key, by the names that librdkafka gives them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.graph.partitioners import CUSTOM

Place: TypeAlias = Callable[[bytes, int], int]
"""From a key and the number of partitions to a partition."""


def crc32_partition(key: bytes, partitions: int) -> int:
    """The partition by CRC32: the default of librdkafka, and so of most clients in C, C++, Go, .NET, PHP and Python."""
    return zlib.crc32(key) % partitions


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """The partition by FNV-1a of 32 bits, as librdkafka's `fnv1a` and Sarama (Go) have it: the absolute value."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = ((hashed ^ byte) * 0x01000193) & 0xFFFFFFFF
    return (0x1_0000_0000 - hashed if hashed & 0x8000_0000 else hashed) % partitions


_PLACES: Final[dict[str, Place]] = {
    "murmur2": partition_for,
    "murmur2_random": partition_for,
    "consistent": crc32_partition,
    "consistent_random": crc32_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_random": fnv1a_partition,
}

KNOWN: Final = ("murmur2", "consistent_random", "fnv1a_random")
"""One name for each rule."""


def place_of(partitioner: str) -> Place | None:
    """The rule of a partitioner; None: it is the writers' own (`custom`)."""
    return None if partitioner == CUSTOM else _PLACES[partitioner]
