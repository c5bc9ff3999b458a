"""What runs on Spark, as a child process: ``python -m benchmarks.spark_side MODE``. Its words go to stdout as JSON.

Modes: `exactly` is the framework as its users start it. `least` is the same job written by hand, at least once: the
same ranges, reader, function and batches, a plain producer, Spark's checkpoint alone. `empty` runs a job for each batch
that does nothing with its rows. `source` reads `format("cues")` into nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import cues_kafka.spark
from benchmarks.graphs import make
from benchmarks.work import forward
from cues_kafka import Kafka, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports import TopicPartition
from cues_kafka.runtime.spark.query import RESULT, Settings
from cues_kafka.runtime.spark.ranges import PREFIX, Input, range_source


class Deliver:
    """The body of a Spark task, by hand: consume a range, call, produce, flush."""

    def __init__(self, options: Kafka, source: str, target: str) -> None:
        self.options, self.source, self.target = options, source, target

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One row is one range."""
        for batch in batches:
            for row in batch.to_pylist():
                if row["start"] < row["end"]:
                    self.deliver(row["partition"], row["start"], row["end"])
                yield pa.RecordBatch.from_arrays([pa.array([str(row["partition"])])], names=["outcome"])

    def deliver(self, partition: int, start: int, end: int) -> None:
        """Bound names, and no work per message besides the calls that have to be."""
        from confluent_kafka import Producer  # noqa: PLC0415 - this class goes by value, which the client cannot

        broker, place = open_broker(self.options), TopicPartition(self.source, partition)
        producer = Producer(
            {
                "bootstrap.servers": self.options.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )
        reader, produce, target, position = broker.reader("bench"), producer.produce, self.target, start
        delivered = 0

        def report(error: Any, _: Any) -> None:
            nonlocal delivered
            delivered += error is None

        count = 0
        reader.assign({place: start})
        while position < end:
            for _, messages, eof in reader.poll(0.5):
                for message in messages:
                    if message.offset() >= end:
                        break
                    while True:
                        try:
                            produce(target, forward(message.value() or b""), message.key(), on_delivery=report)
                            break
                        except BufferError:
                            producer.poll(0.05)
                    count += 1
                if messages:
                    position = messages[-1].offset() + 1
                if eof is not None and eof >= end:
                    position = end
        if producer.flush() or delivered != count:
            raise RuntimeError(f"{delivered} of {count} were delivered")
        reader.close()


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows in, nothing out."""
    for _ in batches:
        continue
    return iter(())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("exactly", "least", "empty", "source"))
    for name in ("bootstrap", "name", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--limit", type=int, required=True)
    given = parser.parse_args()
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        run(given, session, directory)
    session.stop()


def run(given: argparse.Namespace, session: Any, directory: str) -> None:
    """One mode, until somebody closes our input."""
    session.streams.addListener(Told())
    options = Kafka(given.bootstrap)
    if given.mode == "exactly":
        graph = make(given.name, given.source, given.target, "raw", given.partitions)
        engine = cues_kafka.spark.Spark(session, checkpoint=directory, max_offsets_per_trigger=given.limit)
        with start(graph, options, engine=engine):
            sys.stdin.read()
        return
    query = source(given, session, directory) if given.mode == "source" else by_hand(given, session, directory)
    sys.stdin.read()
    query.stop()


def source(given: argparse.Namespace, session: Any, directory: str) -> Any:
    """`format("cues")` into nothing."""
    cues_kafka.spark.register(session)
    frame = (
        session.readStream.format("cues")
        .option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.limit)
        .load()
    )
    return frame.writeStream.format("noop").option("checkpointLocation", f"{directory}/c").start()


def by_hand(given: argparse.Namespace, session: Any, directory: str) -> Any:
    """Ranges by our source, the rest without us."""
    options = Kafka(given.bootstrap)
    ranges = Input(given.name, options, given.source, (0,) * given.partitions, given.limit)
    session.dataSource.register(range_source(ranges))
    frame = session.readStream.format(PREFIX + given.name).load()
    body = Deliver(options, given.source, given.target) if given.mode == "least" else nothing
    settings = Settings(session, f"{directory}/c", {"processingTime": "0 seconds"})
    return settings.write(frame, given.name, lambda batch, _: batch.mapInArrow(body, RESULT).collect())


class Told(StreamingQueryListener):
    """Says of each batch how long it took, in ms, and its rows."""

    def onQueryStarted(self, event: Any) -> None: ...
    def onQueryIdle(self, event: Any) -> None: ...
    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        """One line."""
        one = event.progress
        said = dict(one.durationMs) | {"rows": one.numInputRows, "per_s": one.processedRowsPerSecond}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
