"""The two articles that sold most in each hour: a window, its sums, and the largest of them, published once per hour.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/top.py``.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark


@dataclass(frozen=True)
class Sale:
    """An input message."""

    article: str
    count: int
    at: datetime


@dataclass(frozen=True)
class Place:
    """An output message: rank 1 sold most; of equals, the one whose name comes last."""

    hour: datetime
    rank: int
    article: str
    count: int


def top(sales: DataFrame) -> DataFrame:
    """Aggregate twice; an hour is published when it is complete, because the watermark has passed it."""
    hours = sales.withWatermark("at", "10 minutes").groupBy(f.window("at", "1 hour"), "article")
    sums = hours.agg(f.sum("count").alias("count"))
    ranked = f.sort_array(f.collect_list(f.struct("count", "article")), asc=False)
    best = sums.groupBy("window").agg(f.slice(ranked, 1, 2).alias("best"))
    rows = best.select(f.col("window.start").alias("hour"), f.posexplode("best").alias("place", "one"))
    return rows.select("hour", (f.col("place") + 1).alias("rank"), "one.article", "one.count")


processor = DataFrameProcessor(top, inputs="top.sales", outputs="top.places")
TOPICS = {"top.sales": Topic(value=Json(Sale), partitions=4), "top.places": Topic(value=Json(Place), key="hour")}
graph = Graph("top", Source("top.sales"), processor, topics=TOPICS)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SALES = [Sale(("nut", "bolt", "pin")[n % 3], n, NOON + timedelta(minutes=7 * n)) for n in range(20)]
LATER = Sale("pin", 1, NOON + timedelta(hours=5))  # closes the hours before it; its own hour stays open

if __name__ == "__main__":
    session = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=tempfile.mkdtemp())) as running:
        running.send_many("top.sales", [*SALES, LATER])
        running.wait_idle(timeout_s=180)
        print(*(message.value for message in running.messages("top.places")), sep="\n")
