"""Whether a task may go on: set by the thread that serves the group, read by the one that works (A3)."""

from __future__ import annotations

import threading


class Gate:
    """
    One task's permission to begin transactions.

    Attributes:
        closed: no new transaction may begin; one past P5 may end.
        lost: whatever is under way is abandoned.
    """

    __slots__ = ("_event", "closed", "lost")

    def __init__(self) -> None:
        self.closed = False
        self.lost = False
        self._event = threading.Event()

    def close(self, *, lost: bool = False) -> None:
        """Close the gate, and wake a thread that waits at it. It does not open again."""
        self.closed = True
        self.lost = self.lost or lost
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until the time is over or the gate is closed."""
        if seconds > 0:
            self._event.wait(seconds)
