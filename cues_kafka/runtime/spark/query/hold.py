"""Holds the micro-batches of a query back while its processor is paused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from cues_kafka.errors import CuesError

LOOK_S: Final = 1.0
"""How often it is asked again whether the processor is held back, besides each time that something changed."""


class HeldAtEnd(CuesError):
    """The worker was stopped while its processor was paused; the batch was not begun, and comes again."""


class BatchHold:
    """
    Waits before each micro-batch until the processor may work. A batch that has begun is delivered to its end.

    Args:
        held: why the processor is held back now; empty: it is not.
    """

    def __init__(self, held: Callable[[], str]) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._ended = False
        self._in_batch = False

    @property
    def why(self) -> str:
        """Why the processor is held back now; empty: it is not."""
        return self._held()

    @property
    def resting(self) -> bool:
        """Whether the processor is held back, and no batch is under way."""
        with self._lock:
            return bool(self._held()) and not self._in_batch

    def over(self, batch: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """The function of a micro-batch, behind the hold."""

        def call(frame: Any, number: int) -> None:
            self._enter()
            try:
                batch(frame, number)
            finally:
                with self._lock:
                    self._in_batch = False

        return call

    def look(self) -> None:
        """Ask again whether the processor is held back."""
        self._news.set()

    def end(self) -> None:
        """The worker stops: a batch that waits fails, and Spark runs it again with the next query."""
        with self._lock:
            self._ended = True
        self._news.set()

    def _enter(self) -> None:
        while True:
            self._news.clear()
            with self._lock:
                if self._ended:
                    raise HeldAtEnd("the worker was stopped while its processor was paused")
                if not self._held():
                    self._in_batch = True
                    return
            self._news.wait(LOOK_S)
