"""DataFrames that shuffle or keep state, into Kafka, exactly once (T1 to T4)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import ConfigError, DataFrameProcessor, Graph, Json, Kafka, Source, TaskStopped, Topic, start
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.operate.look.lineage import lineage
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = pytest.mark.timeout(300)

WIDTH = 3
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    customer: str
    total: int
    at: datetime = NOON


@dataclass(frozen=True)
class Payment:
    """What comes in beside it."""

    order: str
    paid: int
    at: datetime = NOON


@dataclass(frozen=True)
class Sum:
    """What goes out: the newest sum of a customer, and a number that no two computations share."""

    customer: str
    orders: int
    total: int
    nonce: str


def sums(orders: Any) -> Any:
    """How much each customer has ordered so far."""
    from pyspark.sql import functions as f

    counted = orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
    return counted.withColumn("nonce", f.expr("uuid()"))


def make(name: str, fn: Callable[..., Any] = sums, *, errors: bool = False, **changes: Any) -> Graph:
    """Orders and payments in, whatever the function makes of them out."""
    settings = {"inputs": f"{name}.orders", "outputs": f"{name}.out", "output_mode": "update"} | changes
    outputs = settings["outputs"]
    written = [outputs] if isinstance(outputs, str) else list(outputs.values())
    return Graph(
        name,
        Source(f"{name}.orders"),
        Source(f"{name}.payments"),
        DataFrameProcessor(fn, name="frames", **settings),
        errors=f"{name}.errors" if errors else None,
        topics={
            f"{name}.orders": Topic(value=Json(Order), key="id", partitions=WIDTH),
            f"{name}.payments": Topic(value=Json(Payment), key="order", partitions=2),
            **{topic: Topic(value=Json(Sum if fn is sums else None), partitions=WIDTH) for topic in written},
        },
    )


@dataclass
class World:
    """One graph after another over the same topics."""

    spark: Any
    options: Kafka
    checkpoint: Path

    def start(self, graph: Graph, checkpoint: str = "c") -> Running:
        """On Spark."""
        return start(graph, self.options, engine=Spark(self.spark, checkpoint=str(self.checkpoint / checkpoint)))


@pytest.fixture
def world(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> World:
    """The session and the cluster."""
    return World(spark, Kafka(kafka.bootstrap), tmp_path)


def orders(run: str, count: int = 20, **changes: Any) -> list[Order]:
    """Of five customers."""
    return [Order(f"{run}-{n}", f"c{n % 5}", n, **changes) for n in range(count)]


def together(run: str, count: int = 20) -> list[Order]:
    """
    Of five customers, all in one partition, so that one batch reads all of them.

    A transaction ends in each partition on its own: a batch that begins meanwhile reads a part of its messages.
    """
    ids = (one for one in (f"{run}-{n}" for n in itertools.count()) if partition_for(one.encode(), WIDTH) == 0)
    return [Order(one, f"c{n % 5}", n) for n, one in enumerate(itertools.islice(ids, count))]


def values(running: Running, topic: str) -> list[Any]:
    """What is committed there."""
    return [message.value for message in running.messages(topic)]


def test_every_row_of_an_aggregate_is_published_once_over_restarts(world: World, kafka: KafkaFixture) -> None:
    """A batch updates a customer once, so each of its counts appears once; a batch may see a part of what was sent."""
    graph = make(kafka.unique("staged"))
    for run, batches in enumerate((2, 1)):
        with world.start(graph) as running:
            for batch in range(batches):
                running.send_many(f"{graph.name}.orders", orders(f"{run}-{batch}"))
                running.wait_idle(timeout_s=180)
            found = running.messages(f"{graph.name}.out")
            raw = list(running.committed(f"{graph.name}.out"))
            status = running.status()
    seen = Counter((one.value.customer, one.value.orders) for one in found)
    assert set(seen.values()) == {1}
    # All that was sent is counted before the next is sent: a count in between is of a batch that saw some partitions.
    assert set(seen) >= {(f"c{c}", 4 * sent) for c in range(5) for sent in range(1, 4)}
    assert max(count for _, count in seen) == 12
    assert sum(task.totals.messages for task in status.tasks) == len(found)
    assert len(status.tasks) == WIDTH
    places = [parse_provenance(bytes(dict(m.headers() or [])[HEADER] or b"")) for m in raw]
    assert all(place.consumed == () for place in places)
    rows = Counter((place.task, place.sequence, place.count) for place in places)
    assert all(count == of for (_, _, of), count in rows.items())
    last, *older = sorted((int(kept.name) for kept in (world.checkpoint / "c").glob("*/stage/*")), reverse=True)
    assert not older, "older batches are cleaned"
    assert list((world.checkpoint / "c").glob(f"*/stage/{last}/*/manifest.json")), "the last one never is"


@pytest.mark.full
def test_a_driver_that_died_while_it_wrote_its_first_offsets_has_a_successor(world: World, kafka: KafkaFixture) -> None:
    """Spark writes them under another name first, and refuses a checkpoint where only that file is."""
    graph = make(kafka.unique("staged"))
    offsets = world.checkpoint / "c" / f"{graph.name}.frames" / "offsets"
    offsets.mkdir(parents=True)
    unfinished = [offsets / ".0.5d0b4a56-1c2f-4a6e-8a57-0f6f2a1b3c4d.tmp", offsets / "..0.5d0b4a56.tmp.crc"]
    for file in unfinished:
        file.write_text("v1")

    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", together("0"))
        running.wait_idle(timeout_s=180)
        found = values(running, f"{graph.name}.out")

    assert {(one.customer, one.orders) for one in found} == {(f"c{n}", 4) for n in range(5)}
    assert not [file for file in unfinished if file.exists()]


@pytest.mark.full
def test_a_join_of_two_streams_reads_both_once(world: World, kafka: KafkaFixture) -> None:
    """Inner, with watermarks; inputs of different width; over a restart between the two sides."""

    def paid(orders: Any, payments: Any) -> Any:
        from pyspark.sql import functions as f

        left = orders.withWatermark("at", "1 hour").select("id", "customer", f.col("at").alias("ordered"))
        right = payments.withWatermark("at", "1 hour").select("order", "paid", f.col("at").alias("paid_at"))
        close = "id = order AND paid_at BETWEEN ordered AND ordered + INTERVAL 1 HOUR"
        return left.join(right, f.expr(close)).select("id", "customer", "paid")

    name = kafka.unique("join")
    graph = make(name, paid, inputs={"orders": f"{name}.orders", "payments": f"{name}.payments"}, output_mode="append")
    with world.start(graph) as running:
        running.send_many(f"{name}.orders", orders("a"))
        running.wait_idle(timeout_s=180)
        assert values(running, f"{name}.out") == []
    with world.start(graph) as running:
        running.send_many(f"{name}.payments", [Payment(f"a-{n}", n, NOON + timedelta(minutes=1)) for n in range(20)])
        running.wait_idle(timeout_s=180)
        found = values(running, f"{name}.out")
    assert Counter((row["id"], row["customer"], row["paid"]) for row in found) == Counter(
        (f"a-{n}", f"c{n % 5}", n) for n in range(20)
    )


@pytest.mark.full
def test_windows_that_close_without_a_message_are_published(world: World, kafka: KafkaFixture) -> None:
    """
    Append mode: a batch without new messages gives the rows of a window that the watermark has passed; the window is
    open over a restart.
    """

    def hourly(orders: Any) -> Any:
        from pyspark.sql import functions as f

        windows = orders.withWatermark("at", "10 minutes").groupBy(f.window("at", "1 hour"))
        return windows.agg(f.sum("total").alias("total")).select(f.col("window.start").alias("hour"), "total")

    graph = make(kafka.unique("windows"), hourly, output_mode="append")
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", orders("a"))
        running.wait_idle(timeout_s=180)
        assert values(running, f"{graph.name}.out") == []
    with world.start(graph) as running:
        running.send(f"{graph.name}.orders", Order("later", "c0", 1, NOON + timedelta(hours=2)))
        running.wait_idle(timeout_s=180)
        found = values(running, f"{graph.name}.out")
    assert found == [{"hour": "2026-01-01T12:00:00.000Z", "total": 190}]


# Default, and no table is small enough to be sent to every task.
@pytest.mark.full
@pytest.mark.parametrize(("threshold", "mode"), [("10MB", "direct"), ("-1", "staged")])
def test_a_join_with_a_table_is_written_as_its_plan_says(
    world: World, kafka: KafkaFixture, threshold: str, mode: str
) -> None:
    """Directly where Spark broadcasts the table, staged where it shuffles both sides; each row once."""

    def named(orders: Any) -> Any:
        table = orders.sparkSession.range(5).selectExpr("concat('c', id) AS customer", "id * id AS square")
        return orders.join(table, "customer").select("id", "square", "_cues")

    graph = make(kafka.unique("table"), named, output_mode="append")
    setting = "spark.sql.autoBroadcastJoinThreshold"
    world.spark.conf.set(setting, threshold)
    try:
        engine = Spark(world.spark, checkpoint=str(world.checkpoint))
        assert explain(graph, world.options, engine=engine)["frames"].mode == mode
        with world.start(graph) as running:
            running.send_many(f"{graph.name}.orders", orders("a"))
            running.wait_idle(timeout_s=180)
            found = values(running, f"{graph.name}.out")
    finally:
        world.spark.conf.unset(setting)
    assert Counter((row["id"], row["square"]) for row in found) == Counter((f"a-{n}", (n % 5) ** 2) for n in range(20))


def numbers(orders: Any) -> Any:
    """The orders of each customer, numbered, with state in pandas."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Numbers(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._seen = handle.getValueState("seen", "count BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            [seen] = self._seen.get() or (0,)
            ids = pd.concat(list(rows))["id"]
            self._seen.update((seen + len(ids),))
            yield pd.DataFrame({"customer": key[0], "id": ids, "number": range(seen + 1, seen + len(ids) + 1)})

        def close(self) -> None:
            """Nothing to release."""

    return (
        orders.select("customer", "id")
        .groupBy("customer")
        .transformWithStateInPandas(
            statefulProcessor=Numbers(),
            outputStructType="customer STRING, id STRING, number BIGINT",
            outputMode="Append",
            timeMode="None",
        )
    )


@pytest.mark.full
@pytest.mark.usefixtures("rocksdb")
def test_state_of_ones_own_in_pandas_is_carried_over_a_restart(world: World, kafka: KafkaFixture) -> None:
    """`transformWithStateInPandas`: no number of a customer is given twice, and none is left out."""
    graph = make(kafka.unique("pandas"), numbers, output_mode="append")
    for run in "ab":
        with world.start(graph) as running:
            running.send_many(f"{graph.name}.orders", orders(run))
            running.wait_idle(timeout_s=180)
            found = values(running, f"{graph.name}.out")
    assert Counter(row["id"] for row in found) == Counter(f"{run}-{n}" for run in "ab" for n in range(20))
    assert Counter((row["customer"], row["number"]) for row in found) == Counter(
        (f"c{c}", number) for c in range(5) for number in range(1, 9)
    )


def test_a_state_store_that_cannot_do_it_is_refused_with_the_setting(world: World, kafka: KafkaFixture) -> None:
    """At the start: Spark fails only in the first batch, and by then its checkpoint holds the wrong store for good."""
    graph = make(kafka.unique("store"), numbers, output_mode="append")
    remedy = r"providerClass=org\.apache\.spark\.sql\.execution\.streaming\.state\.RocksDBStateStoreProvider"
    with pytest.raises(ConfigError, match=rf"HDFSBackedStateStoreProvider.*{remedy}"):
        world.start(graph)
    with pytest.raises(ConfigError, match=remedy):
        explain(graph, world.options, engine=Spark(world.spark, checkpoint=str(world.checkpoint)))
    assert not list(world.checkpoint.iterdir())


@pytest.mark.full
def test_several_outputs_share_one_publication(world: World, kafka: KafkaFixture) -> None:
    """
    A row goes where its binding says; an output that gets nothing is none the worse. What was seen before a restart
    is a duplicate after it.
    """

    def split(orders: Any) -> Any:
        unique = orders.dropDuplicates(["id"])
        return {
            "small": unique.where("total < 10").select("id", "total"),
            "large": unique.where("total >= 10").select("id", "total"),
        }

    name = kafka.unique("split")
    graph = make(name, split, outputs={"small": f"{name}.small", "large": f"{name}.large"}, output_mode="append")
    for count in (5, 20):
        with world.start(graph) as running:
            running.send_many(f"{name}.orders", orders("a", count) + orders("a", count))
            running.wait_idle(timeout_s=180)
            small, large = (values(running, f"{name}.{binding}") for binding in ("small", "large"))
    assert sorted(row["total"] for row in small) == list(range(10))
    assert sorted(row["total"] for row in large) == list(range(10, 20))


def test_rows_that_do_not_fit_are_error_messages_of_the_same_publication(
    world: World, kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """The others land; each refused row is one message on the errors topic, and the log says how many there are."""

    def wrong(orders: Any) -> Any:
        from pyspark.sql import functions as f

        counted = orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
        nonce = f.when(f.col("customer") != "c3", f.lit("n"))  # none is not a str
        return counted.withColumn("nonce", nonce)

    name = kafka.unique("refused")
    graph = make(name, wrong, errors=True)
    graph = Graph(
        name,
        *graph.sources.values(),
        *graph.dataframes.values(),
        errors=graph.errors,
        topics={**graph.topics, f"{name}.out": Topic(value=Json(Sum), key="customer", partitions=WIDTH)},
    )
    with world.start(graph) as running:
        running.send_many(f"{name}.orders", together("a"))
        running.wait_idle(timeout_s=180)
        good, [error] = values(running, f"{name}.out"), values(running, f"{name}.errors")
        [failed] = running.messages(f"{name}.errors")
        totals = [task.totals for task in running.status().tasks]
    assert {one.customer for one in good} == {"c0", "c1", "c2", "c4"}
    assert isinstance(error, ErrorMessage)
    assert error.kind == "output"
    assert "nonce" in error.text
    assert json.loads(error.payload or b"")["customer"] == "c3"
    assert (sum(one.errors for one in totals), sum(one.outputs for one in totals)) == (1, 4)
    [line] = [one for one in caplog.messages if one.startswith("error messages")]
    assert line == f"error messages rows=1 processor='frames' batch=0 topic='{name}.errors'"
    broker = open_broker(world.options)
    try:
        root = lineage(broker, TopicPartition(failed.topic, failed.partition), failed.offset)
        with Repairs(graph, broker) as tool:
            [filed] = tool.find()
            [why] = tool.ask("replay").refused
    finally:
        broker.close()
    assert filed.message == error
    assert "it is of a row that the function returned" in why
    assert root.error.startswith("CodecError")
    assert root.batch is not None
    assert root.batch.kind == "staged"
    assert sum(end - start for start, end in root.batch.ranges[f"{name}.orders"].values()) >= 5


@pytest.mark.full
def test_a_deleted_checkpoint_is_refused_before_anything_is_written(world: World, kafka: KafkaFixture) -> None:
    """State that Spark kept is gone with it."""
    graph = make(kafka.unique("lost"))
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", together("a"))
        running.wait_idle(timeout_s=180)
    with pytest.raises(TaskStopped, match="this checkpoint is of another query"):
        world.start(graph, "another")
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", together("b"))
        running.wait_idle(timeout_s=180)
        assert len(values(running, f"{graph.name}.out")) == 10


@pytest.mark.full
def test_without_state_another_checkpoint_goes_on_where_the_last_one_ended(world: World, kafka: KafkaFixture) -> None:
    """The record says up to where the inputs are published."""

    def sorted_apart(orders: Any) -> Any:
        return orders.repartition(4, "customer").select("id", "total")

    graph = make(kafka.unique("moved"), sorted_apart, output_mode="append")
    for run in "ab":
        with world.start(graph, run) as running:
            running.send_many(f"{graph.name}.orders", orders(run))
            running.wait_idle(timeout_s=180)
            found = values(running, f"{graph.name}.out")
    assert Counter(row["id"] for row in found) == Counter(f"{run}-{n}" for run in "ab" for n in range(20))


def test_two_bindings_of_one_topic_are_refused(world: World, kafka: KafkaFixture) -> None:
    """Spark would read it up to two places."""
    name = kafka.unique("twice")

    def both(a: Any, b: Any) -> Any:
        return a.union(b)

    graph = make(name, both, inputs={"a": f"{name}.orders", "b": f"{name}.orders"}, output_mode="append")
    with pytest.raises(ConfigError, match="two bindings of one topic"):
        world.start(graph)
