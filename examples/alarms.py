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

HOT, TIMES = 80.0, 3


@dataclass(frozen=True)
class Reading:
    """An input message, and the output if it raises an alarm; `number` counts the readings of a sensor."""

    sensor: str
    number: int
    celsius: float


def watch(_: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Handle one sensor's readings of a micro-batch; the state is the number of hot readings in a row."""
    [hot] = state.get if state.exists else (0,)
    readings = pd.concat(list(frames)).sort_values("number")
    rows = [hot := hot + 1 if celsius > HOT else 0 for celsius in readings.celsius]
    state.update((hot,))
    yield readings[[row == TIMES for row in rows]]


def alarms(readings: DataFrame) -> DataFrame:
    """Make alarms; the messages of a key are in one partition, so its readings come in order."""
    sensors = readings.select("sensor", "number", "celsius").groupBy("sensor")
    output, state = "sensor STRING, number BIGINT, celsius DOUBLE", "hot BIGINT"
    return sensors.applyInPandasWithState(watch, output, state, "append", GroupStateTimeout.NoTimeout)


processor = DataFrameProcessor(alarms, inputs="alarms.readings", outputs="alarms.raised")
defaults = Topic(value=Json(Reading), key="sensor", partitions=4)
graph = Graph("alarms", Source("alarms.readings"), processor, defaults=defaults)

READINGS = [Reading(f"s{n % 3}", n // 3, 70.0 + (n * n // 5) % 31) for n in range(60)]

if __name__ == "__main__":
    session = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with start(graph, Kafka("localhost:9092"), engine=Spark(session, checkpoint=tempfile.mkdtemp())) as running:
        for half in (READINGS[:30], READINGS[30:]):
            running.send_many("alarms.readings", half)
            running.wait_idle(timeout_s=180)
        print(*(message.value for message in running.messages("alarms.raised")), sep="\n")
