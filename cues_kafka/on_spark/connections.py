"""Connections for questions, one for each process and query run, because a Python worker serves many Spark tasks."""

from __future__ import annotations

import threading
from typing import Final

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.ports.broker import Broker

MOST: Final = 32
"""Runs whose connections a process keeps: a program that writes one job after the other has a run for each."""

_brokers: dict[str, Broker] = {}
_lock = threading.Lock()  # guards `_brokers`; held while one opens, so that a run has one connection in a process


def shared_broker(options: Kafka, run: str) -> Broker:
    """The connection of one query run in this process."""
    with _lock:
        broker = _brokers.pop(run, None) or open_broker(options)
        _brokers[run] = broker  # the last used one is the last to go
        if len(_brokers) > MOST:
            # Code that still has it may use it: it connects again.
            _brokers.pop(next(iter(_brokers))).close()
        return broker
