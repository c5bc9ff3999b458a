"""Sessions per visitor: your own state and timers with `transformWithState`, each session exactly once.

A session ends 30 minutes after its last click; `session_state.py` has what Spark keeps of those that are open.
Start a broker with ``cues-kafka broker up``, then run ``python -m examples.sessions``.
"""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark
from examples.session_state import Sessions


@dataclass(frozen=True)
class Click:
    """An input message."""

    visitor: str
    at: datetime


@dataclass(frozen=True)
class Session:
    """An output message: a session that has ended."""

    visitor: str
    began_ms: int
    ended_ms: int
    clicks: int


def sessions(clicks: DataFrame) -> DataFrame:
    """Make sessions of clicks, which may be 10 minutes late; `Append` publishes a session once, when it has ended."""
    timed = clicks.withWatermark("at", "10 minutes").selectExpr("visitor", "at", "unix_millis(at) AS ms")
    columns = "visitor STRING, began_ms BIGINT, ended_ms BIGINT, clicks BIGINT"
    return timed.groupBy("visitor").transformWithState(Sessions(), columns, outputMode="Append", timeMode="EventTime")


processor = DataFrameProcessor(sessions, inputs="sessions.clicks", outputs="sessions.closed")
TOPICS = {"sessions.clicks": Topic(value=Json(Click), partitions=4), "sessions.closed": Topic(value=Json(Session))}
graph = Graph("sessions", Source("sessions.clicks"), processor, topics=TOPICS)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = {"ann": (0, 20, 45, 80), "bob": (30, 31, 32), "eve": (300,)}  # eve's click ends all sessions before it
CLICKS = [Click(visitor, NOON + timedelta(minutes=at)) for visitor, minutes in MINUTES.items() for at in minutes]
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"  # as `transformWithState` needs

if __name__ == "__main__":
    session = SparkSession.builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB).getOrCreate()
    with start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=tempfile.mkdtemp())) as running:
        running.send_many("sessions.clicks", CLICKS)
        running.wait_idle(timeout_s=180)
        print(*(message.value for message in running.messages("sessions.closed")), sep="\n")
