"""Order lines from orders, as a DataFrame: from Kafka through Spark into Kafka, each line exactly once.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/lines.py``.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark


@dataclass(frozen=True)
class Order:
    """An input message: how many of each article."""

    id: str
    items: dict[str, int]


@dataclass(frozen=True)
class Line:
    """An output message."""

    id: str
    article: str
    count: int


def lines(orders: DataFrame) -> DataFrame:
    """Make a row for each article; keep the column `_cues`, which names the message that a row comes from."""
    return orders.select("id", f.explode("items").alias("article", "count"), "_cues")


graph = Graph(
    "warehouse",
    Source("warehouse.orders"),
    DataFrameProcessor(lines, inputs="warehouse.orders", outputs="warehouse.lines"),
    topics={
        "warehouse.orders": Topic(value=Json(Order), key="id", partitions=4),
        "warehouse.lines": Topic(value=Json(Line), key="article", partitions=4),
    },
)

if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=checkpoint)) as running,
    ):
        running.send("warehouse.orders", Order("a1", {"nut": 20, "bolt": 10}))
        running.wait_idle(timeout_s=180)
        print(*(message.value for message in running.messages("warehouse.lines")), sep="\n")
    session.stop()
