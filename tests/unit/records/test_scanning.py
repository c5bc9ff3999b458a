"""A range of a topic is read to its end, or it is said why not (`records.scanning`)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import RetriableError
from cues_kafka.ports import Fetched, NewTopic, TopicPartition
from cues_kafka.records import scanning

PLACE = TopicPartition("in", 0)


def test_a_cluster_that_stops_in_mid_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader whose broker is gone raises nothing and brings nothing: without a limit, `verify` waits without end."""
    broker = MemoryBroker()
    broker.create([NewTopic("in", 1, 1)])
    broker.sender("test").send([("in", 0, None, b"%d" % n, None, 0) for n in range(4)])
    reader = broker.reader("test")
    first = list(iter_once(reader))

    def poll(timeout_s: float) -> list[Fetched]:
        time.sleep(0.01)
        return [first.pop()] if first else []

    monkeypatch.setattr(scanning, "PATIENCE_S", 0.1)
    monkeypatch.setattr(reader, "poll", poll)
    monkeypatch.setattr(reader, "assign", lambda _: None)
    monkeypatch.setattr(broker, "reader", lambda *_, **__: reader)

    with pytest.raises(RetriableError, match="in/0 below 9"):
        list(scanning.read_range(broker, PLACE, 0, 9))


def iter_once(reader: Any) -> list[Fetched]:
    """What one poll of the whole partition brings, without its end."""
    reader.assign({PLACE: 0})
    return [fetched._replace(eof=None) for fetched in reader.poll(0.0)]
