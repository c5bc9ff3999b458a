"""Connections for questions, one for each process and query run: Spark's Python workers serve many Spark tasks."""

from __future__ import annotations

import threading

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.ports import Broker

_brokers: dict[str, Broker] = {}
_lock = threading.Lock()


def shared_broker(options: Kafka, run: str) -> Broker:
    """The connection of one query run in this process."""
    with _lock:
        if run not in _brokers:
            _brokers[run] = open_broker(options)
        return _brokers[run]
