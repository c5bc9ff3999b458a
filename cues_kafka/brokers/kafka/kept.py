"""Keeps the connected consumers of closed readers for the next reader of the same name.

A recovery reads a record or two, and a new consumer takes longer to connect than to read them. A program that recovers
often, such as the driver of a staged query at each batch, says so (`Broker.expect`); for others no consumer is kept.
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
"""A consumer that was not asked for in this time is closed: its query has ended, or is slow enough to wait."""


class _Kept(NamedTuple):
    name: str
    consumer: Consumer
    watch: Watch
    since_s: float


class KeptConsumers:
    """Consumers without a reader and without partitions; may be shared by threads."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._most = 0
        self._consumers: list[_Kept] = []
        # Guards `_most`, `_consumers` and `_timer`. Consumers are closed outside of it: closing waits for the cluster.
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()

    def keep(self, most: int) -> None:
        """Keep at most this many, and close the others."""
        if self._forked:
            return
        with self._lock:
            self._most = most
            gone, self._consumers = self._consumers[most:], self._consumers[:most]
            if self._timer and not self._consumers:
                self._timer.cancel()
                self._timer = None
        _close(gone)

    @property
    def keeps_any(self) -> bool:
        """Whether any is kept. If not, a reader need not check whether its consumer could be."""
        return self._most > 0

    def put(self, name: str, consumer: Consumer, watch: Watch) -> bool:
        """Keep a consumer; False: the caller has to close it."""
        if self._forked:
            return False
        with self._lock:
            if len(self._consumers) >= self._most:
                return False
            watch.forget()  # first: as soon as the consumer is in the list, another reader may have it
            self._consumers.append(_Kept(name, consumer, watch, time.monotonic()))
            self._watch_idle()
        return True

    def take(self, name: str) -> tuple[Consumer, Watch] | None:
        """The consumer of that name that was used last; None in a fork of the process that has them."""
        if self._forked:
            return None
        with self._lock:
            for place in reversed(range(len(self._consumers))):
                if self._consumers[place].name == name:
                    kept = self._consumers.pop(place)
                    return kept.consumer, kept.watch
        return None

    def discard_all(self) -> None:
        """Close all: one of them did not do what a new one does, and the others may know the same old facts (R5)."""
        with self._lock:
            gone, self._consumers = self._consumers, []
        _close(gone)

    @property
    def _forked(self) -> bool:
        """Whether this is a fork: it has no threads of librdkafka, so even closing a client would never return."""
        return os.getpid() != self._pid

    def _watch_idle(self) -> None:
        # Called with the lock held.
        if self._timer is None and self._consumers:
            self._timer = threading.Timer(self._idle_s, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            self._timer = None
            since_s = time.monotonic() - self._idle_s
            gone = [kept for kept in self._consumers if kept.since_s <= since_s]
            self._consumers = [kept for kept in self._consumers if kept.since_s > since_s]
            self._watch_idle()
        _close(gone)


def _close(gone: list[_Kept]) -> None:
    for kept in gone:
        kept.consumer.close()
