"""Consumers of readers that were closed, connected as they are, for the next reader of that name.

A recovery reads a record or two, for which a new consumer connects for longer than it reads. Who recovers again and
again, such as the driver of a staged query at each batch, says so (`Broker.expect`); nobody else keeps any.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from cues_kafka.brokers.kafka.watch import Watch

IDLE_S: Final = 60.0
"""A consumer that nobody has asked for in this time is closed: its query has ended, or is slow enough to wait."""


class _Kept(NamedTuple):
    name: str
    consumer: Consumer
    watch: Watch
    since_s: float


class KeptConsumers:
    """May be shared by threads; each consumer in it belongs to nobody, and has no partition."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        """
        Args:
            idle_s: after which a consumer is closed.
        """
        self._idle_s = idle_s
        self._most = 0
        self._held: list[_Kept] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()

    def keep(self, most: int) -> None:
        """Keep no more than so many; those that are too many are closed."""
        if self._forked:
            return
        with self._lock:
            self._most = most
            gone, self._held = self._held[most:], self._held[:most]
            if self._timer and not self._held:
                self._timer.cancel()
                self._timer = None
        _close(gone)

    @property
    def wanted(self) -> bool:
        """Whether any is kept; else a reader need not even look whether its consumer could be."""
        return self._most > 0

    def put(self, name: str, consumer: Consumer, watch: Watch) -> bool:
        """Whether it is kept; otherwise the caller closes it."""
        if self._forked:
            return False
        with self._lock:
            if len(self._held) >= self._most:
                return False
            watch.forget()
            self._held.append(_Kept(name, consumer, watch, time.monotonic()))
            self._watch_idle()
        return True

    def take(self, name: str) -> tuple[Consumer, Watch] | None:
        """A consumer of that name, the one that was used last; none in a fork of the process that has them."""
        if self._forked:
            return None
        with self._lock:
            for place in reversed(range(len(self._held))):
                if self._held[place].name == name:
                    kept = self._held.pop(place)
                    return kept.consumer, kept.watch
        return None

    def doubt(self) -> None:
        """Close all: one of them did not do what a new one does, and the others know what it knew (R5)."""
        with self._lock:
            gone, self._held = self._held, []
        _close(gone)

    @property
    def _forked(self) -> bool:
        """A fork has no threads of librdkafka: even closing a client would wait for them for ever."""
        return os.getpid() != self._pid

    def _watch_idle(self) -> None:
        if self._timer is None and self._held:
            self._timer = threading.Timer(self._idle_s, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            self._timer = None
            since_s = time.monotonic() - self._idle_s
            gone = [kept for kept in self._held if kept.since_s <= since_s]
            self._held = [kept for kept in self._held if kept.since_s > since_s]
            self._watch_idle()
        _close(gone)


def _close(gone: list[_Kept]) -> None:
    for kept in gone:
        kept.consumer.close()
