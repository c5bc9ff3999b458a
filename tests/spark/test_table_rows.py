"""A function and DataFrames that write to one database from Spark, compared with plain Python (E1, E7)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Processor, Source, Sql, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.integration.databases import Shops

pytestmark = pytest.mark.timeout(300)

MOST = 150
"""The largest sum that the database takes."""


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: int
    customer: str
    total: int


def book(order: Order, db: Any) -> int:
    """A row and a message; the database refuses some."""
    db.execute("INSERT INTO shop (id, text) VALUES (%s, %s)", (order.id, order.customer))
    if order.id % 10 == 4:
        db.execute("INSERT INTO shop (id, text) VALUES (%s, 'again')", (order.id,))
    return order.id


def sums(orders: Any) -> Any:
    """How much each customer has ordered so far."""
    from pyspark.sql import functions as f

    return orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))


def test_function_and_dataframes_write_to_a_database_once_over_restarts(
    request: pytest.FixtureRequest, kafka: KafkaFixture, spark: Any, tmp_path: Path
) -> None:
    """A row of each message, the newest row of each key, and one error message of each refused row."""
    shop, name = Shops(request).give("postgresql", tmp_path), kafka.unique("tables")
    shop.query(
        f"CREATE TABLE sums (customer TEXT PRIMARY KEY, orders INTEGER, total BIGINT CHECK (total <= {MOST}), "
        "cues_source TEXT, cues_offset BIGINT, cues_deleted BOOLEAN NOT NULL DEFAULT false)"
    )
    sql = Sql(shop.url)
    newest = sql.upsert("sums", key="customer", columns=["orders", "total"])
    graph = Graph(
        name,
        Source(f"{name}.orders"),
        Processor(book, inputs=f"{name}.orders", outputs=f"{name}.booked", effects={"db": sql}),
        DataFrameProcessor(sums, inputs=f"{name}.orders", into=newest, output_mode="update"),
        errors=f"{name}.errors",
        topics={f"{name}.orders": Topic(value=Json(Order), key="id", partitions=2)},
        defaults=Topic(value=Json(), partitions=2),
    )
    options, engine = Kafka(kafka.bootstrap), Spark(spark, checkpoint=f"file://{tmp_path}/checkpoint")
    modes = {one.name: one.mode for one in explain(graph, options, engine=engine).processors}
    assert modes == {"book": "direct", "sums": "staged"}
    orders = [Order(n, f"c{n % 3}", n) for n in range(30)]
    for part in (orders[:20], orders[20:]):
        with start(graph, options, engine=engine) as running:
            running.send_many(f"{name}.orders", part)
            running.wait_idle(timeout_s=240)
            booked = [one.value for one in running.messages(f"{name}.booked")]
            errors = [one.value for one in running.messages(f"{name}.errors")]

    kept = [one.id for one in orders if one.id % 10 != 4]
    assert shop.ids() == sorted(booked) == kept
    rows = shop.query("SELECT customer, orders, total FROM sums WHERE NOT cues_deleted ORDER BY customer")
    totals = {c: [one.total for one in orders if one.customer == c] for c in ("c0", "c1", "c2")}
    assert rows[:2] == [(c, len(totals[c]), sum(totals[c])) for c in ("c0", "c1")]
    assert rows[2][0] == "c2"
    assert rows[2][2] <= MOST < sum(totals["c2"])
    assert Counter((one.processor, one.exception) for one in errors) == {
        ("book", "UniqueViolation"): 3,
        ("sums", "OutputError"): 1,
    }
    [refused] = [one for one in errors if one.processor == "sums"]
    assert "table 'sums' refuses a row: CheckViolation" in refused.text
    broker = open_broker(options)
    try:
        report = verify(graph, broker)
        assert report.ok, str(report)
    finally:
        broker.close()


@pytest.mark.full
def test_renamed_function_goes_on_in_the_database(kafka: KafkaFixture, spark: Any, tmp_path: Path) -> None:
    """On Spark under both names: no row and no message is there twice, and none is missing."""
    path, name = tmp_path / "shop.db", kafka.unique("renamed")
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE shop (id INTEGER)")

    def write(order: int, db: Any) -> int:
        db.execute("INSERT INTO shop (id) VALUES (?)", (order,))
        return order

    def graph(processor: str) -> Graph:
        declared = Processor(
            write, name=processor, inputs=f"{name}.in", outputs=f"{name}.out", effects={"db": Sql(f"sqlite:///{path}")}
        )
        return Graph(name, Source(f"{name}.in"), declared, defaults=Topic(value=Json(), partitions=2))

    options, engine = Kafka(kafka.bootstrap), Spark(spark, checkpoint=f"file://{tmp_path}/checkpoint")

    def deliver(processor: str, orders: range) -> list[int]:
        with start(graph(processor), options, engine=engine) as running:
            running.send_many(f"{name}.in", orders)
            running.wait_idle(timeout_s=240)
            return sorted(one.value for one in running.messages(f"{name}.out"))

    assert deliver("write", range(10)) == [*range(10)]
    broker = open_broker(options)
    try:
        move = Renaming(graph("book"), broker, "write", "book", who="test")
        move.carry_out(move.plan())
        assert move.plan().done
        assert deliver("book", range(10, 20)) == [*range(20)]
        with closing(sqlite3.connect(path)) as opened:
            assert sorted(row for (row,) in opened.execute("SELECT id FROM shop")) == [*range(20)]
        report = verify(graph("book"), broker)
        assert report.ok, str(report)
    finally:
        broker.close()
