"""DataFrames that shuffle or keep state, into Kafka, exactly once (T1 to T4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = pytest.mark.timeout(300)

WIDTH = 3


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    customer: str
    total: int


@dataclass(frozen=True)
class Sum:
    """What goes out: the newest sum of a customer, and a number that no two computations share."""

    customer: str
    orders: int
    total: int
    nonce: str


def sums(orders: Any) -> Any:
    """How much each customer has ordered so far."""
    from pyspark.sql import functions as f

    counted = orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
    return counted.withColumn("nonce", f.expr("uuid()"))


def make(name: str) -> Graph:
    """Sums of orders."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(sums, inputs=f"{name}.orders", outputs=f"{name}.sums", output_mode="update"),
        topics={
            f"{name}.orders": Topic(value=Json(Order), key="id", partitions=WIDTH),
            f"{name}.sums": Topic(value=Json(Sum), key="customer", partitions=WIDTH),
        },
    )


def test_every_row_of_an_aggregate_is_published_once_over_restarts(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Each batch updates each customer once, so each count of orders appears once."""
    graph = make(kafka.unique("staged"))
    options, topic = Kafka(kafka.bootstrap), f"{graph.name}.orders"
    for run in range(2):
        with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running:
            for batch in range(2):
                running.send_many(topic, [Order(f"{run}-{batch}-{n}", f"c{n % 5}", n) for n in range(20)])
                running.wait_idle(timeout_s=180)
            found = [message.value for message in running.messages(f"{graph.name}.sums")]
    assert Counter((one.customer, one.orders) for one in found) == Counter(
        (f"c{c}", 4 * batch) for c in range(5) for batch in range(1, 5)
    )
