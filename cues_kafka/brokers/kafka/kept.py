"""Consumers of readers that were closed, connected as they are, for the next reader of that name.

A recovery reads a record or two, for which a new consumer connects for longer than it reads. Who recovers again and
again, such as the driver of a staged query at each batch, says so (`Broker.expect`); nobody else keeps any.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from cues_kafka.brokers.kafka.watch import Watch


class KeptConsumers:
    """May be shared by threads; each consumer in it belongs to nobody, and has no partition."""

    def __init__(self) -> None:
        self._most = 0
        self._held: list[tuple[str, Consumer, Watch]] = []
        self._lock = threading.Lock()

    def keep(self, most: int) -> None:
        """Keep no more than so many; those that are too many are closed."""
        with self._lock:
            self._most = most
            gone, self._held = self._held[most:], self._held[:most]
        for _, consumer, _ in gone:
            consumer.close()

    def put(self, name: str, consumer: Consumer, watch: Watch) -> bool:
        """Whether it is kept; otherwise the caller closes it."""
        with self._lock:
            if len(self._held) >= self._most:
                return False
            self._held.append((name, consumer, watch))
            return True

    def take(self, name: str) -> tuple[Consumer, Watch] | None:
        """A consumer of that name, the one that was used last."""
        with self._lock:
            for place in reversed(range(len(self._held))):
                found, consumer, watch = self._held[place]
                if found == name:
                    del self._held[place]
                    return consumer, watch
        return None
