"""The client of `connect`: several in one process, and the size limit of `send`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cues_kafka import CodecError, ConfigError, Graph, Json, Memory, OutputError, Source, Topic, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.tester import Tester


def test_two_clients_of_a_process_do_not_fence_each_other() -> None:
    """Their transactions had one id."""
    memory = Memory()
    open_broker(memory).create([NewTopic("t", 1)])
    with connect(memory) as one, connect(memory) as two:
        one.send_many("t", [1])
        two.send_many("t", [2])
        one.send_many("t", [3])
        assert [m.value for m in one.messages("t")] == [1, 2, 3]


def test_what_the_client_cannot_take_is_refused_by_send_as_by_produce() -> None:
    """Between the client's limit and a higher one of the topic."""
    memory = Memory()
    open_broker(memory).create([NewTopic("wide", 1, config={"max.message.bytes": "5000000"})])

    with (
        connect(memory) as client,
        pytest.raises(OutputError, match=r"'wide' are more than the 1000000 of message\.max\.bytes"),
    ):
        client.send("wide", "x" * 1_200_000)


def test_a_source_that_is_exactly_once_takes_messages_with_ids_only() -> None:
    """Each way to send without one is refused; a transaction by hand may advance a tailer, so it is not."""
    graph = Graph("g", Source("orders", level="exactly-once"), Source("others"))
    memory = Memory()
    open_broker(memory).create([NewTopic("orders", 1), NewTopic("others", 1)])
    with connect(memory, graph, name="till") as client:
        for send in (
            lambda: client.send("orders", 1),
            lambda: client.send_many("orders", [1]),
            lambda: client.topic("orders").append(1),
            lambda: client.topic("orders").append_many([1]),
        ):
            with pytest.raises(ConfigError, match=r"level='exactly-once'.* Send each one with an id"):
                send()
        client.send("orders", 1, id="a")
        client.send("others", 1)
        with client.transaction() as transaction:
            transaction.append("orders", 2)
        assert [m.value for m in client.messages("orders")] == [1, 2]


@dataclass(frozen=True)
class Booking:
    """A class without None."""

    id: int


def test_message_that_cannot_be_decoded_is_named() -> None:
    """By partition and offset: a topic has many."""
    tester = Tester(Graph("g", Source("in"), topics={"in": Topic(value=Json(Booking), partitions=1)}))
    tester.send("in", Booking(1), key="a")
    tester.broker.sender("test").send([("in", 0, b"a", None, None, 0)])
    with pytest.raises(CodecError, match=r"in/0 at offset 1 cannot be decoded: .*has no value \(a tombstone\)"):
        list(tester.messages("in"))
