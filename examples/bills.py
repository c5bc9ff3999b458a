"""Avro with a schema registry, in Confluent's wire format: an application beside those of other teams.

`orders` belongs to another team, which writes it with Confluent's serializer. This application declares the fields that
it needs, in a class of its own. It writes `bills`, whose schema is registered once, because workers register nothing::

    pip install 'cues-kafka[registry]'
    cues-kafka broker up
    cues-kafka schemas register examples/bills.py:graph --registry http://localhost:8081 --yes
    python examples/bills.py
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cues_kafka import Avro, Digits, Graph, Kafka, Processor, Registry, Source, Topic, start


@dataclass(frozen=True)
class Order:
    """What this application needs of an order. The other team's schema may have more fields."""

    id: int
    total: Annotated[Decimal, Digits(12, 2)]
    coupon: str | None = None


@dataclass(frozen=True)
class Bill:
    """A message of the output."""

    order: int
    gross: Annotated[Decimal, Digits(12, 2)]


def bill(order: Order) -> Bill:
    """With tax, and with the discount of a coupon."""
    net = order.total if order.coupon is None else order.total * Decimal("0.9")
    return Bill(order.id, (net * Decimal("1.25")).quantize(Decimal("0.01")))


graph = Graph(
    "billing",
    Source("orders"),
    Processor(bill, inputs="orders", outputs="bills"),
    topics={
        "orders": Topic(value=Avro(Order, registry=True, namespace="com.shop")),
        "bills": Topic(value=Avro(Bill, registry=True, namespace="com.shop"), key="order"),
    },
    errors="billing.errors",
)

THEIRS = """
{"type": "record", "name": "com.shop.Order", "fields": [
  {"name": "customer", "type": "string"},
  {"name": "id", "type": "long"},
  {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
  {"name": "coupon", "type": ["null", "string"], "default": null}
]}
"""
"""The other team's schema."""

ORDERS = [
    {"customer": "c7", "id": 1, "total": Decimal("20.00"), "coupon": None},
    {"customer": "c9", "id": 2, "total": Decimal("10.00"), "coupon": "SPRING"},
]


def write_as_they_do(bootstrap: str, url: str) -> None:
    """Write orders as the other team's application does."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": url}), THEIRS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for order in ORDERS:
        producer.produce("orders", serialize(order, SerializationContext("orders", MessageField.VALUE)))
    producer.flush()


if __name__ == "__main__":
    servers, url = "localhost:9092", "http://localhost:8081"
    with start(graph, Kafka(servers, registry=Registry(url))) as running:
        write_as_they_do(servers, url)
        running.wait_idle(timeout_s=60)
        for message in running.messages("bills"):
            print(message.value)
