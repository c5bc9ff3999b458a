"""A function and messages that many tests use."""

from __future__ import annotations

from typing import Any

from cues_kafka.brokers.memory import MemoryMessage


def same(value: Any) -> Any:
    """A pipe that passes on what it gets."""
    return value


def at(topic: str, offset: int) -> MemoryMessage:
    """A message."""
    return MemoryMessage(topic, 0, offset, b"k", b"v", None, (0, 0), 0)
