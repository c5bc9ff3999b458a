"""Avro with a schema registry, in Confluent's wire format: an application beside those of other teams.

`bills_theirs.py` is another team's program, which writes orders with Confluent's serializer. This application declares
the fields that it needs, in a class of its own. The schema of its bills is registered once; workers register nothing::

    pip install 'cues-kafka[registry]'
    cues-kafka broker up
    export CUES_KAFKA_BOOTSTRAP=localhost:9092 CUES_KAFKA_REGISTRY__URL=http://localhost:8081
    cues-kafka schemas register examples/bills.py:graph --yes
    cues-kafka plan examples/bills.py:graph --apply
    python examples/bills_theirs.py
    python examples/bills.py
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

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
    """Add tax, after the discount of a coupon."""
    net = order.total if order.coupon is None else order.total * Decimal("0.9")
    return Bill(order.id, (net * Decimal("1.25")).quantize(Decimal("0.01")))


processor = Processor(bill, inputs="orders", outputs="bills")
TOPICS = {
    "orders": Topic(value=Avro(Order, registry=True, namespace="com.shop")),
    "bills": Topic(value=Avro(Bill, registry=True, namespace="com.shop"), key="order"),
}
graph = Graph("billing", Source("orders"), processor, topics=TOPICS, errors="billing.errors")

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092", registry=Registry("http://localhost:8081"))) as running:
        running.wait_idle(timeout_s=60)
        print(*(message.value for message in running.messages("bills")), sep="\n")
