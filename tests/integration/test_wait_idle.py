"""`wait_idle`: not before everything is delivered, and not for what cannot be delivered yet."""

from __future__ import annotations

from contextlib import closing

import pytest

from cues_kafka import Graph, Kafka, Memory, Message, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.fixtures import KafkaFixture
from examples.flights.progress import Progress
from tests.unit.samples import same


@pytest.fixture(params=["memory", "kafka"])
def options(request: pytest.FixtureRequest) -> Memory | Kafka:
    """A cluster."""
    if request.param == "memory":
        return Memory()
    kafka: KafkaFixture = request.getfixturevalue("kafka")
    return Kafka(kafka.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest, kafka: KafkaFixture) -> str:
    """Of a graph that no other test has."""
    return kafka.unique("idle")


def three_in_a_row(name: str) -> Graph:
    """From `a` to `d`."""
    pipes = [
        Processor(same, inputs=f"{name}.{i}", outputs=f"{name}.{o}", name=f"from-{i}") for i, o in ("ab", "bc", "cd")
    ]
    return Graph(name, Source(f"{name}.a"), *pipes)


@pytest.mark.parametrize("topic", ["b", "d"])
def test_a_graph_is_not_idle_while_a_transaction_writes_to_a_topic(
    options: Memory | Kafka, name: str, topic: str
) -> None:
    """Markers come a moment after the answer to a commit: until then no reader sees what it wrote."""
    with start(three_in_a_row(name), options) as running:
        broker = open_broker(options)
        session = broker.session(f"{name}.other")
        session.init(timeout_s=30.0)
        session.begin()
        session.produce([Outgoing(f"{name}.{topic}", 0, None, b"1")])
        session.flush()
        with pytest.raises(TimeoutError):
            running.wait_idle(timeout_s=0.5)
        session.commit()
        session.close()
        broker.close()
        running.wait_idle()

        assert [message.value for message in running.messages(f"{name}.d")] == [1]


def test_what_a_graph_has_delivered_is_there_when_it_is_idle(options: Memory | Kafka, name: str) -> None:
    """Again and again: it is a race with the markers of three commits."""
    with start(three_in_a_row(name), options) as running:
        for n in range(1, 31):
            running.send(f"{name}.a", n)
            running.wait_idle()

            assert len(list(running.messages(f"{name}.d"))) == n


def add(left: int, right: int) -> int:
    """Of a pair."""
    return left + right


def test_an_unpaired_message_of_a_task_in_another_process_is_no_work(options: Memory | Kafka, name: str) -> None:
    """Each of two workers has one of the two tasks; `Progress` sees both from outside, and says the same."""
    inputs = {"left": f"{name}.l", "right": f"{name}.r"}
    sources = [Source(topic) for topic in inputs.values()]
    graph = Graph(
        name, *sources, Processor(add, inputs=inputs, outputs=f"{name}.sum"), defaults=Topic(partitions=2)
    )  # fmt: skip
    with start(graph, options) as one, start(graph, options) as other:
        for partition in range(2):
            one.send(f"{name}.l", Message(1, partition=partition))
            one.send(f"{name}.l", Message(2, partition=partition))
            one.send(f"{name}.r", Message(10, partition=partition))
        one.wait_idle(timeout_s=30)
        other.wait_idle(timeout_s=30)

        assert sorted(message.value for message in one.messages(f"{name}.sum")) == [11, 11]
        with closing(open_broker(options)) as broker, Progress(graph, broker) as seen:
            while len(seen.newest) < 2:
                seen.poll(1.0)
            assert seen.behind() == []
