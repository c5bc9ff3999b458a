"""The Spark side as a child process: ``python -m benchmarks.spark_side MODE``. It writes JSON to stdout.

Modes: `exactly` is the framework as its users start it. `least` is the same without its transactions: the same slots
and records by an idempotent producer, which is at least once. `hand` is that job written by hand: the same ranges,
reader, function and batches, no records, no headers. `empty` runs a job for each batch that does nothing with its rows.
`source` reads `format("cues")` into nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import cues_kafka.spark
from benchmarks.graphs import make
from benchmarks.work import forward
from cues_kafka import Kafka, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.on_spark.direct.plain import PlainBatch
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.jobs import RESULT
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.source.ranges import PREFIX, RangeRow, SourceInput, range_source
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.session_of import OwnSession
from cues_kafka.task.workers import Job


class Deliver:
    """A hand-written body of a Spark task: consume a range, call, produce, flush."""

    def __init__(self, options: Kafka, source: str, target: str) -> None:
        self.options, self.source, self.target = options, source, target

    def deliver(self, given: RangeRow, *, attempt: str, first: bool) -> Outcome:
        """Run with bound names, and only the necessary calls for each message."""
        del attempt, first
        from confluent_kafka import Producer  # noqa: PLC0415 - this class goes by value, which the client cannot

        partition, [(_, start, end)] = given.partition, given.inputs
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
        return Outcome(self.source, partition, {self.source: end})


class Plain(KafkaSession):
    """A session of a slot without transactions."""

    def __init__(self, options: Kafka, name: str) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - as above

        KafkaSession.__init__(self, options, name)
        assert self._producer is not None
        self._warm.join()
        settings = options.settings("session", client_id=name) | {"enable.idempotence": True}
        self._producer = Producer(settings)

    def init(self, *, timeout_s: float) -> None: ...
    def begin(self) -> None:
        """Reset the counts of reports."""
        self._reports = type(self._reports)()

    def send_offsets(self, offsets: Any, group: Any) -> None: ...
    def produce(self, records: Any, *, marked: bool = False) -> int:
        """Keep the place of the task's record."""
        if not self._reports.produced:
            [self._place] = [(topic, partition) for topic, partition, *_ in records]
        return KafkaSession.produce(self, records, marked=marked)

    def commit(self) -> None:
        """Write a record in place of a marker: the next record is expected behind it (P6a)."""
        assert self._producer is not None
        self._producer.produce(self._place[0], b"", b"marker", self._place[1])
        self._producer.flush()


class PlainBroker(KafkaBroker):
    """A broker whose sessions have no transactions."""

    def session(self, transactional_id: str, *, batch_bytes: int | None = None, brief: bool = False) -> Plain:
        return Plain(self.options, transactional_id)


@dataclass(frozen=True, slots=True)
class AtLeastOnce(Work):
    """The work of slots on such a broker."""

    def slot(self, partition: int, attempt: str) -> Slot:
        """See `Work`."""
        slot = Work.slot(self, partition, attempt)
        interpreter = slot._lane.interpreter  # noqa: SLF001 - users have no choice here
        broker = PlainBroker(cast(Kafka, self.options))
        interpreter._session = OwnSession(interpreter.task.spec, broker, None, interpreter.gate.wait)  # noqa: SLF001
        return slot


class AtLeastOnceSpark(cues_kafka.spark.Spark):
    """The engine with such work."""

    def worker(self, job: Job) -> SparkWorker:
        """See `Spark`."""
        worker = cues_kafka.spark.Spark.worker(self, job)
        run: Any = worker._planned  # noqa: SLF001 - as above
        work = {field.name: getattr(run._work, field.name) for field in fields(Work)}  # noqa: SLF001
        run._work = AtLeastOnce(**work)  # noqa: SLF001
        return worker


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Read rows, and write nothing."""
    for _ in batches:
        continue
    return iter(())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("exactly", "least", "hand", "empty", "source"))
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
    with temporary_directory("cues-kafka-bench-") as directory:
        run(given, session, str(directory))
    session.stop()


def run(given: argparse.Namespace, session: Any, directory: str) -> None:
    """Run one mode until the input is closed."""
    session.streams.addListener(Told())
    options = Kafka(given.bootstrap)
    if given.mode in ("exactly", "least"):
        graph = make(given.name, given.source, given.target, "raw", given.partitions)
        kind = cues_kafka.spark.Spark if given.mode == "exactly" else AtLeastOnceSpark
        engine = kind(session, checkpoint=directory, max_offsets_per_trigger=given.limit)
        with start(graph, options, engine=engine):
            sys.stdin.read()
        return
    query = source(given, session, directory) if given.mode == "source" else by_hand(given, session, directory)
    sys.stdin.read()
    query.stop()


def source(given: argparse.Namespace, session: Any, directory: str) -> Any:
    """Read with `format("cues")`, and write nothing."""
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
    """Get ranges from our source, and do the rest without the framework."""
    options = Kafka(given.bootstrap)
    ranges = SourceInput(given.name, options, {given.source: (0,) * given.partitions}, given.limit)
    session.dataSource.register(range_source(ranges))
    frame = session.readStream.format(PREFIX + given.name).load()
    settings = QuerySettings(session, f"{directory}/c", {"processingTime": "0 seconds"})
    if given.mode == "empty":
        return settings.write(frame, given.name, lambda batch, _: batch.mapInArrow(nothing, RESULT).collect())
    work: Any = Deliver(options, given.source, given.target)
    return settings.write(frame, given.name, PlainBatch(work, settings.checkpoint, ranges.first, None))


class Told(StreamingQueryListener):
    """Reports each batch with its time in ms and its rows."""

    def onQueryStarted(self, event: Any) -> None: ...
    def onQueryIdle(self, event: Any) -> None: ...
    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        """Print one line."""
        one = event.progress
        said = dict(one.durationMs) | {"rows": one.numInputRows, "per_s": one.processedRowsPerSecond}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
