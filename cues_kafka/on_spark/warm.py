"""
Warm a new session: run a small query of our own, so that Java has loaded and compiled what a query needs.

It starts Spark's Python processes, too. It reads a source that is only here, and its checkpoint is in a temporary
directory, so it touches no topic, group or checkpoint of a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.classes import WARMING
from cues_kafka.on_spark.lost import first_line, is_jvm_gone

log = get_logger("cues_kafka.spark.warm")

BATCHES: Final = 3
"""In the first micro-batch Java loads classes, in the next ones it compiles."""

LOOK_S: Final = 0.1
"""How often it is asked whether to go no further."""

TEMPORARY: Final = "cues-kafka-warm-"

_SCHEMA: Final = pa.schema([("n", pa.int64())])


def warm(session: Any, *, frames: bool, enough: Callable[[], bool]) -> None:
    """
    Warm a session. What fails here is only logged: a query that needs it tells.

    Args:
        session: of Spark, new.
        frames: whether it computes DataFrames.
        enough: asked again and again, whether to go no further.

    Raises:
        PySparkException: Spark's JVM has ended; also `Py4JError` and `OSError`.
    """
    if enough():
        return
    batch = _Batch(frames=frames)
    try:
        session.dataSource.register(_Numbers)
        with temporary_directory(TEMPORARY) as directory:
            frame = session.readStream.format(WARMING).load()
            query = (
                frame.writeStream.foreachBatch(batch)
                .queryName(WARMING)
                .option("checkpointLocation", str(directory))
                .start()
            )
            try:
                while not batch.over.wait(LOOK_S) and not enough() and query.isActive:
                    pass
            finally:
                query.stop()
    except (PySparkException, Py4JError, OSError) as error:
        if is_jvm_gone(error):
            raise
        log.info("session not warmed", error=first_line(error))


class _Batch:
    """What is done with each micro-batch: a job below DataFrames, as for plain processors, and a shuffle."""

    def __init__(self, *, frames: bool) -> None:
        self.over = threading.Event()
        self._frames = frames

    def __call__(self, frame: Any, number: int) -> None:
        context = frame.sparkSession.sparkContext
        width = context.defaultParallelism
        context.parallelize(range(width), width).mapPartitions(list).collect()
        if self._frames:
            frame.mapInArrow(_same, "n BIGINT").repartition(width, "n").mapInArrow(_same, "n BIGINT").collect()
        if number + 1 >= BATCHES:
            self.over.set()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class _Numbers(DataSource):
    """One new number for each micro-batch."""

    @classmethod
    def name(cls) -> str:
        return WARMING

    def schema(self) -> str:
        return "n BIGINT"

    def streamReader(self, schema: Any) -> _NumberReader:
        return _NumberReader()


class _NumberReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"n": start["n"] + 1}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return [InputPartition(n) for n in range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [partition.value]}, schema=_SCHEMA)
