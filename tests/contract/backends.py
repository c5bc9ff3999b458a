"""The brokers under test, as a contract case sees them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.options import Kafka
from cues_kafka.ports.broker import Broker
from tests.contract.world import record


class MemoryBackend:
    """The memory broker, or a broken one."""

    def __init__(self, kind: type[MemoryBroker] = MemoryBroker, *, patience_s: float = 2.0) -> None:
        self.patience_s = patience_s
        self.settle_s = 0.05
        self._kind = kind
        self._numbers = itertools.count()

    def open(self, *, transaction_timeout_s: float | None = None, eager: bool = False) -> Broker:
        return self._kind(transaction_timeout_s=0.1 if transaction_timeout_s else 60.0, cooperative=not eager)

    def unique(self, name: str) -> str:
        return f"{name}-{next(self._numbers)}"

    def compact(self, broker: Broker, topic: str) -> None:
        assert isinstance(broker, MemoryBroker)
        broker.compact(topic)

    def compaction_config(self) -> dict[str, str]:
        return {"cleanup.policy": "compact"}


class KafkaBackend:
    """A real Kafka."""

    patience_s = 30.0
    settle_s = 1.5

    def __init__(self, fixture: Any) -> None:
        self._fixture = fixture

    def open(self, *, transaction_timeout_s: float | None = None, eager: bool = False) -> Broker:
        from cues_kafka.brokers.kafka import KafkaBroker

        options = Kafka(self._fixture.bootstrap, assignor="range" if eager else "cooperative-sticky")
        if transaction_timeout_s is not None:
            # Three seconds: the least that leaves three requests their time, as Kafka(...) demands.
            options = replace(options, transaction_timeout_s=max(3.0, transaction_timeout_s), socket_timeout_s=1.0)
        return KafkaBroker(options)

    def unique(self, name: str) -> str:
        return str(self._fixture.unique(name))

    def compact(self, broker: Broker, topic: str) -> None:
        """The cleaner works by itself, on closed segments only: a record closes the one before it."""
        sender = broker.sender("compaction")
        sender.send([record(topic, b"roll", b"roll")])
        sender.close()

    def compaction_config(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": "100",
            "max.compaction.lag.ms": "200",
        }
