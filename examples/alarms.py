"""An alarm when a sensor was too hot three times in a row: your own state in pandas, with `applyInPandasWithState`.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/alarms.py``.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark

HOT = 80.0
TIMES = 3


@dataclass(frozen=True)
class Reading:
    """An input message; `number` counts the readings of a sensor."""

    sensor: str
    number: int
    celsius: float


@dataclass(frozen=True)
class Alarm:
    """An output message: the reading that raised the alarm."""

    sensor: str
    number: int


def watch(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Handle one sensor's readings of a micro-batch; the state is the number of hot readings in a row."""
    [hot] = state.get if state.exists else (0,)
    alarms = []
    for reading in pd.concat(list(frames)).sort_values("number").itertuples():
        hot = hot + 1 if reading.celsius > HOT else 0
        if hot == TIMES:
            alarms.append((key[0], reading.number))
    state.update((hot,))
    yield pd.DataFrame(alarms, columns=["sensor", "number"])


def alarms(readings: DataFrame) -> DataFrame:
    """Make alarms; the messages of a key are in one partition, so its readings come in order."""
    return (
        readings.select("sensor", "number", "celsius")
        .groupBy("sensor")
        .applyInPandasWithState(
            watch,
            outputStructType="sensor STRING, number BIGINT",
            stateStructType="hot BIGINT",
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )


graph = Graph(
    "alarms",
    Source("alarms.readings"),
    DataFrameProcessor(alarms, inputs="alarms.readings", outputs="alarms.raised"),
    topics={
        "alarms.readings": Topic(value=Json(Reading), key="sensor", partitions=4),
        "alarms.raised": Topic(value=Json(Alarm), key="sensor", partitions=4),
    },
)

READINGS = [Reading(f"s{n % 3}", n // 3, 70.0 + (n * n // 5) % 31) for n in range(60)]

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
        for half in (READINGS[:30], READINGS[30:]):
            running.send_many("alarms.readings", half)
            running.wait_idle(timeout_s=180)
        for message in running.messages("alarms.raised"):
            print(message.value)
    session.stop()
