"""What the calls of a batch have written, and how much of it the open transaction of the target has (E1)."""

from __future__ import annotations

from typing import Any, Final

from cues_kafka.graph.targets import Transactions

EARLY: Final = 64
"""Writes that are handed on together during the calls. Of a message of 100 bytes by STOMP they are 16 kB."""


class Writes:
    """
    The writes of one batch. The calling thread uses it; other threads only `add`.

    A target may take writes while the function is still called: see `Transactions.early`. Its `begin` takes back what
    is open. So a write that was handed on can still be taken back, together with all others.
    """

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._mark = 0
        self._into: Transactions | None = None  # has the first ones in its open transaction
        self._handed = 0
        self._failed: Exception | None = None

    def add(self, item: Any) -> bool:
        """Add a write; whether it is time to call `hand_on_early`."""
        self._items.append(item)
        return len(self._items) - self._handed >= EARLY

    def mark(self) -> None:
        """What is added from now on can be taken back by `back`."""
        self._mark = len(self._items)

    def back(self) -> None:
        """Take back what was added since the last `mark`."""
        del self._items[self._mark :]
        if self._handed > self._mark:
            self._into = None

    def hand_on_early(self, opened: Transactions | None) -> None:
        """Hand on what was added, where the target takes that early. What it raises is raised by `hand_on`."""
        if self._failed is None and opened is not None and opened.early:
            try:
                self.hand_on(opened)
            except Exception as error:  # noqa: BLE001 - a function of the user's may not take it for its own
                self._failed = error

    def hand_on(self, opened: Transactions) -> None:
        """Hand on what was added, in a transaction that begins with the first of it."""
        if self._failed is not None:
            raise self._failed
        if self._into is not opened:
            opened.begin()
            self._into, self._handed = opened, 0
        for item in self._items[self._handed :]:
            opened.write(item)
            self._handed += 1
