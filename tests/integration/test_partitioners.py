"""Our rules of partitioners are those of the client library; a table of another rule stops its task on a cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Message as ClientMessage
from confluent_kafka import Producer

from cues_kafka import Graph, Json, Kafka, Processor, Source, Table, TableView, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.partitioners import KNOWN, place_of
from cues_kafka.errors import TaskStopped
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture

KEYS = [f"customer-{n}".encode() for n in range(200)] + [b"\x00\xff\x80", "Grüße".encode()]
WIDTH = 7


def produce(kafka: KafkaFixture, topic: str, partitioner: str) -> dict[bytes, int]:
    """Where a client with this partitioner puts the keys."""
    places: dict[bytes, int] = {}

    def delivered(error: object, message: ClientMessage) -> None:
        assert error is None
        key = message.key()
        assert isinstance(key, bytes)
        places[key] = message.partition() or 0

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner})
    for key in KEYS:
        producer.produce(topic, b'"x"', key, on_delivery=delivered)
    assert producer.flush(30) == 0
    return places


def test_rules_put_keys_where_the_client_library_does(kafka: KafkaFixture) -> None:
    """All of them, also for bytes that are no text."""
    topic = kafka.unique("keys")
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(topic, WIDTH)])
    broker.close()
    for name in KNOWN:
        place = place_of(name)
        assert place is not None
        assert produce(kafka, topic, name) == {key: place(key, WIDTH) for key in KEYS}


def named(order: str, customers: TableView[str]) -> str:
    """The order with its customer."""
    return customers[order]


def test_a_table_that_a_client_of_another_rule_wrote_stops_its_task(kafka: KafkaFixture) -> None:
    """With the declaration that helps."""
    orders, customers = kafka.unique("orders"), kafka.unique("customers")
    graph = Graph(
        kafka.unique("g"),
        Source(orders),
        Source(customers),
        Processor(named, inputs={"order": orders, "customers": Table(customers)}, outputs=kafka.unique("out")),
        defaults=Topic(value=Json(), partitions=WIDTH),
    )
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(customers, WIDTH)])
    broker.close()
    produce(kafka, customers, "consistent_random")
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send_many(orders, [key.decode() for key in KEYS[:50]])
        with pytest.raises(TaskStopped, match="partitioner='consistent_random'"):
            running.wait_idle(timeout_s=60)
        running.abandon()
