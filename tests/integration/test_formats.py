"""A graph that reads JSON Schema and writes Protobuf, with a registry and Confluent's own clients, on a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cues_kafka import Graph, JsonSchema, Kafka, Processor, Protobuf, Registry, Source, Topic, start
from cues_kafka.codecs.registry import RegistrySchemas
from cues_kafka.codecs.subjects import subjects
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry
from tests.fault.support import produce
from tests.unit.codecs.protos import Bill

ORDER = """{"title": "Order", "type": "object", "required": ["id"],
            "properties": {"id": {"type": "integer"}, "by": {"type": "string"}}}"""


@dataclass
class Order:
    """What this application needs of an order."""

    id: int


def bill(order: Order) -> Any:
    """The bill of an order."""
    return Bill(order=order.id)


def test_json_schema_becomes_protobuf(kafka: KafkaFixture) -> None:
    """Confluent writes the orders and reads the bills; each bad message is one error message with its bytes."""
    with TestRegistry() as registry:
        bills_of_orders(kafka, registry.url)


def bills_of_orders(kafka: KafkaFixture, url: str) -> None:
    """The same with any registry."""
    name = kafka.unique("formats")
    graph = Graph(
        name,
        Source(f"{name}.orders"),
        Processor(bill, inputs=f"{name}.orders", outputs=f"{name}.bills"),
        topics={
            f"{name}.orders": Topic(value=JsonSchema(ORDER, Order, registry=True)),
            f"{name}.bills": Topic(value=Protobuf(Bill, registry=True), key="order", key_codec=JsonSchema(int)),
        },
        errors=f"{name}.errors",
    )
    client, own = SchemaRegistryClient({"url": url}), RegistrySchemas(Registry(url))
    for one in subjects(graph):
        own.register(one.name, one.own)
    with start(graph, Kafka(kafka.bootstrap, registry=Registry(url))) as running:
        serialize = JSONSerializer(ORDER, client)
        context = SerializationContext(f"{name}.orders", MessageField.VALUE)
        good = [serialize({"id": n, "by": "x"}, context) or b"" for n in range(3)]
        bad = [b"{}", good[0][:5] + b"{}", good[0][:5] + b"{"]
        produce(kafka.bootstrap, f"{name}.orders", good + bad)
        running.wait_idle()

        bills = [(message.key, message.value) for message in running.messages(f"{name}.bills")]
        errors = [message.value for message in running.messages(f"{name}.errors")]
        raw = running.committed(f"{name}.bills")
    deserialize = ProtobufDeserializer(Bill, schema_registry_client=client)
    theirs = [deserialize(m.value(), SerializationContext(f"{name}.bills", MessageField.VALUE)) for m in raw]

    assert bills == [(n, Bill(order=n)) for n in range(3)]
    assert theirs == [one for _, one in bills]
    assert [(error.kind, error.payload) for error in errors] == [("decode", data) for data in bad]
