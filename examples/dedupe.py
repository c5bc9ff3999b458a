"""Pass on each event once, even if a caller sent it several times: `dropDuplicatesWithinWatermark`.

A caller that sends again after a time-out uses the same id. Spark keeps ids for an hour of event time.
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
    """An input and output message."""

    id: str
    amount: int
    at: datetime


def dedupe(events: DataFrame) -> DataFrame:
    """Keep the first event of each id; its column `_cues` keeps the key and timestamp of the input message."""
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
