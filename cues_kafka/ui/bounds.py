"""What one question of a page may cost: messages, bytes and seconds. Each answer says whether a bound ended it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.words import count

MEGABYTE: Final = 1 << 20

POLL_S: Final = 0.2
"""How long one fetch waits, so a bound in seconds is kept about as well."""


def megabytes(size: int) -> str:
    """A number of bytes for a page."""
    return f"{size / MEGABYTE:.3g} MB"


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    What a question may cost.

    Attributes:
        messages: that are looked at.
        size: their bytes: keys and values.
        seconds: it may take.
    """

    messages: int = 20_000
    size: int = 32 * MEGABYTE
    seconds: float = 5.0

    def __str__(self) -> str:
        """For a page."""
        return f"{count(self.messages, 'message')}, {megabytes(self.size)} or {self.seconds:g} s"


class Spent:
    """
    What a question has cost so far. It begins with the question.

    Attributes:
        bounds: what it may cost.
        messages, size: as there.
    """

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self.bounds = bounds
        self.messages = self.size = 0
        self._clock = clock
        self._until_s = clock() + bounds.seconds

    @property
    def over(self) -> str:
        """Which bound is reached, in words; empty: none."""
        if self.messages >= self.bounds.messages:
            return f"after {count(self.messages, 'message')}"
        if self.size >= self.bounds.size:
            return f"after {megabytes(self.size)}"
        return f"after {self.bounds.seconds:g} s" if self._clock() >= self._until_s else ""

    @property
    def room(self) -> int:
        """How many more messages fit, if they are as large as those before."""
        mean = max(1, self.size // max(1, self.messages))
        return max(1, min(self.bounds.messages - self.messages, (self.bounds.size - self.size) // mean))

    def took(self, message: WireMessage) -> None:
        """Count a message."""
        self.messages += 1
        self.size += len(message.key() or b"") + len(message.value() or b"")

    def said(self) -> dict[str, Any]:
        """For a page: what was looked at, and what the bounds are."""
        return {"messages": self.messages, "bytes": self.size, "bounds": str(self.bounds), "ended": self.over}


def read_bounded(reader: Reader, place: TopicPartition, start: int, end: int, spent: Spent) -> Iterator[WireMessage]:
    """
    The committed messages in `[start, end)`, until a bound is reached.

    Args:
        reader: with nothing assigned.
        place: what to read.
        start: the first offset.
        end: at most the last stable offset.
        spent: counts them.

    Raises:
        BrokerError: the partition cannot be read.
    """
    if start >= end:
        return
    reader.assign({place: start})
    try:
        while not spent.over:
            for fetched in reader.poll(POLL_S):
                for message in fetched.messages:
                    if message.offset() >= end or spent.over:
                        return
                    spent.took(message)
                    yield message
                past = fetched.eof is not None and fetched.eof >= end
                if past or (fetched.messages and fetched.messages[-1].offset() >= end - 1):
                    return
    finally:
        reader.unassign([place])
