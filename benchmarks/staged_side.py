"""A Spark driver that writes an aggregate, as a child process: ``python -m benchmarks.staged_side MODE``.

Modes: `staged` is `write_exactly_once`. `direct` is the same query by hand, which is not safe: each Spark task produces
its rows with a plain producer, and a batch that comes again is there twice. `publish` writes a DataFrame that does not
stream; `raw` produces the same messages in two plain processes. `delta` writes the rows of the same query into a table
of Delta Lake, and `delta-by-hand` does it as one would without cues-kafka: the rows of each batch come to the driver,
which appends them with an application transaction. Its words go to stdout as JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

import cues_kafka.spark
from cues_kafka import DataFrameProcessor, Delta, Graph, Kafka, Raw, Source, Topic, start
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.core.delivery import HEADER

PARTS = 4
VALUE = "x" * 60


class Produce:
    """A hand-written body of a Spark task: produce, flush, count."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Produce the rows, which are only bytes, and count them."""
        producer = plain(self.bootstrap)
        count = 0
        for batch in batches:
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                produce(producer, self.topic, value, key)
                count += 1
        producer.flush()
        yield pa.RecordBatch.from_arrays([pa.array([count])], names=["count"])


def plain(bootstrap: str) -> Any:
    """A producer with our settings, except transactions."""
    from confluent_kafka import Producer  # noqa: PLC0415 - functions that use it go by value, which it cannot

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
        }
    )


def produce(producer: Any, topic: str, value: bytes, key: bytes, headers: Any = None) -> None:
    """Produce, and wait if the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
            return
        except BufferError:
            producer.poll(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["staged", "direct", "publish", "raw", "delta", "delta-by-hand"])
    for name in ("--bootstrap", "--source", "--target", "--name"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rows", type=int, required=True)
    given = parser.parse_args()
    if given.mode == "raw":
        say(raw(given))
        return
    spoken = logging.getLogger("cues_kafka.spark")
    spoken.setLevel(logging.INFO)
    spoken.addHandler(_Published())
    spoken.propagate = False
    session = _session()
    with temporary_directory("cues-kafka-bench-") as folder:
        checkpoint = str(folder)
        if given.mode == "publish":
            for run in range(3):
                _publish(session, given, f"{checkpoint}/{run}", f"{given.name}-{run}")
            return
        session.streams.addListener(_Listener())
        query = (_to_delta if given.mode == "delta" else _query)(session, given, checkpoint)
        sys.stdin.read()
        query.stop()


def _session() -> Any:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(PARTS))
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def _query(session: Any, given: argparse.Namespace, checkpoint: str) -> Any:
    cues_kafka.spark.register(session)
    frame = (
        session.readStream.format("cues")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(given.rows))
        .load()
    )
    counted = _counted(frame, given.rows)
    options = Kafka(given.bootstrap)
    if given.mode == "delta-by-hand":
        append = Append(f"{checkpoint}/table")
        made = counted.writeStream.foreachBatch(append).outputMode("update")
        return made.option("checkpointLocation", f"{checkpoint}/query").start()
    if given.mode == "staged":
        return cues_kafka.spark.write_exactly_once(
            counted.select(f.col("id").alias("_key"), "id", "count"),
            options,
            topic=given.target,
            name=given.name,
            checkpoint=checkpoint,
            output_mode="update",
        )
    rows = counted.select(
        f.col("id").cast("binary").alias("key"), f.to_json(f.struct("id", "count")).cast("binary").alias("value")
    )
    produce_rows = Produce(given.bootstrap, given.target)

    def write(batch: Any, _: int) -> None:
        batch.mapInArrow(produce_rows, "count BIGINT").collect()

    return rows.writeStream.foreachBatch(write).outputMode("update").option("checkpointLocation", checkpoint).start()


def _counted(frame: Any, rows: int, place: str = "") -> Any:
    """Every batch has each key once: the state does not grow, and garbage collection does not disturb the figures."""
    number = f.col(f"{place}offset") % (rows // PARTS)
    key = f.concat_ws("-", f.col(f"{place}partition"), number).alias("id")
    return frame.groupBy(key).agg(f.count("*").alias("count"))


class Append:
    """The sink by hand: it passes over a batch that the table has."""

    def __init__(self, place: str) -> None:
        self.place = place
        deltalake.DeltaTable.create(place, pa.schema([("id", pa.string()), ("count", pa.int64())]))

    def __call__(self, batch: Any, number: int) -> None:
        """Append the rows of a batch."""
        table = deltalake.DeltaTable(self.place)
        if (table.transaction_version("by-hand") or -1) >= number:
            return
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("by-hand", number)])
        deltalake.write_deltalake(table, batch.toArrow(), mode="append", commit_properties=done)


def _to_delta(session: Any, given: argparse.Namespace, checkpoint: str) -> Any:
    def counted(frame: Any) -> Any:
        return _counted(frame, given.rows, "_cues.")

    table = Delta(f"file://{checkpoint}").table("table", columns={"id": "string", "count": "long"})
    graph = Graph(
        given.name,
        Source(given.source),
        DataFrameProcessor(counted, inputs=given.source, into=table, output_mode="update"),
        topics={given.source: Topic(value=Raw(), partitions=PARTS)},
    )
    engine = cues_kafka.spark.Spark(session, checkpoint=f"{checkpoint}/query", max_offsets_per_trigger=given.rows)
    return start(graph, Kafka(given.bootstrap), engine=engine)


def _publish(session: Any, given: argparse.Namespace, checkpoint: str, name: str) -> None:
    frame = session.range(0, given.rows, numPartitions=PARTS).select(
        f.col("id").cast("string").alias("_key"), f.concat(f.lit(VALUE), f.col("id")).alias("value")
    )
    cues_kafka.spark.write_exactly_once(
        frame, Kafka(given.bootstrap), topic=given.target, name=name, checkpoint=checkpoint
    )


def raw(given: argparse.Namespace) -> dict[str, float]:
    """Rows a second of two processes, from their first call to their flush, with a header of our length."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_ready, range(2))
        began = time.monotonic()
        pool.starmap(_raw, [(given.bootstrap, given.target, given.rows // 2 * k, given.rows // 2) for k in range(2)])
        return {"rate": given.rows / (time.monotonic() - began)}


def _ready(_: int) -> None:
    time.sleep(0.1)  # so that both processes of the pool get a task


def _raw(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer, value = plain(bootstrap), VALUE.encode()
    for number in range(first, first + count):
        key = b"%d" % number
        produce(producer, topic, value + key, key, [(HEADER, b"1 published.write/0 2 - %d/%d -" % (number, count))])
    producer.flush()


class _Published(logging.Handler):
    """Collects the log lines about the three steps of each batch."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print `published batch=3 rows=3000 ...` as a row."""
        event, *pairs = record.getMessage().split()
        if event == "published":
            given = dict(pair.split("=", 1) for pair in pairs)
            say(
                {key: float(given[key]) for key in ("batch", "rows", "bytes", "staged_s", "announced_s", "published_s")}
            )


class _Listener(StreamingQueryListener):
    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        """Print the milliseconds of each batch with rows."""
        progress = event.progress
        if progress.numInputRows:
            say({"addBatch": progress.durationMs["addBatch"], "trigger": progress.durationMs["triggerExecution"]})

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def say(row: dict[str, Any]) -> None:
    """Print one line."""
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
