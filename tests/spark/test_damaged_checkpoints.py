"""Checkpoints that a full disk or a crash has left empty or cut, under real queries: nothing is lost or doubled."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Processor, Source, TaskStopped, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.ports.facts import NewTopic
from cues_kafka.spark import Spark, register, write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

DAMAGES = ("metadata", "offsets", "offsets before", "offsets missing", "commits")


def same(order: Any) -> Any:
    """Send on what comes."""
    return order


def rows(orders: Any) -> Any:
    """The same as DataFrames, written directly."""
    return orders.select("value", "_cues")


def counts(orders: Any) -> Any:
    """How often each value came: a shuffle with state, written staged."""
    return orders.groupBy("value").count()


def damage(checkpoint: Path, kind: str) -> None:
    """Leave of a checkpoint what a full disk leaves; Spark's checksums of the files go."""
    for checksum in checkpoint.rglob(".*.crc"):
        checksum.unlink()
    number = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    match kind:
        case "metadata":
            (checkpoint / "metadata").write_text("")
        case "offsets before":
            (checkpoint / "offsets" / str(number - 1)).write_text("")
        case "offsets missing":
            (checkpoint / "offsets" / str(number - 1)).unlink()
        case log:
            (checkpoint / log / str(number)).write_text("")


def graph_of(name: str, *processors: Any) -> Graph:
    """A graph of one input."""
    raw = {"partitions": 2, "key": None}
    return Graph(name, Source(f"{name}.in"), *processors, defaults=Topic(value=Json(), **raw))  # type: ignore[arg-type]


def test_direct_queries_go_on_by_their_records(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """A function's and a DataFrame's, after each kind of damage, with messages that came meanwhile."""
    name = kafka.unique("damaged")
    graph = graph_of(
        name,
        Processor(same, name="plain", inputs=f"{name}.in", outputs=f"{name}.plain"),
        DataFrameProcessor(rows, name="frame", inputs=f"{name}.in", outputs=f"{name}.frame"),
    )
    wanted: list[int] = []
    for round_, kind in enumerate(("", *DAMAGES)):
        for processor in ("plain", "frame") if kind else ():
            damage(tmp_path / f"{name}.{processor}", kind)
        with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
            for batch in range(2):
                sent = [100 * round_ + 10 * batch + n for n in range(5)]
                running.send_many(f"{name}.in", sent)
                running.wait_idle(timeout_s=180)
                wanted += sent
            assert sorted(one.value for one in running.messages(f"{name}.plain")) == wanted, kind
            found = Counter(str(one.value) for one in running.messages(f"{name}.frame"))
            assert (len(found), set(found.values())) == (len(wanted), {1}), kind


def test_staged_query_goes_on_or_names_the_command(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """A cut entry of the newest finished batch costs nothing; of what else Spark keeps, each cut file is named."""
    name = kafka.unique("damaged")
    frames = DataFrameProcessor(counts, name="counts", inputs=f"{name}.in", outputs=f"{name}.out", output_mode="update")
    graph, checkpoint = graph_of(name, frames), tmp_path / f"{name}.counts"

    def run() -> list[int]:
        with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
            for _ in range(2):
                running.send_many(f"{name}.in", ["a"] * 3)
                running.wait_idle(timeout_s=180)
            return [one.value["count"] for one in running.messages(f"{name}.out")]

    assert max(run()) == 6
    damage(checkpoint, "commits")
    assert max(found := run()) == 12
    assert len(set(found)) == len(found), "each count is published once"
    for kind in ("metadata", "offsets", "offsets before", "offsets missing"):
        copy = tmp_path / "copy"
        shutil.copytree(checkpoint, copy)
        damage(checkpoint, kind)
        with pytest.raises(TaskStopped, match=r"run `cues-kafka reset MODULE:GRAPH counts`, delete .*counts, and"):
            start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path)))
        shutil.rmtree(checkpoint)
        copy.rename(checkpoint)
    damage(checkpoint, "metadata")
    broker = open_broker(Kafka(kafka.bootstrap))
    tool = Maintenance(graph, broker, "counts", who="reset in a test")
    tool.carry_out(reset(tool))
    broker.close()
    shutil.rmtree(checkpoint)
    assert max(run()) == 18


def test_frame_without_a_graph_goes_on_by_its_records(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Written directly, with a checkpoint of the user's own."""
    source, target, options = kafka.unique("in"), kafka.unique("out"), Kafka(kafka.bootstrap)
    broker = open_broker(options)
    broker.create([NewTopic(source, 2), NewTopic(target, 2)])
    broker.close()
    register(spark)
    frame = spark.readStream.format("cues").option("kafka.bootstrap.servers", kafka.bootstrap)
    frame = frame.option("subscribe", source).option("startingOffsets", "earliest").load()
    wanted: list[int] = []
    for round_, kind in enumerate(("", "metadata", "offsets", "commits")):
        if kind:
            damage(tmp_path, kind)
        with connect(options) as client:
            wanted += (sent := [10 * round_ + n for n in range(5)])
            client.send_many(source, sent)
            query = write_exactly_once(frame, options, topic=target, name=f"{target}-copy", checkpoint=str(tmp_path))
            query.processAllAvailable()
            query.stop()
            assert sorted(int(one.value) for one in client.messages(target)) == wanted, kind
