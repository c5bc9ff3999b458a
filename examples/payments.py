"""Orders with their payments: a join of two streams, with a row for each order that was not paid within an hour.

Watermarks bound how long Spark keeps a side: an order is unpaid when no payment for it can come any more.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/payments.py``.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark


@dataclass(frozen=True)
class Order:
    """A message of the first input."""

    id: str
    total: int
    at: datetime


@dataclass(frozen=True)
class Payment:
    """A message of the second input."""

    order: str
    paid: int
    at: datetime


@dataclass(frozen=True)
class Settled:
    """An output message; paid is None if the order was not paid within an hour."""

    id: str
    total: int
    paid: int | None


def settle(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Join both; messages may be 10 minutes late, and the topics may have different numbers of partitions."""
    left = orders.withWatermark("at", "10 minutes").select("id", "total", f.col("at").alias("ordered"))
    right = payments.withWatermark("at", "10 minutes").select("order", "paid", f.col("at").alias("paid_at"))
    within = "id = order AND paid_at BETWEEN ordered AND ordered + INTERVAL 1 HOUR"
    return left.join(right, f.expr(within), "left").select("id", "total", "paid")


graph = Graph(
    "payments",
    Source("payments.orders"),
    Source("payments.received"),
    DataFrameProcessor(
        settle,
        inputs={"orders": "payments.orders", "payments": "payments.received"},
        outputs="payments.settled",
    ),
    topics={
        "payments.orders": Topic(value=Json(Order), key="id", partitions=4),
        "payments.received": Topic(value=Json(Payment), key="order", partitions=2),
        "payments.settled": Topic(value=Json(Settled), key="id", partitions=4),
    },
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=5)
ORDERS = [Order(f"o{n}", 10 * n, NOON + timedelta(minutes=n)) for n in range(6)]
PAYMENTS = [Payment(f"o{n}", 10 * n, NOON + timedelta(minutes=25 * n)) for n in (1, 2, 3, 4)]  # of o3 and o4 too late

if __name__ == "__main__":
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=checkpoint)) as running,
    ):
        # The last message of each side advances the watermarks; it is not settled itself.
        running.send_many("payments.orders", [*ORDERS, Order("later", 0, LATER)])
        running.send_many("payments.received", [*PAYMENTS, Payment("none", 0, LATER)])
        running.wait_idle(timeout_s=180)
        for message in running.messages("payments.settled"):
            print(message.value)
    session.stop()
