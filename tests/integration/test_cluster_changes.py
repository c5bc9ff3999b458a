"""What a worker says about its cluster while it runs: new partitions, and a cluster that does not answer."""

from __future__ import annotations

from contextlib import closing

import pytest

from cues_kafka import Graph, Kafka, Memory, Message, Processor, RetriableError, Source, Topic, start
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.testing.fixtures import FaultClusters, KafkaFixture
from cues_kafka.workers import questions
from tests.integration.test_supervisor import wait_for
from tests.unit.samples import same


def test_new_partitions_are_noticed_and_their_tasks_start_once_they_can(
    kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """First without backing partitions, which the log asks for; then with them, as `plan --apply` adds them."""
    monkeypatch.setattr(questions, "CHECK_CLUSTER_S", 0.5)
    name = kafka.unique("grown")
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(same, inputs=f"{name}.in", outputs=f"{name}.out", name="f"),
        defaults=Topic(partitions=2),
    )
    options = Kafka(kafka.bootstrap, consumer={"topic.metadata.refresh.interval.ms": 1000})
    with closing(open_broker(options)) as broker, start(graph, options) as running:
        broker.add_partitions(f"{name}.in", 3)
        wait_for(lambda: "partitions without tasks" in caplog.text, timeout_s=30)
        wait_for(lambda: running.status().stopped, timeout_s=60)  # the group has given it, and it cannot run
        broker.add_partitions(f"{name}.f.backing", 3)
        wait_for(lambda: [t.task for t in running.status().tasks] == ["f/0", "f/1", "f/2"], timeout_s=30)
        wait_for(lambda: not running.status().stopped, timeout_s=30)
        running.send(f"{name}.in", Message(7, partition=2))
        running.wait_idle()

        assert [message.value for message in running.messages(f"{name}.out")] == [7]

    [said] = [record.message for record in caplog.records if "partitions without tasks" in record.message]
    assert f"topic='{name}.in' partitions=3 tasks=2 remedy='cues-kafka plan MODULE:GRAPH --apply" in said


def test_a_member_asks_for_new_partitions_every_15_seconds() -> None:
    """The client's five minutes were how long messages of a new partition waited."""
    settings = Kafka("localhost:9092").settings("member", client_id="c")

    assert settings["topic.metadata.refresh.interval.ms"] == 15_000


class Silent(Faults):
    """A cluster that answers no question about topics while it is silent."""

    def __init__(self) -> None:
        self.silent = False

    def before(self, operation: str, client: str) -> None:
        """Refuse."""
        if self.silent and operation == "partitions":
            raise RetriableError("wrong user name or password")


def test_a_worker_says_that_it_cannot_reach_the_cluster_and_that_it_can_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle worker asks nothing else: it looked healthy while its password was refused. One line each, no more."""
    monkeypatch.setattr(questions, "CHECK_CLUSTER_S", 0.05)
    monkeypatch.setattr(questions, "UNREACHABLE_S", 0.2)
    faults, memory = Silent(), Memory()
    memory.held.append(MemoryBroker(faults=faults))
    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out", name="f"))

    def said(event: str) -> list[str]:
        return [record.message for record in caplog.records if record.message.startswith(event)]

    with start(graph, memory) as running:

        def unreachable_s() -> float:
            [task] = running.status().tasks
            return task.unreachable_s

        faults.silent = True
        wait_for(lambda: said("cluster unreachable"))
        wait_for(lambda: unreachable_s() > 0.4)
        assert "cluster unreachable for" in str(running.status())
        faults.silent = False
        wait_for(lambda: said("cluster reachable again"))
        assert unreachable_s() == 0.0

    [lost], [back] = said("cluster unreachable"), said("cluster reachable again")
    assert lost.endswith("why='wrong user name or password'")
    assert "processor='f'" in lost
    assert "processor='f'" in back


@pytest.mark.full
def test_an_idle_worker_notices_that_its_broker_died_and_came_back(
    kafka_fault_cluster: FaultClusters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a real broker; then it goes on by itself."""
    monkeypatch.setattr(questions, "CHECK_CLUSTER_S", 0.5)
    monkeypatch.setattr(questions, "UNREACHABLE_S", 2.0)
    broker = kafka_fault_cluster()
    [node] = broker.nodes
    graph = Graph("idle", Source("in"), Processor(same, inputs="in", outputs="out", name="f"))
    with start(graph, Kafka(broker.bootstrap, socket_timeout_s=3, start_timeout_s=3)) as running:
        running.send("in", 1)
        running.wait_idle()
        node.kill()
        wait_for(lambda: "cluster unreachable" in caplog.text, timeout_s=60)
        node.start()
        wait_for(lambda: "cluster reachable again" in caplog.text, timeout_s=60)
        running.send("in", 2)
        running.wait_idle()

        assert [message.value for message in running.messages("out")] == [1, 2]
