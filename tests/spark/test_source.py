"""`format("cues")` in Spark, on a real broker: batches and streams, restarts, losses, and what is refused.

Ranges, options and rows have tests without Spark in tests/unit/on_spark/source; here is what only Spark can show.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import unix_millis
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.source import format as source
from cues_kafka.on_spark.source import rows
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Session
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Headers, Outgoing, TopicPartition
from cues_kafka.spark import register
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until

pytestmark = pytest.mark.timeout(300)


@dataclass
class World:
    """A broker, a Spark session, and topics of one test's own."""

    spark: Any
    kafka: KafkaFixture
    broker: Broker
    checkpoint: str
    seen: list[list[tuple[Any, ...]]] = field(default_factory=list)

    def topic(self, name: str = "t", partitions: int = 1) -> str:
        """A new topic."""
        topic = self.kafka.unique(name)
        self.broker.create([NewTopic(topic, partitions)])
        return topic

    def send(self, topic: str, *values: bytes, partition: int = 0, at_ms: int = 0) -> None:
        """Messages outside of transactions; each a second later than the one before where a time is given."""
        sender = self.broker.sender("test")
        times = [at_ms + 1_000 * number if at_ms else 0 for number in range(len(values))]
        sender.send([Outgoing(topic, partition, b"k", v, None, t) for v, t in zip(values, times, strict=True)])
        sender.close()

    def transaction(self, *records: Outgoing, commit: bool = True) -> Session:
        """One with these records; `commit=False` leaves it open."""
        session = self.broker.session(self.kafka.unique("id"))
        session.init(timeout_s=30)
        session.begin()
        session.produce(records)
        session.flush()
        if commit:
            session.commit()
            session.close()
        return session

    def settled(self, topic: str, partition: int = 0) -> int:
        """The end of a partition, once markers of all transactions are there."""
        place = TopicPartition(topic, partition)
        until(lambda: (marks := self.broker.watermarks([place])[place]).stable == marks.high)
        return self.broker.watermarks([place])[place].high

    def read(self, topic: str = "", **options: Any) -> Any:
        """A batch."""
        return self._options(self.spark.read, topic, options).load()

    def stream(self, topic: str = "", **options: Any) -> Any:
        """A stream."""
        return self._options(self.spark.readStream, topic, options).load()

    def _options(self, reader: Any, topic: str, options: dict[str, Any]) -> Any:
        given = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
        if topic:
            given["subscribe"] = topic
        return reader.format("cues").option("kafka.bootstrap.servers", self.kafka.bootstrap).options(**given)

    def start(self, frame: Any, **trigger: Any) -> Any:
        """A query that keeps what each batch has: (partition, offset, value)."""

        def keep(batch: Any, _: int) -> None:
            self.seen.append(places(batch))

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint)
        return writer.trigger(**trigger).start()

    def drain(self, frame: Any) -> Any:
        """The same for what is there now; batches of this run alone are kept. Gives the query."""
        self.seen.clear()
        query = self.start(frame, availableNow=True)
        query.awaitTermination()
        return query

    @property
    def all(self) -> list[tuple[Any, ...]]:
        """What all batches had, in order of partition and offset."""
        return sorted(row for batch in self.seen for row in batch)


@pytest.fixture
def world(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> Iterator[World]:
    """The session knows the source."""
    register(spark)
    broker = open_broker(Kafka(kafka.bootstrap))
    made = World(spark, kafka, broker, str(tmp_path / "checkpoint"))
    yield made
    for query in spark.streams.active:
        query.stop()
    broker.close()


def places(frame: Any) -> list[tuple[Any, ...]]:
    """(partition, offset, value) as they come."""
    return [(row.partition, row.offset, bytes(row.value).decode()) for row in frame.collect()]


# ---- batches


def test_a_batch_has_what_is_committed_and_all_that_a_message_has(world: World) -> None:
    """Aborted messages and markers leave no row, and every partition is one Spark task, empty ones too."""
    topic = world.topic(partitions=3)
    headers: Headers = [("a", b"1"), ("b", None)]
    at_ms = int(time.time() * 1000) - 60_000  # an older time would be over the topic's retention
    world.transaction(Outgoing(topic, 2, None, b"first", headers, at_ms), Outgoing(topic, 0, b"k", None))
    aborted = world.transaction(Outgoing(topic, 2, b"k", b"aborted"), commit=False)
    aborted.abandon()
    world.transaction(Outgoing(topic, 2, b"", b"", [], at_ms + 1))
    for partition in (0, 2):
        world.settled(topic, partition)
    open_one = world.transaction(Outgoing(topic, 2, b"k", b"open"), commit=False)

    frame = world.read(topic, includeHeaders=True)

    assert frame.rdd.getNumPartitions() == 3
    frame = frame.withColumn("timestamp", unix_millis("timestamp"))
    found = [row.asDict(recursive=True) for row in frame.collect()]
    zero = found.pop(0)
    assert (zero["partition"], zero["offset"], bytes(zero["key"]), zero["value"]) == (0, 0, b"k", None)
    common = {"topic": topic, "partition": 2, "timestampType": 0}
    assert found == [
        common
        | {
            "key": None,
            "value": b"first",
            "offset": 0,
            "timestamp": at_ms,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        },
        common
        | {
            "key": b"",
            "value": b"",
            "offset": 4,
            "timestamp": at_ms + 1,
            "headers": None,
        },
    ]
    open_one.abandon()


def test_the_columns_are_sparks_for_the_same_types(world: World) -> None:
    """Spark compares the first record batch only; others must have the same types by themselves."""
    assert to_arrow_schema(source.SCHEMA, timezone="UTC").equals(rows.COLUMNS)
    with_headers = source.CuesSource({"includeHeaders": "true"}).schema()
    assert isinstance(with_headers, StructType)
    assert to_arrow_schema(with_headers, timezone="UTC").equals(rows.WITH_HEADERS)
    assert world.read(world.topic()).columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_a_batch_between_offsets_and_between_times(world: World) -> None:
    """All forms of Spark's Kafka source."""
    topic, noon = world.topic(partitions=2), int(time.time() * 1000) - 60_000
    world.send(topic, *(b"a%d" % n for n in range(5)), at_ms=noon)
    world.send(topic, *(b"b%d" % n for n in range(5)), at_ms=noon, partition=1)

    def found(**options: Any) -> str:
        return " ".join(value for _, _, value in places(world.read(topic, **options)))

    both = {topic: {"0": 1, "1": -2}}, {topic: {"0": 3, "1": 1}}
    assert found(startingOffsets=both[0], endingOffsets=both[1]) == "a1 a2 b0"
    assert found(startingTimestamp=noon + 3_000) == "a3 a4 b3 b4"
    times = {topic: {"0": noon + 4_000, "1": noon + 1}}, {topic: {"0": noon + 99_000, "1": noon + 2_000}}
    assert found(startingOffsetsByTimestamp=times[0], endingOffsetsByTimestamp=times[1]) == "a4 b1"
    assert found(endingTimestamp=noon + 1_000) == "a0 b0"
    late = {"startingTimestamp": noon + 99_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert found(**late) == ""


def test_a_batch_of_several_topics(world: World) -> None:
    """By a pattern, and by partitions."""
    one, two = world.topic("in.a", partitions=2), world.topic("in.b")
    world.send(one, b"a", partition=1)
    world.send(two, b"b")
    pattern = world.kafka.prefix + "-in[.].*"

    assert [row.topic for row in world.read(subscribePattern=pattern).collect()] == [one, two]
    assert places(world.read(assign={one: [1]})) == [(1, 0, "a")]
    assert world.read(subscribePattern="no-such-topic-anywhere").count() == 0


def test_a_batch_whose_start_was_deleted_names_what_is_lost(world: World) -> None:
    """Or goes on behind it."""
    topic = world.topic()
    world.send(topic, b"a", b"b", b"c", b"d")
    world.broker.trim({TopicPartition(topic, 0): 2})
    options: dict[str, Any] = {"startingOffsets": {topic: {"0": 1}}}

    with pytest.raises(PySparkException, match=rf"lost: {topic}/0 \[1, 2\).*failOnDataLoss"):
        world.read(topic, **options).collect()
    assert places(world.read(topic, **options, failOnDataLoss=False)) == [(0, 2, "c"), (0, 3, "d")]


# ---- streams


def test_a_stream_goes_on_from_its_checkpoint(world: World) -> None:
    """In batches of the size that is asked for, and with its lag in the progress."""
    topic = world.topic(partitions=2)
    world.transaction(*(Outgoing(topic, p, b"k", b"%d" % n) for n in range(3) for p in (0, 1)))
    ends = [world.settled(topic, partition) for partition in (0, 1)]
    assert ends == [4, 4]
    frame = world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)

    query = world.drain(frame)

    assert world.all == [(p, n, str(n)) for p in (0, 1) for n in range(3)]
    progress = [p["sources"][0] for p in query.recentProgress if p["sources"][0]["endOffset"]]
    assert [p["numInputRows"] for p in progress] == [4, 2]
    assert _offsets(progress[0]["endOffset"]) == {topic: {"0": 2, "1": 2}}
    assert _offsets(progress[0]["latestOffset"]) == {topic: {"0": 4, "1": 4}}

    world.send(topic, b"more")
    world.drain(frame)
    assert world.all == [(0, 4, "more")]
    world.drain(frame)
    assert world.all == []


def test_a_stream_takes_new_messages_and_new_partitions_while_it_runs(world: World) -> None:
    """New partitions from their beginning; an open transaction is waited for."""
    topic = world.topic()
    world.send(topic, b"a")
    query = world.start(world.stream(topic, startingOffsets="earliest"), processingTime="100 milliseconds")
    until(lambda: world.all == [(0, 0, "a")] or query.exception(), timeout_s=60)

    held = world.transaction(Outgoing(topic, 0, b"k", b"late"), commit=False)
    world.send(topic, b"behind")
    world.broker.add_partitions(topic, 2)
    world.send(topic, b"new", partition=1)
    until(lambda: (1, 0, "new") in world.all or query.exception(), timeout_s=60)
    assert world.all == [(0, 0, "a"), (1, 0, "new")]

    held.commit()
    held.close()
    until(lambda: (0, 2, "behind") in world.all or query.exception(), timeout_s=60)
    query.stop()
    assert query.exception() is None
    assert world.all == [(0, 0, "a"), (0, 1, "late"), (0, 2, "behind"), (1, 0, "new")]


@pytest.mark.full
def test_a_stream_whose_place_was_deleted_names_what_is_lost(world: World) -> None:
    """And goes on behind it where that is said."""
    topic = world.topic()
    world.send(topic, b"a")
    world.drain(world.stream(topic, startingOffsets="earliest"))
    world.send(topic, b"b", b"c", b"d")
    world.broker.trim({TopicPartition(topic, 0): 3})

    with pytest.raises(PySparkException, match=rf"lost: {topic}/0 \[1, 3\): deleted from the log"):
        world.drain(world.stream(topic, startingOffsets="earliest"))
    assert world.all == []
    world.drain(world.stream(topic, startingOffsets="earliest", failOnDataLoss=False))
    assert world.all == [(0, 3, "d")]


@pytest.mark.full
def test_a_stream_from_times(world: World) -> None:
    """The same forms as a batch."""
    topic, noon = world.topic(), int(time.time() * 1000) - 60_000
    world.send(topic, b"a", b"b", b"c", at_ms=noon)

    world.drain(world.stream(topic, startingTimestamp=noon + 1_000))

    assert world.all == [(0, 1, "b"), (0, 2, "c")]


# ---- where a stream begins (D6)


DRIVER = """
import os, signal, sys
import cues_kafka.spark
from pyspark import SparkContext
from pyspark.sql import SparkSession

bootstrap, topic, name, checkpoint, reached = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
cues_kafka.spark.register(spark)

def die(batch, number):
    open(reached, "w").close()
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

stream = spark.readStream.format("cues").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
stream = stream.option("startingOffsets", "latest").option("name", name).load()
stream.writeStream.foreachBatch(die).option("checkpointLocation", checkpoint).start().awaitTermination()
"""


@pytest.mark.full
def test_the_latest_offsets_of_a_named_stream_survive_a_crash_in_its_first_batch(world: World, tmp_path: Path) -> None:
    """Spark asks for the first offsets again; what came between the two starts is delivered, what was before is not."""
    topic, name, reached = world.topic(), world.kafka.unique("stream"), tmp_path / "reached"
    world.send(topic, b"before", b"before")

    arguments = [world.kafka.bootstrap, topic, name, world.checkpoint, str(reached)]
    driver = subprocess.run([sys.executable, "-c", DRIVER, *arguments], timeout=200, check=False)
    assert driver.returncode == -signal.SIGKILL
    assert reached.exists(), "the driver died before its first batch"
    assert not list((Path(world.checkpoint) / "commits").glob("[0-9]*"))
    world.send(topic, b"between", b"between", b"between")
    world.drain(world.stream(topic, startingOffsets="latest", name=name))

    assert [offset for _, offset, _ in world.all] == [2, 3, 4]


def test_the_start_of_a_name_is_kept_for_another_checkpoint_too(world: World, tmp_path: Path) -> None:
    """A checkpoint that is deleted does not skip anything: the name goes on from its first start."""
    topic, name = world.topic(), world.kafka.unique("stream")
    world.send(topic, b"before")
    world.drain(world.stream(topic, name=name))
    assert world.all == []
    world.send(topic, b"after")

    world.checkpoint = str(tmp_path / "other")
    world.drain(world.stream(topic, name=name))

    assert world.all == [(0, 1, "after")]
    assert world.broker.committed(name, [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}


# ---- refusals, as Spark's users see them


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "no-such-topic-anywhere"}, "these topics do not exist: no-such-topic-anywhere"),
        *(
            pytest.param(*case, marks=pytest.mark.full)  # the process that refuses it ends, and another one imports all
            for case in (
                ({"minPartitions": 8}, "minPartitions is refused: each partition of a topic is read by one Spark task"),
                ({"maxRecordsPerPartition": 8}, "maxRecordsPerPartition is refused: each partition"),
                ({"maxOffsetsPerTrigger": 8}, "maxOffsetsPerTrigger is refused: a batch has no trigger"),
                ({"kafka.isolation.level": "read_uncommitted"}, "must be read_committed"),
                ({"kafka.max.poll.records": 500}, "kafka.queued.min.messages"),
                ({"kafka.fetch.min.bytes": "many"}, 'for configuration property "fetch.min.bytes"'),
                ({"startingOffsets": "latest"}, "cannot begin at the latest offsets"),
            )
        ),
    ],
)
def test_a_batch_with_a_bad_option_is_refused(world: World, options: dict[str, Any], text: str) -> None:
    """Before anything is read."""
    reader = world.spark.read.format("cues").option("kafka.bootstrap.servers", world.kafka.bootstrap)

    with pytest.raises(PySparkException) as refused:
        reader.options(**({"subscribe": "t"} | options)).load().collect()

    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, 'give the stream option("name", N)'),
        *(
            pytest.param({"startingOffsets": "earliest", **option}, text, marks=pytest.mark.full)
            for option, text in (
                ({"minPartitions": 8}, "minPartitions is refused"),
                ({"endingOffsets": "latest"}, "availableNow=True"),
            )
        ),
    ],
)
def test_a_stream_with_a_bad_option_is_refused(world: World, options: dict[str, Any], text: str) -> None:
    """Above all one that would lose messages after a crash in its first batch."""
    with pytest.raises(PySparkException) as refused:
        world.drain(world.stream("t", **options))

    assert text in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffset": "earliest"},
        *(pytest.param(one, marks=pytest.mark.full) for one in ({"minPartitions": 8}, {"includeHeaders": "yes"})),
    ],
)
def test_what_is_wrong_in_any_case_is_told_by_load(world: World, options: dict[str, Any]) -> None:
    """Not by the first action, or the query's start, far away."""
    with pytest.raises(PySparkException, match=r"refused|did you mean|neither"):
        world.read("t", **options)
    with pytest.raises(PySparkException, match=r"refused|did you mean|neither"):
        world.stream("t", **options)


def test_a_schema_of_ones_own_is_refused(world: World) -> None:
    """As by Spark's Kafka source."""
    reader = world.spark.read.format("cues").option("kafka.bootstrap.servers", world.kafka.bootstrap)

    with pytest.raises(PySparkException, match="the columns of this source are fixed"):
        reader.option("subscribe", "t").schema("value STRING").load().collect()


def test_the_source_is_no_sink(world: World) -> None:
    """The advice is the function that is one."""
    frame = world.spark.range(1).selectExpr("cast('v' as binary) as value")
    stream = world.spark.readStream.format("rate").load()

    with pytest.raises(PySparkException, match=r"Use cues_kafka\.spark\.write_exactly_once\(df, topic=\.\.\."):
        frame.write.format("cues").option("topic", "t").mode("append").save()
    with pytest.raises(PySparkException, match="write_exactly_once"):
        stream.writeStream.format("cues").option("checkpointLocation", world.checkpoint).start().awaitTermination()


def _offsets(shown: Any) -> Any:
    """Progress has offsets as text or as an object, as Spark likes."""
    return json.loads(shown) if isinstance(shown, str) else shown
