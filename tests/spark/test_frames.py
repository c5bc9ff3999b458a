"""DataFrames into Kafka, exactly once, without a shuffle: processors of a graph, and any streaming frame (D1 to D4)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Message, Source, TaskStopped, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.errors import CuesError
from cues_kafka.on_spark.source.format import CuesSource
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.spark import Spark, write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture
from tests.spark.streams import frame_of

pytestmark = pytest.mark.timeout(300)

WIDTH = 3
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    total: int


@dataclass(frozen=True)
class Line:
    """What goes out."""

    id: str
    copy: int
    gross: float


def lines(orders: Any) -> Any:
    """Two lines for each order that has a total; the others leave nothing."""
    from pyspark.sql import functions as f

    copies = f.explode(f.sequence(f.lit(1), f.lit(2))).alias("copy")
    taxed = (f.col("total") * 1.5).alias("gross")
    return orders.where("total > 0").select("id", copies, taxed, "_cues").withColumn("copy", f.col("copy").cast("long"))


def make(name: str, fn: Callable[..., Any] = lines) -> Graph:
    """One processor of DataFrames."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(fn, name="lines", inputs=f"{name}.orders", outputs=f"{name}.lines"),
        topics={
            f"{name}.orders": Topic(value=Json(Order), key="id", partitions=WIDTH),
            f"{name}.lines": Topic(value=Json(Line), partitions=WIDTH),
        },
    )


def test_rows_of_a_processor_are_committed_once_over_restarts(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Though the checkpoint is gone in between: the records say where each task stands."""
    graph = make(kafka.unique("frames"))
    options, topic = Kafka(kafka.bootstrap), graph.default_source.topic  # type: ignore[union-attr]
    for run, checkpoint in enumerate("ab"):
        engine = Spark(spark, checkpoint=str(tmp_path / checkpoint), max_offsets_per_trigger=20)
        with start(graph, options, engine=engine) as running:
            running.send_many(topic, [Order(f"{run}-{n}", n % 3) for n in range(30)])
            running.wait_idle(timeout_s=180)
            found = running.messages(f"{graph.name}.lines")
    expected = sorted((f"{run}-{n}", copy) for run in range(2) for n in range(30) if n % 3 for copy in (1, 2))
    assert sorted((one.value.id, one.value.copy) for one in found) == expected
    assert {one.key for one in found} == {order for order, _ in expected}
    assert all(one.value.gross == 1.5 * (int(one.value.id.split("-")[1]) % 3) for one in found)


@pytest.mark.full
def test_every_row_says_which_message_it_was_made_from(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Provenance, so that a torn or doubled delivery shows."""
    graph = make(kafka.unique("frames"))
    name = graph.name
    with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        sent = [running.send(f"{name}.orders", Order(str(n), 1)) for n in range(4)]
        running.wait_idle(timeout_s=180)
        raw = list(running.committed(f"{name}.lines"))
    places = [parse_provenance(bytes(dict(m.headers() or [])[HEADER] or b"")) for m in raw]
    found = sorted((p.consumed[0].partition, p.consumed[0].offset, p.index, p.count) for p in places)
    assert found == sorted((s.partition, s.offset, i, 2) for s in sent for i in (0, 1))


def test_a_row_that_does_not_fit_the_topic_stops_its_processor(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """The columns are not those of the class: nothing of the batch is written, and the text says what is wrong."""

    def wrong(orders: Any) -> Any:
        return orders.select("id", "_cues")

    graph = make(kafka.unique("frames"), wrong)
    running = start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path)))
    running.send(f"{graph.name}.orders", Order("a", 1))
    with pytest.raises(TaskStopped, match="does not fit"):
        running.wait_idle(timeout_s=180)
    running.stop()
    with connect(Kafka(kafka.bootstrap), graph) as client:
        assert client.messages(f"{graph.name}.lines") == []


# Any streaming frame.


@pytest.fixture
def topics(kafka: KafkaFixture) -> Iterator[tuple[Kafka, str, str]]:
    """The cluster, an input with 60 messages, and an output."""
    options, source, target = Kafka(kafka.bootstrap), kafka.unique("in"), kafka.unique("out")
    broker = open_broker(options)
    broker.create([NewTopic(source, WIDTH), NewTopic(target, WIDTH)])
    with connect(options) as client:
        client.send_many(source, [{"n": n} for n in range(60)])
    yield options, source, target
    broker.close()


def numbers(options: Kafka, topic: str) -> list[int]:
    """What readers at read_committed see, sorted."""
    with connect(options) as client:
        return sorted(one.value["n"] for one in client.messages(topic))


@pytest.mark.full
def test_a_frame_is_written_once_however_often_its_batches_run(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """The commit log of the last batch is taken away, so Spark runs it again; then the whole checkpoint."""
    options, source, target = topics
    for round_, forget in enumerate(("nothing", "last commit", "checkpoint")):
        checkpoint = tmp_path / ("second" if forget == "checkpoint" else "first")
        if forget == "last commit":
            last = max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdecimal())
            (checkpoint / "commits" / str(last)).unlink()
            (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
        query = write_exactly_once(
            frame_of(spark, options, source), options, topic=target, name=f"{target}-copy", checkpoint=str(checkpoint)
        )
        query.processAllAvailable()
        query.stop()
        assert numbers(options, target) == list(range(60)), round_


@pytest.mark.full
def test_partitions_may_come_in_any_order_and_empty_ones_not_at_all(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """As with Spark's own `format("kafka")`: the slot comes from the rows, never from the number of the Spark task."""
    options, source, target = topics

    class KafkaShaped(CuesSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-shaped"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            reader = super().streamReader(schema)
            between = reader.partitions
            reader.partitions = lambda start, end: [p for p in reversed(between(start, end)) if p.start < p.end]  # type: ignore[method-assign]
            return reader

    spark.dataSource.register(KafkaShaped)
    frame = frame_of(spark, options, source, "kafka-shaped")
    query = write_exactly_once(frame, options, topic=target, name=f"{target}-shaped", checkpoint=str(tmp_path))
    query.processAllAvailable()
    with connect(options) as client:
        client.send(source, {"n": 60}, key="one partition only")
    query.processAllAvailable()
    query.stop()
    assert numbers(options, target) == list(range(61))


def test_ranges_that_leave_no_row_move_on(spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path) -> None:
    """A filter took everything: the driver publishes the empty ranges, and lag tools see it."""
    options, source, target = topics
    frame = frame_of(spark, options, source).where("offset < 0")
    query = write_exactly_once(frame, options, topic=target, name=f"{target}-none", checkpoint=str(tmp_path))
    query.processAllAvailable()
    query.stop()
    broker = open_broker(options)
    places = [TopicPartition(source, p) for p in range(WIDTH)]
    committed = broker.committed(f"{target}-none.write", places)
    assert {place: marks.stable for place, marks in broker.watermarks(places).items()} == committed
    broker.close()


@pytest.mark.full
def test_partitions_that_are_added_are_written_from_their_beginning(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """A running query says that it must be started again; the next one has them all."""
    options, source, target = topics

    def query() -> Any:
        frame = frame_of(spark, options, source)
        return write_exactly_once(frame, options, topic=target, name=f"{target}-wider", checkpoint=str(tmp_path))

    running = query()
    running.processAllAvailable()
    broker = open_broker(options)
    broker.add_partitions(source, WIDTH + 1)
    broker.close()
    with connect(options) as client:
        client.send_many(source, [Message({"n": n}, partition=WIDTH) for n in range(60, 70)])
    with pytest.raises(Exception, match="more partitions than the 3"):
        running.processAllAvailable()
    again = query()
    again.processAllAvailable()
    again.stop()
    assert numbers(options, target) == list(range(70))


@pytest.mark.slow
def test_the_example_runs_as_it_stands(kafka: KafkaFixture, tmp_path: Path) -> None:
    """On another address and under another name, so that it meets no other test's topics."""
    name = kafka.unique("warehouse")
    text = (ROOT / "examples" / "lines.py").read_text("utf-8")
    program = tmp_path / "lines.py"
    program.write_text(text.replace("localhost:9092", kafka.bootstrap).replace("warehouse", name))

    ran = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert ran.returncode == 0, ran.stderr
    found = sorted(line for line in ran.stdout.splitlines() if line.startswith("Line("))
    assert found == [
        "Line(id='a1', article='bolt', count=10)",
        "Line(id='a1', article='nut', count=20)",
    ]


@pytest.mark.slow
def test_a_reset_behind_an_unfinished_batch_goes_on_without_the_checkpoint(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Spark repeats the batch that it had planned, which begins above the new position: the task refuses it."""
    graph, options = make(kafka.unique("frames")), Kafka(kafka.bootstrap)
    engine = Spark(spark, checkpoint=str(tmp_path))
    for n in range(2):  # two batches: the second one begins above 0
        with start(graph, options, engine=engine) as running:
            running.send_many(f"{graph.name}.orders", [Order(f"{n}-{i}", 1) for i in range(30)])
            running.wait_idle(timeout_s=120)
    checkpoint = tmp_path / f"{graph.name}.lines"
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()  # as if the driver had been killed before it was written
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    tool = Maintenance(graph, open_broker(options), "lines", who="test")
    tool.carry_out(reset(tool))

    with (
        pytest.raises(CuesError, match="delete the checkpoint of its query"),
        start(graph, options, engine=engine, timeout_s=60) as running,
    ):
        running.wait_idle(timeout_s=60)
    shutil.rmtree(checkpoint)
    with start(graph, options, engine=engine) as running:
        running.wait_idle(timeout_s=120)
        assert len(running.messages(f"{graph.name}.lines")) == 240
