"""Avro topics with a registry, on a broker: other clients' messages, ours for them, and outages of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cues_kafka import Avro, Graph, Kafka, Processor, Registry, Source, Step, Topic, start
from cues_kafka.codecs.registry import schemas_of
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry
from tests.fault.support import until

ORDER = json.dumps(
    {
        "type": "record",
        "name": "com.shop.Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "total", "type": "double"},
            {"name": "by", "type": "string"},
        ],
    }
)


@dataclass
class Order:
    """What this application needs of an order."""

    id: int
    total: float
    coupon: str | None = None


@dataclass
class Bill:
    """What it makes of one."""

    order: int
    gross: float


def bill(order: Order) -> Bill:
    """With tax."""
    return Bill(order.id, order.total * 1.25)


def graph_of(name: str, make: Any = bill) -> Graph:
    """One processor between Avro topics of a registry."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        Processor(make, inputs=f"{name}.orders", outputs=f"{name}.bills"),
        topics={
            f"{name}.orders": Topic(value=Avro(Order, registry=True)),
            f"{name}.bills": Topic(value=Avro(Bill, registry=True, namespace="com.shop")),
        },
        errors=f"{name}.errors",
    )


def write(kafka: KafkaFixture, topic: str, registry: TestRegistry, orders: list[dict[str, Any]], **conf: Any) -> None:
    """As an application of another team does, with Confluent's own serializer."""
    client = SchemaRegistryClient({"url": registry.url})
    serialize = AvroSerializer(client, ORDER, conf={"auto.register.schemas": True, **conf})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for order in orders:
        context = SerializationContext(topic, MessageField.VALUE, [])
        value = serialize(order, context)
        producer.produce(topic, value, headers=context.headers)
    assert producer.flush(30) == 0


def test_messages_of_other_clients_are_read_and_written_for_them(kafka: KafkaFixture) -> None:
    """Ids in the payload and in a header; a foreign schema is read into ours; bad bytes are one error message each."""
    name = kafka.unique("avro")
    graph = graph_of(name)
    with TestRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
        with start(graph, Kafka(kafka.bootstrap, registry=Registry(registry.url))) as running:
            write(kafka, f"{name}.orders", registry, [{"id": n, "total": 4.0 * n, "by": "x"} for n in range(3)])
            header = {"schema.id.serializer": header_schema_id_serializer}
            write(kafka, f"{name}.orders", registry, [{"id": 7, "total": 8.0, "by": "y"}], **header)
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            for bad in (b"{}", b"\0\0\0\x27\x0fxyz", b"\0\0\0\0\x01", b"\0\0\0\0\x02\xff\xff"):
                producer.produce(f"{name}.orders", bad)
            assert producer.flush(30) == 0
            running.wait_idle()

            bills = [message.value for message in running.messages(f"{name}.bills")]
            errors = [message.value for message in running.messages(f"{name}.errors")]
            raw = running.committed(f"{name}.bills")
        deserialize = AvroDeserializer(client)
        theirs = [deserialize(m.value(), SerializationContext(f"{name}.bills", MessageField.VALUE)) for m in raw]

    assert bills == [Bill(0, 0.0), Bill(1, 5.0), Bill(2, 10.0), Bill(7, 10.0)]
    assert theirs == [{"order": one.order, "gross": one.gross} for one in bills]
    assert [(error.kind, error.payload) for error in errors] == [
        ("decode", b"{}"),
        ("decode", b"\0\0\0\x27\x0fxyz"),
        ("decode", b"\0\0\0\0\x01"),
        ("decode", b"\0\0\0\0\x02\xff\xff"),
    ]
    assert "com.shop.Order" in errors[3].text
    assert "Order" in errors[3].text


def graph_schema(cls: type[Any], namespace: str) -> str:
    """The schema of a class, as `cues-kafka schemas register` sends it."""
    from cues_kafka.codecs.avro import schema_text

    return schema_text(Avro(cls, registry=True, namespace=namespace))


def test_a_registry_that_is_down_stops_the_task_and_makes_no_error_message(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back at the same address; then each message has its one outcome."""
    name = kafka.unique("avro")
    graph = graph_of(name)
    registry = TestRegistry()
    registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
    port = int(registry.url.rpartition(":")[2])
    options = Kafka(kafka.bootstrap, registry=Registry(registry.url))
    with start(graph, options) as running:
        write(kafka, f"{name}.orders", registry, [{"id": n, "total": 4.0, "by": "x"} for n in range(3)])
        running.wait_idle()
        registry.close()
        stranger = TestRegistry()
        with stranger:
            stranger.register("elsewhere", '"long"')  # so that the next schema has an id that the task does not know
            stranger.register("elsewhere", '"int"')
            stranger.register("elsewhere", '"string"')
            write(kafka, f"{name}.orders", stranger, [{"id": 9, "total": 4.0, "by": "x"}])
        until(lambda: "did not return the schema" in caplog.text, "the task fails")
        assert running.messages(f"{name}.errors") == []

        with TestRegistry(port=port) as registry:
            registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
            for schema in ('"int"', '"string"'):
                registry.register("elsewhere", schema)
            registry.register(f"{name}.orders-value", ORDER)
            running.wait_idle()
            assert [m.value.order for m in running.messages(f"{name}.bills")] == [0, 1, 2, 9]
            assert running.messages(f"{name}.errors") == []


def test_a_schema_that_the_registry_denies_is_an_error_message_and_the_rest_is_delivered(kafka: KafkaFixture) -> None:
    """The task stopped at it for good."""
    name = kafka.unique("avro")
    graph = graph_of(name)
    with TestRegistry() as registry:
        registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
        secret = {"type": "record", "name": "Secret", "fields": [{"name": "id", "type": "long"}]}
        number = registry.register("secret", secret)
        registry.denied.add("secret")
        with start(graph, Kafka(kafka.bootstrap, registry=Registry(registry.url))) as running:
            write(kafka, f"{name}.orders", registry, [{"id": 0, "total": 4.0, "by": "x"}])
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            producer.produce(f"{name}.orders", b"\0" + number.to_bytes(4, "big") + b"\x02")
            assert producer.flush(30) == 0
            write(kafka, f"{name}.orders", registry, [{"id": 1, "total": 4.0, "by": "x"}])
            running.wait_idle()

            assert [m.value.order for m in running.messages(f"{name}.bills")] == [0, 1]
            [error] = running.messages(f"{name}.errors")
            assert error.value.kind == "decode"
            assert f"names the schema {number}, and the registry" in error.value.text
            assert "does not let this user read" in error.value.text


def each_bill(order: Order) -> Iterator[Bill]:
    """With tax, from a function that yields."""
    yield bill(order)


def test_a_registry_that_has_lost_a_schema_stops_the_task_and_makes_no_error_message(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that has not written yet asks for the id of its schema, in the middle of a function that yields."""
    name = kafka.unique("avro")
    graph = graph_of(name, each_bill)
    registry = TestRegistry()
    registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
    port = int(registry.url.rpartition(":")[2])
    with start(graph, Kafka(kafka.bootstrap, registry=Registry(registry.url))) as running:
        registry.close()
        asked = schemas_of(Registry(registry.url))  # as in a worker that did not plan:
        asked._ids.clear()
        asked._made = None
        with TestRegistry(port=port) as registry:
            write(kafka, f"{name}.orders", registry, [{"id": n, "total": 4.0, "by": "x"} for n in range(3)])
            until(lambda: "does not have the declared schema" in caplog.text, "the task fails")
            assert running.messages(f"{name}.errors") == []
            registry.register(f"{name}.bills-value", graph_schema(Bill, "com.shop"))
            running.wait_idle()
            assert [m.value.order for m in running.messages(f"{name}.bills")] == [0, 1, 2]
            assert running.messages(f"{name}.errors") == []


def test_a_start_without_the_registry_or_its_schema_is_refused(kafka: KafkaFixture) -> None:
    """Before anything runs, with the remedy."""
    graph = graph_of(kafka.unique("avro"))
    with pytest.raises(Exception, match=r"Kafka\(\.\.\., registry=Registry"):
        start(graph, Kafka(kafka.bootstrap))
    with TestRegistry() as registry, pytest.raises(Exception, match="cues-kafka schemas register"):
        start(graph, Kafka(kafka.bootstrap, registry=Registry(registry.url)))


def test_keys_are_typed_too(kafka: KafkaFixture) -> None:
    """Written by the codec from `key=` or a message's key, and read by it."""
    name = kafka.unique("keys")
    keys: list[Any] = []

    def look(order: Order, step: Step) -> Order:
        keys.append(step.inputs[step.binding].key)
        return order

    schema = {"type": "record", "name": "Key", "fields": [{"name": "shop", "type": "string"}]}
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(look, inputs=f"{name}.in", outputs=f"{name}.out"),
        topics={
            f"{name}.in": Topic(value=Avro(Order), key_codec=Avro(schema)),
            f"{name}.out": Topic(value=Avro(Order), key="id", key_codec=Avro("long")),
        },
    )
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send(f"{name}.in", Order(5, 1.0), key={"shop": "a"})
        running.send(f"{name}.in", Order(6, 1.0))
        running.wait_idle()
        found = running.messages(f"{name}.out")

    assert keys == [{"shop": "a"}, None]
    assert [message.key for message in found] == [5, 6]
    assert found[0].key_bytes == b"\xc3\x01" + bytes.fromhex("b71df49344e154d0") + b"\x0a"
