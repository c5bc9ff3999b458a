"""Brokers that die under load: tasks recover by themselves, and everything is there once, in order."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from cues_kafka import Graph, Json, Processor, Source, TaskStopped, Topic
from cues_kafka.brokers.local import LocalBroker, Node
from cues_kafka.testing.fixtures import FaultClusters
from tests.fault.support import IMPATIENT, Load, Setup, backing, check_chain, committed, outcomes, until

pytestmark = pytest.mark.fault
PARTITIONS = 2


def first(value: Any) -> Any:
    """Errors, nothing, and messages."""
    if value[1] % 10 == 3:
        raise ValueError(f"three: {value}")
    return None if value[1] % 10 == 4 else value


def second(value: Any) -> Any:
    """All that came."""
    return value


def chain(name: str) -> Graph:
    """Two processors in a row."""
    return Graph(
        name,
        Source(f"{name}.in"),
        Processor(first, inputs=f"{name}.in", outputs=f"{name}.mid"),
        Processor(second, inputs=f"{name}.mid", outputs=f"{name}.out"),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def check_prefix(bootstrap: str, name: str) -> None:
    """What is committed so far: in order, without a gap, each message once."""
    for topic in (f"{name}.mid", f"{name}.out"):
        found = committed(bootstrap, topic, to_stable=True)
        for p in range(PARTITIONS):
            numbers = [json.loads(m.value() or b"")[1] for m in found if m.partition() == p]
            assert numbers == [k for k in range(max(numbers, default=-1) + 1) if k % 10 not in (3, 4)]
        assert set(outcomes(found).values()) <= {1}


def check(bootstrap: str, name: str, count: int) -> None:
    """Outputs, errors, totals, each message once."""
    wanted = [k for k in range(count) if k % 10 not in (3, 4)]
    for topic in (f"{name}.mid", f"{name}.out"):
        found = committed(bootstrap, topic)
        for p in range(PARTITIONS):
            values = [json.loads(m.value() or b"") for m in found if m.partition() == p]
            assert values == [[p, k] for k in wanted], topic
        assert set(outcomes(found).values()) == {1}
    errors = committed(bootstrap, f"{name}.errors")
    assert len(errors) == PARTITIONS * sum(k % 10 == 3 for k in range(count))
    assert set(outcomes([*errors, *committed(bootstrap, f"{name}.mid")]).values()) == {1}
    for processor, deliveries in (("first", count), ("second", len(wanted))):
        records = backing(bootstrap, f"{name}.{processor}.backing")
        check_chain(records)
        assert [r[-1]["totals"]["deliveries"] for r in records] == [deliveries] * PARTITIONS


def under_load(broker: LocalBroker, name: str, hurt: Any) -> None:
    """Run the graph, write, hurt the cluster, go on writing, compare everything."""
    setup = Setup(broker.bootstrap, name)
    with setup.start(chain(name), options=IMPATIENT) as running:
        with Load(broker.bootstrap, f"{name}.in", PARTITIONS) as load:
            until(lambda: totals(running) > 100, "it runs")
            hurt()
            before = totals(running)
            until(lambda: totals(running) > before + 100 or running.status().stopped, "it goes on, or says why not", 90)
        running.wait_idle(timeout_s=120)  # raises what has stopped a task
        assert not running.status().stopped
    check(broker.bootstrap, name, load.count)


def totals(running: Any) -> int:
    """Deliveries of all tasks."""
    return sum(task.totals.deliveries for task in running.status().tasks)


@pytest.mark.timeout(400)
def test_a_broker_that_is_killed_and_comes_back_loses_nothing(kafka_fault_cluster: FaultClusters) -> None:
    """
    One node, SIGKILL, started again on its data: everything stood still, then goes on by itself.

    Kafka 4.3.1 has a gap here, seen with one node only, in one of five restarts: of a transaction that was prepared
    when its broker died, the restarted broker notes that it is complete without having written all its markers
    (docs/proof.md says why). It then never ends; or the end of the task's next transaction aborts what is left of
    it, and where that is the offsets, they are other than the record's. The tasks that it concerns must then stop and
    name it, nothing doubled or skipped; and the next broker must do.
    """
    for _ in range(5):
        broker = kafka_fault_cluster()
        [node] = broker.nodes

        def hurt(node: Node = node) -> None:
            node.kill()
            node.start()  # takes seconds, in which all requests fail

        try:
            under_load(broker, "killed", hurt)
        except TaskStopped as stopped:
            known = ("find-hanging", "is not the record's")
            assert any(words in str(stopped) for words in known), stopped  # noqa: PT017 - else it goes on
            check_prefix(broker.bootstrap, "killed")
            broker.stop()
        else:
            return
    pytest.fail("a transaction hung after each of five restarts")


def leader_of(broker: LocalBroker, topic: str) -> Node:
    """The node that leads partition 0."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    leader = client.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return broker.nodes[leader - 1]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("topic", ["leaders.in", "leaders.first.backing", "__transaction_state", "__consumer_offsets"])
def test_three_nodes_go_on_while_a_leader_is_dead(kafka_fault_cluster: FaultClusters, topic: str) -> None:
    """The leader of an input, of a backing partition, and both coordinators; it comes back later."""
    broker = kafka_fault_cluster(3)

    def hurt() -> None:
        node = leader_of(broker, topic)
        node.kill()
        threading.Timer(5.0, node.start).start()

    under_load(broker, "leaders", hurt)
    until(lambda: all(node.is_alive() for node in broker.nodes), "all nodes are back")
