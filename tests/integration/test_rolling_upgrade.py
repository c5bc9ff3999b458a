"""Two versions of a graph side by side in one group: each message has one outcome, of one version or the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import ModuleType
from typing import Any

import pytest

from cues_kafka import Graph, Kafka, Memory, Message, Running, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import until

OLD = """
from cues_kafka import Graph, Json, Processor, Source, Topic

def price(order: int) -> dict:
    return {"order": order, "version": 1}

graph = Graph("NAME", Source("NAME.orders"), Processor(price, inputs="NAME.orders", outputs="NAME.priced"),
              errors="NAME.errors", defaults=Topic(partitions=4))
"""

NEW = """
from cues_kafka import Graph, Json, Out, Processor, Source, Topic

def price(order: int):
    if order % 50 == 0:
        raise ValueError("a new check")
    yield Out("priced", {"order": order, "version": 2, "tax": order // 5})
    if order % 10 == 0:
        yield Out("large", order)

def count(order: dict) -> int:
    return order["order"]

graph = Graph("NAME", Source("NAME.orders"),
              Processor(price, inputs="NAME.orders", outputs={"priced": "NAME.priced", "large": "NAME.large"}),
              Processor(count, inputs="NAME.priced", outputs="NAME.counted"),
              errors="NAME.errors", defaults=Topic(partitions=4))
"""


def version(text: str, name: str) -> Graph:
    """The graph of a module with this text."""
    module = ModuleType(f"shop_{abs(hash(text))}")
    exec(text.replace("NAME", name), module.__dict__)
    graph: Graph = module.graph
    return graph


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.full)])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """A cluster, and the name of a graph that is not there yet."""
    if request.param == "memory":
        yield Memory(), "shop"
    else:
        kafka: KafkaFixture = request.getfixturevalue("kafka")
        yield Kafka(kafka.bootstrap), kafka.unique("shop")


def test_old_and_new_workers_share_a_group_until_all_are_new(cluster: tuple[Any, str]) -> None:
    """One worker after the other is replaced, while messages come. One of them dies in between, and one goes back."""
    options, name = cluster
    old, new = version(OLD, name), version(NEW, name)
    orders, policy = iter(range(1, 10_000)), CommitPolicy(max_messages=20, max_seconds=0.05)

    with ExitStack() as stack:

        def worker(graph: Graph, instance: str) -> Running:
            return stack.enter_context(start(graph, options, instance=instance, policy=policy))

        def send(running: Running) -> list[int]:
            sent = [next(orders) for _ in range(200)]
            running.send_many(f"{name}.orders", [Message(order, partition=order % 4) for order in sent])
            return sent

        def both_have_tasks() -> bool:
            return all(sum(one.task.startswith("price/") for one in w.status().tasks) == 2 for w in (first, second))

        first, second = worker(old, "w.1"), worker(old, "w.2")
        until(both_have_tasks, "the old workers share the tasks")
        send(first)
        first.release()
        first = worker(new, "w.1")  # the other one is old
        until(both_have_tasks, "the new worker has the tasks of the one before")
        mixed = send(first)
        first.wait_idle(timeout_s=60)
        first.abandon(leave=False)  # it dies, and the old code comes back in its place
        send(second)
        first = worker(old, "w.1")
        send(first)
        first.release()
        first = worker(new, "w.1")
        second.release()
        second = worker(new, "w.2")
        send(second)
        second.wait_idle(timeout_s=60)

    with connect(options, new) as client:
        priced = [one.value for one in client.messages(f"{name}.priced")]
        failed = len(list(client.messages(f"{name}.errors")))
        counted = sorted(one.value for one in client.messages(f"{name}.counted"))
    with closing(open_broker(options)) as broker:
        report = verify(new, broker)
    assert (report.anomalies, report.behind) == (0, 0)
    assert len(priced) + failed == 1000
    assert counted == sorted(one["order"] for one in priced)
    assert {one["version"] for one in priced} == {1, 2}
    at_once = Counter(one["version"] for one in priced if one["order"] in mixed)
    assert min(at_once[1], at_once[2]) > 0, "both versions were at work at once"
