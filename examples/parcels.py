"""Avro without a registry: each message carries the fingerprint of its schema.

An older application writes parcels by a schema that has no field `express`; they are read with its default.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/parcels.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated

from cues_kafka import Avro, Digits, Graph, Kafka, Processor, Source, Topic, connect, start


class Size(Enum):
    """The names of an Avro enum."""

    SMALL = "SMALL"
    LARGE = "LARGE"


@dataclass(frozen=True)
class Parcel:
    """A message of the input; its Avro schema is derived from this class."""

    number: int
    sent: datetime
    size: Size
    express: bool = False


@dataclass(frozen=True)
class Postage:
    """An output message."""

    number: int
    price: Annotated[Decimal, Digits(6, 2)]


OLDER = {
    "type": "record",
    "name": "Parcel",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "sent", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["SMALL", "LARGE"]}},
    ],
}
"""What the older application writes."""


def frank(parcel: Parcel) -> Postage:
    """What a parcel costs."""
    price = Decimal("4.90") if parcel.size is Size.SMALL else Decimal("9.50")
    return Postage(parcel.number, price * 2 if parcel.express else price)


graph = Graph(
    "parcels",
    Source("parcels.sent"),
    Processor(frank, inputs="parcels.sent", outputs="parcels.postage"),
    topics={
        "parcels.sent": Topic(value=Avro(Parcel, older=[OLDER])),
        "parcels.postage": Topic(value=Avro(Postage), key="number", key_codec=Avro("long")),
    },
)

older = Graph("parcels-older", Source("parcels.sent"), defaults=Topic(value=Avro(OLDER)))
"""The older application: values are dicts, because no class is declared."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

if __name__ == "__main__":
    kafka = Kafka("localhost:9092")
    with start(graph, kafka) as running, connect(kafka, older) as client:
        client.send("parcels.sent", {"number": 1, "sent": NOON, "size": "LARGE"})
        running.send("parcels.sent", Parcel(2, NOON, Size.SMALL, express=True))
        running.wait_idle(timeout_s=60)
        for message in running.messages("parcels.postage"):
            print(message.value)
