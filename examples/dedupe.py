"""Events that callers sent more than once, each passed on once: `dropDuplicatesWithinWatermark`.

Whoever sends again after a time-out sends the same id. Ids are kept for an hour of event time, and no longer.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/dedupe.py``.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark


@dataclass(frozen=True)
class Event:
    """What comes in and goes out."""

    id: str
    amount: int
    at: datetime


def dedupe(events: DataFrame) -> DataFrame:
    """The first event of each id; `_cues` stays, so it goes out with the key and timestamp that it came with."""
    return events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])


graph = Graph(
    "dedupe",
    Source("dedupe.events"),
    DataFrameProcessor(dedupe, inputs="dedupe.events", outputs="dedupe.unique"),
    defaults=Topic(value=Json(Event), key="id", partitions=4),
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENTS = [Event(f"e{n}", n, NOON + timedelta(minutes=n)) for n in range(5)]

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
        running.send_many("dedupe.events", EVENTS + EVENTS)
        running.wait_idle(timeout_s=180)
        running.send_many("dedupe.events", EVENTS)  # in a later micro-batch
        running.wait_idle(timeout_s=180)
        for message in running.messages("dedupe.unique"):
            print(message.value)
    session.stop()
