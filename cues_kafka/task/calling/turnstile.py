"""At-most-once: which steps of a batch were started, and how much of it has ended (W2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from cues_kafka.core.records import Totals


class Mark(NamedTuple):
    """How much a batch holds: see the attributes of these names."""

    records: int
    deliveries: int
    outputs: int
    errors: int
    messages: int
    size: int
    notes: int
    drained: int
    timers: int

    @property
    def totals(self) -> Totals:
        """The counts, for a record."""
        nils = self.deliveries - self.outputs - self.errors
        more = {"drained": self.drained, "timers": self.timers}
        return Totals(self.deliveries, self.outputs, self.errors, nils, self.messages, **more)


EMPTY = Mark(0, 0, 0, 0, 0, 0, 0, 0, 0)
"""That of a batch without a step."""


class Turnstile:
    """
    What each step of a taken batch passes before user code gets it.

    The thread that calls user code passes and reports; another thread, which gives the task up, closes. Whatever comes
    first: a step that has passed is counted, and after `close` none passes.

    Attributes:
        started: how many steps have passed.
        ended: what the steps that ended have left.
    """

    def __init__(self, shut: Callable[[], bool]) -> None:
        """
        Args:
            shut: whether the task's gate is closed.
        """
        self.started = 0
        self.ended = EMPTY
        self._shut = shut
        self._closed = False
        self._lock = threading.Lock()

    def enter(self, steps: int = 1) -> bool:
        """Whether the next steps may be called now; then they count as started."""
        with self._lock:
            if self._closed or self._shut():
                return False
            self.started += steps
            return True

    def back(self, steps: int = 1) -> None:
        """The last steps have passed, and user code did not get them: their messages cannot be decoded for now."""
        with self._lock:
            if not self._closed:
                self.started -= steps

    def leave(self, mark: Mark) -> None:
        """What the batch holds now belongs to steps that have ended."""
        with self._lock:
            if not self._closed:
                self.ended = mark

    def close(self) -> tuple[int, Mark]:
        """Let no step pass any more; gives how many were started, and what the steps that ended have left."""
        with self._lock:
            self._closed = True
            return self.started, self.ended
