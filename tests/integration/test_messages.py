"""`messages` reads the beginning of a topic, its end, or what came since a time; the same in memory and on Kafka."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cues_kafka import ConfigError, Kafka, Memory, Message, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Kafka | Memory:
    """Both."""
    if request.param == "memory":
        return Memory()
    kafka: KafkaFixture = request.getfixturevalue("kafka")
    return Kafka(kafka.bootstrap)


@pytest.fixture
def topic(cluster: Kafka | Memory, kafka: KafkaFixture) -> str:
    """With two partitions."""
    name = kafka.unique("messages")
    broker = open_broker(cluster)
    broker.create([NewTopic(name, 2)])
    broker.close()
    return name


BEGAN = datetime.now(UTC) - timedelta(hours=2)  # a broker deletes what is older than its retention


def at(number: int) -> datetime:
    return BEGAN + timedelta(seconds=number)


def stamped(number: int) -> Message[int]:
    """Number n goes to partition n modulo 2, n seconds later than 0."""
    return Message(number, partition=number % 2, timestamp_ms=int(at(number).timestamp() * 1000))


def test_messages_are_read_from_the_beginning_from_the_end_or_since_a_time(cluster: Kafka | Memory, topic: str) -> None:
    """Transactions leave markers, which are no messages but have offsets."""
    with connect(cluster) as client:

        def values(**asked: Any) -> list[int]:
            return [message.value for message in client.messages(topic, **asked)]

        assert values() == values(last=5) == values(since=BEGAN) == []
        for first in range(0, 12, 3):
            client.send_many(topic, [stamped(number) for number in range(first, first + 3)])
        even, odd = list(range(0, 12, 2)), list(range(1, 12, 2))

        assert values() == even + odd
        assert values(limit=3) == [0, 2, 4]
        assert values(last=1) == [11]
        assert values(last=5) == [8, 10, 7, 9, 11]
        assert values(last=100) == even + odd
        assert values(last=0) == []
        assert values(since=at(9)) == [10, 9, 11]
        assert values(since=int(at(9).timestamp() * 1000)) == [10, 9, 11]
        assert values(since=at(9), last=2) == [10, 11]
        assert values(since=at(12)) == []
        assert values(since=timedelta(hours=1)) == []
        client.send(topic, Message(12, partition=0))
        assert values(since=timedelta(hours=1)) == values(last=1) == [12]
        with pytest.raises(ConfigError, match="last=-1"):
            client.messages(topic, last=-1)


def test_the_last_messages_are_found_before_many_that_were_aborted(cluster: Kafka | Memory, topic: str) -> None:
    """What is aborted takes offsets, so the first look at the end of the log finds nothing."""
    broker = open_broker(cluster)
    with connect(cluster) as client:
        client.send_many(topic, [stamped(0), stamped(2)])
        session = broker.session(f"{topic}.send.aborted")
        session.init(timeout_s=30)
        session.begin()
        session.produce([(topic, 0, None, b"7", None, 0) for _ in range(30)])
        session.flush()
        session.abandon()
        successor = broker.session(f"{topic}.send.aborted")
        successor.init(timeout_s=30)  # ends the transaction of the other
        successor.close()

        assert [message.value for message in client.messages(topic, last=2)] == [0, 2]
    broker.close()
