"""Tailers and clients at their edges: logs that change under them, and what is closed too early (K1, K3, K4)."""

from __future__ import annotations

import pytest

from cues_kafka import Json, Memory, Message, RecoveryError, Topic, connect
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.connect import Connection
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition


@pytest.fixture
def cluster() -> Memory:
    memory, broker = Memory(), MemoryBroker()
    broker.create([NewTopic("t", 1), NewTopic("u", 1)])
    memory.held.append(broker)
    return memory


def test_an_open_tailer_tells_that_its_next_messages_were_deleted(cluster: Memory) -> None:
    """Each time, and it does not skip them; then it goes where it is told to."""
    with connect(cluster) as client, client.topic("t").tailer() as tailer:
        client.topic("t").append_many(range(5))
        assert len(list(tailer.messages())) == 5
        client.topic("t").append_many(range(5))
        cluster.held[0].trim({TopicPartition("t", 0): 8})
        for _ in range(2):
            with pytest.raises(RecoveryError, match=r"the tailer is at offset 5 of .*, which has offsets 8 to 10"):
                tailer.read()
        tailer.to_start()
        found = tailer.read()
        assert found is not None
        assert found.offset == 8


@pytest.mark.parametrize("opened", [False, True], ids=["while it was closed", "while it was open"])
def test_a_place_is_never_one_of_a_recreated_topic(cluster: Memory, opened: bool) -> None:
    """However short ago the client has asked for the topic, and whatever it has asked meanwhile."""
    broker = cluster.held[0]
    with connect(cluster, name="one") as client:
        topic = client.topic("t")
        topic.append_many(range(3))
        tailer = topic.tailer(name="x")
        tailer.read()
        if not opened:
            with client.transaction() as tx:
                tx.advance(tailer)
            tailer.close()
        broker.delete(["t"])
        broker.create([NewTopic("t", 1)])
        topic.append_many(range(3))
        if opened:
            topic.access.refresh()
            with client.transaction() as tx:
                tx.advance(tailer)
            tailer.close()
        with pytest.raises(RecoveryError, match="was recreated after tailer 'x'"):
            topic.tailer(name="x")


def test_sent_reads_partitions_that_were_just_added(cluster: Memory) -> None:
    """None would be taken for final, and the message be sent again."""
    with connect(cluster, name="one") as client:
        assert client.sent("t", "a") is None
        cluster.held[0].add_partitions("t", 2)
        client.topic("t", Topic(value=Json())).append(Message(1, partition=1), id="a")
        assert client.sent("t", "a") is not None


def test_a_closed_client_does_not_take_its_id_again(cluster: Memory) -> None:
    """A thread that still uses it would end the transactions of the next run."""
    old = connect(cluster, name="one")
    tailer = old.topic("t").tailer(name="x")
    old.close()
    with connect(cluster, name="one") as new:
        with pytest.raises(RuntimeError, match="client 'one' is closed"):
            old.send("t", "old", id="a")
        with pytest.raises(RuntimeError, match="client 'one' is closed"):
            old.send("t", "old")
        with pytest.raises(RuntimeError, match="is closed and can no longer write"):
            tailer.stored.store({0: 0})
        new.send("t", "new", id="b")
        assert [message.value for message in new.messages("t")] == ["new"]


def close_too_early(client: Connection, error: Exception | None = None) -> None:
    """A transaction that ends behind its tailer."""
    with client.transaction() as tx, client.topic("t").tailer(name="x") as tailer:
        tailer.read()
        tx.advance(tailer)
        tx.append("u", 1)
        if error:
            raise error


def test_a_transaction_refuses_a_tailer_that_was_closed_before_its_end(cluster: Memory) -> None:
    """Its id would be taken again, by a session that nothing closes."""
    with connect(cluster, name="one") as client:
        client.send("t", 1)
        with pytest.raises(RuntimeError, match="is closed and can no longer write"):
            close_too_early(client)
        assert list(client.messages("u")) == []


def test_an_exception_passes_a_transaction_whose_tailer_is_closed(cluster: Memory) -> None:
    """The place of a closed tailer is where it was stored anyway."""
    with connect(cluster, name="one") as client:
        client.send("t", 1)
        with pytest.raises(ValueError, match="mine"):
            close_too_early(client, ValueError("mine"))
