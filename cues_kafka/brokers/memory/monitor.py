"""The lock that guards a cluster, its clock, and what times out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from typing import TypeAlias

from cues_kafka.ports.clock import Clock

Expire: TypeAlias = Callable[[float], float]
"""Ends what is over at a moment, and gives the moment at which the next of it will be."""


class Monitor:
    """
    One for all parts of a cluster.

    Args:
        clock: virtual time; None: the machine's clock. Under virtual time no call waits.

    Attributes:
        changed: guards all parts; notified where a reader may find more.
        waits: whether a call may wait.
        numbers: of members and transactions.
        timed: what ends what is over, in this order.
    """

    def __init__(self, clock: Clock | None) -> None:
        self.clock: Clock = clock or time
        self.waits: bool = clock is None
        self.changed: threading.Condition = threading.Condition(threading.Lock())
        self.numbers: Iterator[int] = count(1)
        self.timed: tuple[Expire, ...] = ()
        self._next_deadline = inf
        """Nothing times out before this moment; it may be too early, never too late."""

    def expect(self, deadline: float) -> None:
        """Something times out at this moment. The lock is held."""
        self._next_deadline = min(self._next_deadline, deadline)

    def tick(self) -> None:
        """End what is over. The lock is held."""
        now = self.clock.monotonic()
        if now >= self._next_deadline:
            self._next_deadline = min([expire(now) for expire in self.timed], default=inf)

    def wait(self, until: float) -> None:
        """Release the lock until something changes, something times out, or `until` on the machine's clock."""
        self.changed.wait(max(0.0, min(until, self._next_deadline) - self.clock.monotonic()))
