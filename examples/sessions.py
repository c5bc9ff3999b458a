"""Sessions per visitor: your own state and timers with `transformWithState`, each session exactly once.

A session ends with the page "bye", or 30 minutes after the last click. Spark keeps open sessions in its state store.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/sessions.py``.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark

GAP_MS = 30 * 60_000


@dataclass(frozen=True)
class Click:
    """An input message."""

    visitor: str
    page: str
    at: datetime


@dataclass(frozen=True)
class Session:
    """An output message: a session that has ended."""

    visitor: str
    began_ms: int
    ended_ms: int
    clicks: int


class Sessions(StatefulProcessor):
    """Holds one open session of each visitor."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; Spark calls this first."""
        self._handle = handle
        self._open = handle.getValueState("open", "began_ms BIGINT, ended_ms BIGINT, clicks BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Handle the clicks of one visitor in one micro-batch, which come in any order."""
        for click in sorted(rows, key=lambda row: (row.ms, row.page)):
            began, ended, clicks = self._open.get() or (click.ms, click.ms, 0)
            if click.ms > ended + GAP_MS:
                yield self._close(key)
                began, ended, clicks = click.ms, click.ms, 0
            self._set(min(began, click.ms), max(ended, click.ms), clicks + 1)
            if click.page == "bye":
                yield self._close(key)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Close a session whose end the watermark has passed: no click of it can come."""
        yield self._close(key)

    def close(self) -> None:
        """Release nothing."""

    def _set(self, began_ms: int, ended_ms: int, clicks: int) -> None:
        self._forget()
        self._open.update((began_ms, ended_ms, clicks))
        self._handle.registerTimer(ended_ms + GAP_MS)

    def _close(self, key: Any) -> Row:
        began_ms, ended_ms, clicks = self._forget()
        return Row(visitor=key[0], began_ms=began_ms, ended_ms=ended_ms, clicks=clicks)

    def _forget(self) -> tuple[int, ...]:
        session = self._open.get() or ()
        if session:
            self._handle.deleteTimer(session[1] + GAP_MS)
            self._open.clear()
        return session


def sessions(clicks: DataFrame) -> DataFrame:
    """Make sessions of clicks, which may be 10 minutes late; `Append` publishes a session once, when it has ended."""
    timed = clicks.withWatermark("at", "10 minutes").selectExpr("visitor", "page", "at", "unix_millis(at) AS ms")
    return timed.groupBy("visitor").transformWithState(
        statefulProcessor=Sessions(),
        outputStructType="visitor STRING, began_ms BIGINT, ended_ms BIGINT, clicks BIGINT",
        outputMode="Append",
        timeMode="EventTime",
    )


graph = Graph(
    "sessions",
    Source("sessions.clicks"),
    DataFrameProcessor(sessions, inputs="sessions.clicks", outputs="sessions.closed"),
    topics={
        "sessions.clicks": Topic(value=Json(Click), key="visitor", partitions=4),
        "sessions.closed": Topic(value=Json(Session), key="visitor", partitions=4),
    },
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLICKS = [
    Click(visitor, page, NOON + timedelta(minutes=minute))
    for visitor, page, minute in (
        *(("ann", "home", 0), ("ann", "shop", 20), ("ann", "shop", 45), ("ann", "home", 80)),
        *(("bob", "home", 30), ("bob", "bye", 31), ("bob", "home", 32)),
        ("eve", "home", 300),  # hours later: all earlier sessions have ended
    )
]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only store of Spark that `transformWithState` works with."""

if __name__ == "__main__":
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=checkpoint)) as running,
    ):
        running.send_many("sessions.clicks", CLICKS)
        running.wait_idle(timeout_s=180)
        for message in running.messages("sessions.closed"):
            print(message.value)
    session.stop()
