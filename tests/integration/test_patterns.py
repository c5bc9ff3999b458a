"""A pattern on a real cluster: topics appear beside tasks at work, and after a restart each goes on at its place."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.running.running import Running
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify


def passed(number: int) -> int:
    """One output for each input."""
    return number


def outputs(running: Running, topic: str) -> list[Any]:
    """All of them, sorted."""
    running.wait_idle(timeout_s=60.0)
    return sorted(one.value for one in running.messages(topic))


@pytest.mark.full
def test_a_topic_that_appears_is_read_once_over_a_restart(kafka: KafkaFixture) -> None:
    """Nothing of it or of the others is lost or repeated."""
    name = kafka.unique("pattern")
    options = Kafka(kafka.bootstrap)
    graph = Graph(
        name,
        Source("numbers", pattern=rf"{name}[.]in[.].+", look_seconds=0.2),
        Processor(passed, inputs="numbers", outputs=f"{name}.out"),
        defaults=Topic(value=Json(int)),
    )
    first, second = f"{name}.in.a", f"{name}.in.b"
    broker = open_broker(options)
    try:
        broker.create([NewTopic(first, 2)])
        with start(graph, options) as running:
            running.send_many(first, range(10))
            assert outputs(running, f"{name}.out") == [*range(10)]
            broker.create([NewTopic(second, 3)])
            running._await(lambda: len(running.names) == 2, 60.0, "grown")
            running.send_many(second, range(10, 20))
            assert outputs(running, f"{name}.out") == [*range(20)]
        with start(graph, options) as running:
            running.send_many(second, range(20, 30))
            running.send_many(first, range(30, 40))
            assert outputs(running, f"{name}.out") == [*range(40)]
            assert verify(running.graph, broker).ok
    finally:
        broker.close()
