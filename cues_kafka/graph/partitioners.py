"""The names of rules by which clients place a message with a key in a partition."""

from __future__ import annotations

from typing import Final

MURMUR2: Final = "murmur2"
"""The partitioner of Kafka's Java clients, and ours."""

CUSTOM: Final = "custom"
"""A rule of the writers' own, which is not checked."""

PARTITIONERS: Final = (MURMUR2, "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random", CUSTOM)
"""What `Topic(partitioner=)` takes: librdkafka's names, and `custom`."""


def rule_of(partitioner: str) -> str:
    """One name for the partitioners that put a message with a key into the same partition."""
    return partitioner.removesuffix("_random")
