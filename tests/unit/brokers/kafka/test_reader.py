"""What a reader asks the client for before it reads."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cues_kafka import Kafka
from cues_kafka.brokers.kafka import reader as module
from cues_kafka.brokers.kafka.polled import ClientPolling
from cues_kafka.brokers.kafka.reader import KafkaReader
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.ports.log import TopicPartition


class RecordingConsumer:
    """Writes down what it is asked for; it may not reach the cluster."""

    def __init__(self, *, reaches: bool) -> None:
        self.calls: list[str] = []
        self._reaches = reaches

    def list_topics(self, topic: str, timeout: float) -> None:
        """The client learns the leaders."""
        self.calls.append(f"leaders of {topic}")
        if not self._reaches:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def incremental_assign(self, places: list[Any]) -> None:
        """Reading begins."""
        self.calls += [f"read {place.topic}/{place.partition}" for place in places]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a reader over a recording consumer."""

    def make(*, prompt: bool = False, reaches: bool = True) -> tuple[KafkaReader, list[str]]:
        consumer = RecordingConsumer(reaches=reaches)
        monkeypatch.setattr(module, "_opened", lambda *_, **__: (consumer, Watch("reader")))
        monkeypatch.setattr(module, "polling", lambda consumer, **_: ClientPolling(consumer))
        return KafkaReader(Kafka("127.0.0.1:9092"), "reader", prompt=prompt), consumer.calls

    return make


def test_a_reader_asks_for_the_leaders_of_a_topic_before_it_reads_it_and_once(made: Any) -> None:
    """The client would look for them at its next tick, up to a second later."""
    reader, calls = made()

    reader.assign({TopicPartition("b", 0): 0, TopicPartition("a", 0): 0})
    reader.assign({TopicPartition("b", 1): 0})

    assert calls == ["leaders of a", "leaders of b", "read b/0", "read a/0", "read b/1"]


def test_a_reader_that_gets_no_leaders_reads_all_the_same_and_asks_again(made: Any) -> None:
    """The client finds them by itself when the cluster answers; one topic costs no more than one time-out."""
    reader, calls = made(reaches=False)

    reader.assign({TopicPartition("a", 0): 0, TopicPartition("b", 0): 0})
    reader.assign({TopicPartition("a", 1): 0})

    assert calls == ["leaders of a", "read a/0", "read b/0", "leaders of a", "read a/1"]


def test_a_reader_of_a_recovery_does_not_ask(made: Any) -> None:
    """Its topics are known, and a recovery has no time."""
    reader, calls = made(prompt=True)

    reader.assign({TopicPartition("a", 0): 0})

    assert calls == ["read a/0"]
