"""Messages with an empty value and tombstones are messages, though the client's objects of them are false."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cues_kafka import Memory, Message, Raw, Topic, alts, connect
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.connect import Connection
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.scanning import first_from

RAW = Topic(value=Raw())


@pytest.fixture(params=[b"", None], ids=["an empty value", "a tombstone"])
def falsy(request: pytest.FixtureRequest) -> bytes | None:
    """The value of a message that is false."""
    found: bytes | None = request.param
    return found


@pytest.fixture
def cluster() -> Memory:
    """With one topic."""
    memory, broker = Memory(), MemoryBroker()
    broker.create([NewTopic("t", 1)])
    memory.held.append(broker)
    return memory


@pytest.fixture
def client(cluster: Memory, falsy: bytes | None) -> Iterator[Connection]:
    """One whose topic holds a message that is false, and one that is true."""
    with connect(cluster) as found:
        found.topic("t", RAW).append_many([Message(falsy, key="k"), Message(b"next", key="k")])
        yield found


def test_messages_of_the_memory_broker_are_as_true_as_those_of_the_client(cluster: Memory, client: Connection) -> None:
    """`confluent_kafka.Message` has the length of its value, so an empty one is false; no test may pass by luck."""
    reader = cluster.held[0].reader("r")
    reader.assign({TopicPartition("t", 0): 0})
    found: list[WireMessage] = [one for run in reader.poll(0) for one in run.messages]
    assert [bool(one) for one in found] == [False, True]


def test_tailer_reads_past_a_message_that_is_false(client: Connection, falsy: bytes | None) -> None:
    """By each way of reading."""
    topic = client.topic("t", RAW)
    with topic.tailer() as tailer:
        peeked = tailer.peek()
        assert peeked is not None
        assert peeked.value == falsy
        assert [one.value for one in tailer.messages()] == [falsy, b"next"]
        tailer.to_start()
        read = [tailer.read(), tailer.read(), tailer.read()]
        assert [one and one.offset for one in read] == [0, 1, None]
        tailer.to_start()
        waited = [tailer.read_blocking(5), tailer.read_blocking(5)]
        assert [one and one.offset for one in waited] == [0, 1]
        tailer.direction = "backward"
        assert [one.offset for one in tailer.messages()] == [1, 0]


def test_alts_takes_a_message_that_is_false(client: Connection, falsy: bytes | None) -> None:
    """It ended with an AssertionError."""
    with client.topic("t", RAW).tailer() as tailer:
        found = [alts([tailer], timeout_s=5) for _ in range(2)]
        assert [one and one[1].value for one in found] == [falsy, b"next"]


def test_first_message_is_found_where_it_is_false(cluster: Memory, client: Connection) -> None:
    """Recoveries, `lineage` and replays ask for single messages so."""
    broker = cluster.held[0]
    reader = broker.reader("r")
    found = first_from(broker, reader, TopicPartition("t", 0), 0)
    assert found is not None
    assert found.offset() == 0
