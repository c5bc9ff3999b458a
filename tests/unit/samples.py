"""A function, messages and a clock that many tests use."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from cues_kafka.brokers.memory import MemoryBroker, MemoryMessage


def same(value: Any) -> Any:
    """A pipe that passes on what it gets."""
    return value


class StandingClock:
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def monotonic(self) -> float:
        return self.s

    def time(self) -> float:
        return self.s

    def sleep(self, seconds: float) -> None:
        self.s += seconds


def at(topic: str, offset: int) -> MemoryMessage:
    """A message."""
    return MemoryMessage(topic, 0, offset, b"k", b"v", None, (0, 0), 0)


def backup_of(broker: MemoryBroker, backing: str, group: str) -> Callable[[], None]:
    """What puts a backing partition and its group's offsets back as they are now: Kafka loses what comes later."""
    log, offsets = broker.topics.log_of((backing, 0)), broker.groups.groups[group].offsets
    end, places, messages, committed = log.end, list(log.offsets), list(log.messages), deepcopy(offsets)

    def restore() -> None:
        log.end, log.offsets[:], log.messages[:] = end, places, messages
        broker.groups.groups[group].offsets = committed

    return restore
