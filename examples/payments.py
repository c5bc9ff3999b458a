"""Orders with their payments: a join of two streams, with a row for each order that was not paid within an hour.

Watermarks bound how long Spark keeps a side. Start a broker with ``cues-kafka broker up``, then run this file.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark


@dataclass(frozen=True)
class Amount:
    """An input message: an order, or a payment for it."""

    order: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Settled:
    """An output message; paid is None if the order was not paid within an hour."""

    order: str
    paid: int | None


def settle(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Join both; messages may be 10 minutes late, and the topics may have different numbers of partitions."""
    left = orders.withWatermark("at", "10 minutes").selectExpr("order", "at AS ordered")
    right = payments.selectExpr("order AS of", "cents AS paid", "at AS paid_at").withWatermark("paid_at", "10 minutes")
    within = "order = of AND paid_at BETWEEN ordered AND ordered + INTERVAL 1 HOUR"
    return left.join(right, f.expr(within), "left").select("order", "paid")


INPUTS = {"orders": "payments.orders", "payments": "payments.received"}
TOPICS = {"payments.received": Topic(partitions=2), "payments.settled": Topic(value=Json(Settled))}
processor = DataFrameProcessor(settle, inputs=INPUTS, outputs="payments.settled")
defaults = Topic(value=Json(Amount), key="order", partitions=4)
graph = Graph("payments", *map(Source, INPUTS.values()), processor, topics=TOPICS, defaults=defaults)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = [Amount(f"o{n}", 10 * n, NOON + timedelta(minutes=n)) for n in range(6)]
PAYMENTS = [Amount(f"o{n}", 10 * n, NOON + timedelta(minutes=25 * n)) for n in (1, 2, 3, 4)]  # of o3 and o4 too late
LATER = NOON + timedelta(hours=5)  # a message of each side from then advances the watermarks

if __name__ == "__main__":
    session = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=tempfile.mkdtemp())) as running:
        running.send_many("payments.orders", [*ORDERS, Amount("later", 0, LATER)])
        running.send_many("payments.received", [*PAYMENTS, Amount("none", 0, LATER)])
        running.wait_idle(timeout_s=180)
        print(*(message.value for message in running.messages("payments.settled")), sep="\n")
