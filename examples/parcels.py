"""Avro without a registry: each message carries the fingerprint of its schema.

An older application writes parcels by a schema that has no field `express`; they are read with its default.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/parcels.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

from cues_kafka import Avro, Digits, Graph, Kafka, Processor, Source, Topic, connect, start


@dataclass(frozen=True)
class Parcel:
    """A message of the input; its Avro schema is derived from this class."""

    number: int
    sent: datetime
    express: bool = False


@dataclass(frozen=True)
class Postage:
    """An output message."""

    number: int
    price: Annotated[Decimal, Digits(6, 2)]


FIELDS = [
    {"name": "number", "type": "long"},
    {"name": "sent", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
OLDER = {"type": "record", "name": "Parcel", "fields": FIELDS}  # what the older application writes


def frank(parcel: Parcel) -> Postage:
    """Say what a parcel costs."""
    return Postage(parcel.number, Decimal("9.80") if parcel.express else Decimal("4.90"))


processor = Processor(frank, inputs="parcels.sent", outputs="parcels.postage")
POSTAGE = Topic(value=Avro(Postage), key="number", key_codec=Avro("long"))
TOPICS = {"parcels.sent": Topic(value=Avro(Parcel, older=[OLDER])), "parcels.postage": POSTAGE}
graph = Graph("parcels", Source("parcels.sent"), processor, topics=TOPICS)
older = Graph("parcels-older", Source("parcels.sent"), defaults=Topic(value=Avro(OLDER)))  # its values are dicts
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

if __name__ == "__main__":
    kafka = Kafka("localhost:9092")
    with start(graph, kafka) as running, connect(kafka, older) as client:
        client.send("parcels.sent", {"number": 1, "sent": NOON})
        running.send("parcels.sent", Parcel(2, NOON, express=True))
        running.wait_idle(timeout_s=60)
        print(*(message.value for message in running.messages("parcels.postage")), sep="\n")
