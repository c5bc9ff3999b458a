"""Connections for questions, one for each process and query run: Spark's Python workers serve many Spark tasks."""

from __future__ import annotations

import threading
from typing import Final

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.ports import Broker

MOST: Final = 32
"""Runs whose connections a process keeps: a program that writes one job after the other has a run for each."""

_brokers: dict[str, Broker] = {}
_lock = threading.Lock()


def shared_broker(options: Kafka, run: str) -> Broker:
    """The connection of one query run in this process."""
    with _lock:
        broker = _brokers.pop(run, None) or open_broker(options)
        _brokers[run] = broker  # the last one that was asked for is the last to go
        if len(_brokers) > MOST:
            # Whoever has it still may use it: it connects again when it is asked.
            _brokers.pop(next(iter(_brokers))).close()
        return broker
