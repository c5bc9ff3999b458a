"""`Table(wait=)` on a real broker: each order finds the customer that was acknowledged before it was sent."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from cues_kafka import Graph, Json, Kafka, Message, Processor, Source, Table, TableView, Topic, connect, start
from cues_kafka.testing.fixtures import KafkaFixture

CASES = 100


def named(order: str, customers: TableView[str]) -> str:
    """The order with its customer."""
    return f"{order} of {customers.get(order, 'unknown')}"


def graph_of(name: str, table: Table) -> Graph:
    """Orders and customers, of two partitions."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        Source(table.topic),
        Processor(named, inputs={"order": f"{name}.orders", "customers": table}, outputs=f"{name}.named"),
        defaults=Topic(value=Json(), partitions=2),
    )


def expected() -> list[str]:
    """What the orders become."""
    return [f"c{number} of Customer {number}" for number in range(CASES)]


def test_each_order_finds_the_customer_that_was_acknowledged_before(kafka: KafkaFixture) -> None:
    """One after another, as a web shop sends them: the customer registers, and then orders."""
    cluster, name = Kafka(kafka.bootstrap), kafka.unique("g")
    graph = graph_of(name, Table(f"{name}.customers", wait="20 seconds"))
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        running.wait_idle()
        for number in range(CASES):
            client.send(f"{name}.customers", Message(f"Customer {number}", key=f"c{number}"))
            client.send(f"{name}.orders", Message(f"c{number}", key=f"c{number}"))
        running.wait_idle()
        found = [one.value for one in client.messages(f"{name}.named")]
        assert [one.missed for one in running.status().tasks] == [0, 0]
    assert sorted(found, key=lambda one: int(one.split()[0][1:])) == expected()


def test_order_finds_a_customer_of_a_transaction(kafka: KafkaFixture) -> None:
    """The table then ends with markers, which no reader gives."""
    cluster, name = Kafka(kafka.bootstrap), kafka.unique("g")
    graph = graph_of(name, Table(f"{name}.customers", wait="20 seconds"))
    settings: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        running.wait_idle()
        for number in range(20):
            key = f"c{number}"
            producer.begin_transaction()
            partition = client.send(f"{name}.orders", Message("first", key=key)).partition
            producer.produce(f"{name}.customers", f'"Customer {number}"', key, partition=partition)
            producer.commit_transaction(30)
            while not any(one.key == key for one in client.messages(f"{name}.customers")):
                pass  # a reader sees it from here on
            client.send(f"{name}.orders", Message(key, key=key))
        running.wait_idle()
        found = {one.value for one in client.messages(f"{name}.named")}
    assert set(expected()[:20]) <= found
