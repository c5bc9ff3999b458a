"""Batches that a real client refuses: each stop names setting, topic, partition and offset, and there is a way past."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import Producer

from cues_kafka import Graph, Kafka, Processor, Raw, Source, TaskStopped, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.look.status import status
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import until

BOMB = bytes(120_000_000)
"""With zstd 11 kB, which no client with its defaults unpacks."""

LIMIT = {"receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000}


def first(value: bytes) -> bytes:
    """Little of it."""
    return value[:10]


@pytest.mark.parametrize(
    ("codec", "value", "why"),
    [("zstd", bytes(3_000_000), "_BAD_COMPRESSION"), ("none", os.urandom(3_000_000), "TOO_LARGE")],
    ids=["unpacks to more than the limit", "is larger than the limit"],
)
def test_stop_at_a_batch_that_the_client_refuses_has_two_ways_out(
    kafka: KafkaFixture, codec: str, value: bytes, why: str
) -> None:
    """The setting that is named lets it through; `accept-loss` passes it, and `verify` says so."""
    name = kafka.unique("g")
    config = {"max.message.bytes": "10000000"}
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(first, name="p", inputs=f"{name}.in", outputs=f"{name}.out"),
        errors=f"{name}.errors",
        defaults=Topic(value=Raw(), partitions=1, config=config),
    )
    options = Kafka(kafka.bootstrap, consumer=LIMIT)
    with start(graph, options) as running:
        running.send(f"{name}.in", b"a")
        running.wait_idle(timeout_s=30)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec,
            "message.max.bytes": 9_000_000,
            "linger.ms": 0,
        }
    )
    for one in (b"b", value, b"c"):
        producer.produce(f"{name}.in", one, partition=0)
        assert not producer.flush(30)

    with start(graph, options) as running, pytest.raises(TaskStopped) as stopped:  # noqa: PT012
        try:
            running.wait_idle(timeout_s=40)
        finally:
            running.abandon()
    text = str(stopped.value)
    assert why in text
    assert f"{name}.in/0 at offset 2 " in text
    assert "raise receive.message.max.bytes in Kafka(consumer={...}), here 2,000,000" in text
    assert "`cues-kafka accept-loss MODULE:GRAPH p`" in text
    assert "deleted topic" not in text
    assert not status(options, graph).unreachable

    broker = open_broker(options)
    tool = Maintenance(graph, broker, "p", who="accept-loss")
    [move] = accept_loss(tool)
    tool.carry_out([move])
    with start(graph, options) as running:
        running.wait_idle(timeout_s=30)
        assert [m.value for m in running.messages(f"{name}.out")] == [b"a", b"b", b"c"]
    report = verify(graph, broker)
    assert report.ok, list(report.lines)
    assert report["p"].accepted == 1
    broker.close()


@pytest.mark.full
def test_batch_of_others_on_our_topics_ends_no_start_and_no_command(kafka: KafkaFixture) -> None:
    """On the topics of control and of status: before, no task worked after the next start."""
    name = kafka.unique("g")
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(first, name="p", inputs=f"{name}.in", outputs=f"{name}.out"),
        defaults=Topic(value=Raw(), partitions=1),
    )
    options = Kafka(kafka.bootstrap)
    with start(graph, options) as running:
        running.send(f"{name}.in", b"a")
        running.wait_idle(timeout_s=30)
    packed = {"compression.type": "zstd", "message.max.bytes": 200_000_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **packed})
    for topic in ("control", "status"):
        producer.produce(f"{name}.{topic}", BOMB, b"bomb", partition=0)
        assert not producer.flush(60)
    with start(graph, options) as running:
        running.send(f"{name}.in", b"b")
        running.wait_idle(timeout_s=30)
        # A task tells its new state within five seconds.
        until(lambda: status(options, graph).ok, "the status says that all is well", 30)
        assert status(options, graph).unreachable == ""
        broker = open_broker(options)
        Pausing(graph, broker, who="test", sides=Sides.of(options)).resume()
        broker.close()
        assert [m.value for m in running.messages(f"{name}.out")] == [b"a", b"b"]
