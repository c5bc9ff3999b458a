"""DataFrames over Avro topics: types, nulls and nesting arrive in columns and leave in messages, direct and staged."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest

from cues_kafka import Alias, Avro, DataFrameProcessor, Digits, Graph, Kafka, Registry, Source, Topic, start
from cues_kafka.codecs.avro import schema_text
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry

pytestmark = pytest.mark.timeout(300)


class Kind(Enum):
    """Travels by its value."""

    NEW = "new"
    USED = "used"


@dataclass(frozen=True)
class Line:
    """Inside an order."""

    sku: str
    price: Annotated[Decimal, Digits(12, 2)]


@dataclass(frozen=True)
class Order:
    """A column of each type."""

    id: int
    at: datetime
    day: date
    kind: Kind
    raw: bytes
    note: str | None = None
    paid: bool = True
    weight: float = 1.5
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    sold_by: Annotated[str, Alias("soldBy")] = "ann"


@dataclass(frozen=True)
class Total:
    """What a day has brought."""

    day: date
    total: Annotated[Decimal, Digits(22, 2)] | None


def order(n: int) -> Order:
    """Each third without a note, each second without lines."""
    return Order(
        n,
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        date(2026, 1, 1 + n % 2),
        Kind.USED if n % 2 else Kind.NEW,
        bytes([n, 255]),
        None if n % 3 == 0 else f"note {n}",
        lines=[Line("a", Decimal("3.50")), Line("b", Decimal("0.05"))] if n % 2 else [],
        tags={"n": n},
        sold_by=f"bob {n}",
    )


def same(orders: Any) -> Any:
    """All columns as they came."""
    assert "soldBy" in orders.columns
    return orders


def totals(orders: Any) -> Any:
    """A sum over what lies inside."""
    from pyspark.sql import functions as f

    lines = orders.select("day", f.explode_outer("lines").alias("line"))
    return lines.groupBy("day").agg(f.sum("line.price").cast("decimal(22, 2)").alias("total"))


def graph_of(name: str, fn: Any, cls: type[Any], **options: Any) -> Graph:
    """One processor between Avro topics."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(fn, name="frames", inputs=f"{name}.orders", outputs=f"{name}.out", **options),
        topics={
            # One batch reads all that was sent at once: a transaction ends in each partition on its own.
            f"{name}.orders": Topic(value=Avro(Order, registry=True), partitions=1 if cls is Total else 2),
            f"{name}.out": Topic(value=Avro(cls, registry=True), partitions=2),
        },
    )


@pytest.mark.full
@pytest.mark.parametrize("staged", [False, True])
def test_avro_topics_are_columns_and_columns_are_avro_topics(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, *, staged: bool
) -> None:
    """What comes out is what went in, and a sum of decimals is exact."""
    name = kafka.unique("avro")
    graph = graph_of(name, totals, Total, output_mode="update") if staged else graph_of(name, same, Order)
    orders = [order(n) for n in range(8)]
    with TestRegistry() as registry:
        registry.register(f"{name}.orders-value", json.loads(schema_text(Avro(Order))))
        registry.register(f"{name}.out-value", json.loads(schema_text(Avro(Total if staged else Order))))
        options = Kafka(kafka.bootstrap, registry=Registry(registry.url))
        with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running:
            running.send_many(f"{name}.orders", orders)
            running.wait_idle(timeout_s=200)
            found = [message.value for message in running.messages(f"{name}.out")]

    if staged:
        assert {(one.day, one.total) for one in found} == {
            (date(2026, 1, 1), None),
            (date(2026, 1, 2), Decimal("14.20")),
        }
    else:
        assert sorted(found, key=lambda one: one.id) == orders
