"""Whether a task may go on: set by the thread that serves the group, seen by the one that works (A3)."""

from __future__ import annotations

import threading


class Gate:
    """
    One task's leave to begin transactions.

    Attributes:
        closed: no new transaction may begin; one that has passed P5 may end.
        lost: whatever is under way, abandon it.
    """

    __slots__ = ("_event", "closed", "lost")

    def __init__(self) -> None:
        self.closed = False
        self.lost = False
        self._event = threading.Event()

    def close(self, *, lost: bool = False) -> None:
        """Close it for ever; who waits at it is woken."""
        self.closed = True
        self.lost = self.lost or lost
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than until the gate is closed."""
        if seconds > 0:
            self._event.wait(seconds)
