"""Holds the micro-batches of a query back while its processor is paused, or while errors are replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from cues_kafka.errors import CuesError

LOOK_S: Final = 1.0
"""How often it is asked again whether the processor is held back, besides each time that something changed."""


class HeldAtEnd(CuesError):
    """The worker was stopped while its processor was paused; the batch was not begun, and comes again."""


class BatchHold:
    """
    Waits before each micro-batch until the processor may work. A batch that has begun is delivered to its end.

    Attributes:
        batches: how many have begun.

    Args:
        held: why the processor is held back now; empty: it is not.
    """

    def __init__(self, held: Callable[[], str]) -> None:
        self.batches = 0
        self._held = held
        # `_lock` guards `_ended` and `_at_work`, and is held while `held` is asked: where `resting` is true, no batch
        # begins until the processor is free. `_turn` is held during a batch, or during what goes on between two.
        # Order: `_turn`, then `_lock`, then what `held` takes. Nothing waits under `_lock`.
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._news = threading.Event()
        self._ended = False
        self._at_work = 0  # a batch, and what goes on between two of them

    @property
    def why(self) -> str:
        """Why the processor is held back now; empty: it is not."""
        return self._held()

    @property
    def resting(self) -> bool:
        """Whether the processor is held back, and no batch is under way."""
        with self._lock:
            return bool(self._held()) and not self._at_work

    def comes_since(self, batches: int) -> bool:
        """Whether a batch is under way, or has begun since there were that many."""
        with self._lock:
            return self.batches > batches or self._at_work > 0

    def over(self, batch: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """The function of a micro-batch, behind the hold."""

        def call(frame: Any, number: int) -> None:
            # Before its turn: while the batch waits for it, `comes_since` is true, and replays leave it the time (Y3).
            self._enter()
            self.batches += 1  # without the lock: Spark calls one batch at a time
            try:
                with self._turn:
                    batch(frame, number)
            finally:
                self._leave()

        return call

    @contextmanager
    def between(self) -> Iterator[bool]:
        """Keep batches back for as long as the block takes; False: the processor is held back, or its worker stops."""
        with self._turn:
            free = self._try_enter()
            try:
                yield free
            finally:
                if free:
                    self._leave()

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
            self._news.clear()  # before the question: news that come behind it end the wait
            if self._try_enter():
                return
            if self._ended:
                raise HeldAtEnd("the worker was stopped while its processor was paused")
            self._news.wait(LOOK_S)

    def _try_enter(self) -> bool:
        with self._lock:
            if self._ended or self._held():
                return False
            self._at_work += 1
            return True

    def _leave(self) -> None:
        with self._lock:
            self._at_work -= 1
