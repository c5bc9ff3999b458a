"""A user's own tests: the tester and the fixtures have types that a strict type checker knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cues_kafka import Graph, Json, Kafka, Processor, Received, Source, start
from cues_kafka.testing import Crash, FaultClusters, KafkaFixture, Tester, TestRegistry, check_codec


def double(number: int) -> int:
    return 2 * number


graph = Graph("typed", Source("a"), Processor(double, inputs="a", outputs="b"))


@pytest.fixture
def tester() -> Tester:
    return Tester(graph)


def test_numbers_are_doubled(tester: Tester) -> None:
    """Without a broker, with a crash."""
    tester.send("a", 2)
    tester.run(crash=Crash("after", "Commit"))
    received: Sequence[Received] = tester.run().messages("b")
    assert [message.value for message in received] == [4] == tester.values("b")


def test_numbers_are_doubled_on_kafka(kafka: KafkaFixture, kafka_cluster: str) -> None:
    """On the broker of the run, under names of the test's own."""
    own = Graph(kafka.unique("g"), Source(kafka.unique("a")), Processor(double, inputs=kafka.unique("a"), outputs="b"))
    with start(own, Kafka(kafka.bootstrap)) as running:
        running.send(kafka.unique("a"), 2)
        assert kafka.bootstrap == kafka_cluster


def test_three_brokers_can_be_killed(kafka_fault_cluster: FaultClusters) -> None:
    """By their numbers."""
    cluster = kafka_fault_cluster(nodes=3)
    cluster.nodes[1].kill()


def test_a_registry_stands_in() -> None:
    """Over HTTP."""
    with TestRegistry() as registry:
        url: str = registry.url
    assert url
    check_codec(Json(), [1, "a"])
