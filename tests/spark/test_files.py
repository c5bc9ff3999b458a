"""DataFrames whose rows go to Parquet files of a store, exactly once (E5)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from cues_kafka import Blobs, ConfigError, DataFrameProcessor, Graph, Json, Kafka, Source, Topic, files, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.blobs import FileTable
from cues_kafka.running.running import Running
from cues_kafka.sinks.blobs.store import open_store
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import until
from tests.servers.fixtures import S3Bucket

pytestmark = pytest.mark.timeout(300)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    customer: str
    total: int
    at: datetime = NOON


def sums(orders: Any) -> Any:
    """How much each customer has ordered so far."""
    from pyspark.sql import functions as f

    return orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))


def texts(orders: Any) -> Any:
    """Totals as text, of which some are no numbers; a plan that leaves the partitions apart."""
    from pyspark.sql import functions as f

    total = f.when(f.col("total") % 10 == 3, f.lit("three")).otherwise(f.col("total").cast("string"))
    return orders.select("id", total.alias("total"), "at", "_cues")


def make(name: str, fn: Callable[..., Any], into: FileTable, mode: Any = "append", *, errors: bool = True) -> Graph:
    """Orders in, files out."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(fn, name="frames", inputs=f"{name}.orders", into=into, output_mode=mode),
        errors=f"{name}.errors" if errors else None,
        topics={f"{name}.orders": Topic(value=Json(Order), key="id", partitions=3)},
    )


@dataclass
class World:
    """One session, one cluster, one store."""

    spark: Any
    options: Kafka
    root: Path

    @property
    def url(self) -> str:
        """Of the store."""
        return f"file://{self.root}/store"

    def engine(self) -> Spark:
        """The same checkpoint each time."""
        return Spark(self.spark, checkpoint=str(self.root / "checkpoint"))

    def start(self, graph: Graph) -> Running:
        """On Spark."""
        return start(graph, self.options, engine=self.engine())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What readers of files see."""
        found: list[dict[str, Any]] = []
        for one in files(self.url, table):
            path = Path(one.url.removeprefix("file://"))
            rows = pyarrow.parquet.read_table(path).to_pylist()
            assert (len(rows), path.stat().st_size) == (one.rows, one.bytes)
            found += rows
        return found


@pytest.fixture
def world(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> World:
    """The session and the cluster."""
    return World(spark, Kafka(kafka.bootstrap), tmp_path)


@pytest.mark.full
def test_each_batch_of_an_aggregate_is_in_files_once_over_restarts(world: World, kafka: KafkaFixture) -> None:
    """A batch updates a customer once, so each of its counts appears once; `verify` finds nothing wrong."""
    graph = make(kafka.unique("files"), sums, Blobs(world.url).parquet("sums"), "update")
    assert explain(graph, world.options, engine=world.engine())["frames"].mode == "staged"
    for run in range(2):
        with world.start(graph) as running:
            running.send_many(f"{graph.name}.orders", [Order(f"{run}-{n}", f"c{n % 5}", n) for n in range(20)])
            running.wait_idle(timeout_s=180)
            status = running.status()
    found = Counter((row["customer"], row["orders"]) for row in world.rows("sums"))
    assert set(found.values()) == {1}
    assert set(found) >= {(f"c{c}", 4 * sent) for c in range(5) for sent in (1, 2)}
    assert max(count for _, count in found) == 8
    [task] = status.tasks
    assert task.totals.nils == task.totals.deliveries == found.total()
    listed = {one.url.removeprefix("file://") for one in files(world.url)}
    assert {str(path) for path in (world.root / "store" / "sums").rglob("*.parquet")} == listed
    broker = open_broker(world.options)
    try:
        report = verify(graph, broker)
        assert report.ok, str(report)
    finally:
        broker.close()


def test_rows_that_do_not_fit_the_schema_are_error_messages_and_the_others_are_in_files(
    world: World, kafka: KafkaFixture
) -> None:
    """Of a plan that would be written directly to a topic; columns that no one has declared are left out."""
    schema = {"total": "int64", "id": "string", "at": "timestamp[us]"}
    graph = make(kafka.unique("files"), texts, Blobs(world.url).parquet("totals", schema=schema))
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", [Order(f"{n}", "c", n) for n in range(20)])
        running.wait_idle(timeout_s=180)
        errors = [message.value for message in running.messages(f"{graph.name}.errors")]
    assert sorted(row["total"] for row in world.rows("totals")) == [n for n in range(20) if n % 10 != 3]
    [first, *_] = files(world.url)
    read = pyarrow.parquet.read_schema(first.url.removeprefix("file://"))
    assert read.equals(pa.schema([("total", "int64"), ("id", "string"), ("at", pa.timestamp("us"))]))
    assert sorted(json.loads(one.payload or b"")["id"] for one in errors) == ["13", "3"]
    assert all("field 'total' is no int64" in one.text for one in errors)


@pytest.mark.full
def test_batches_go_to_s3_over_restarts(world: World, kafka: KafkaFixture, s3: S3Bucket) -> None:
    """Spark's tasks get the options of the store; readers list what counts, by the same options."""
    lake = Blobs(f"{s3.url}/deep", options=s3.options)
    graph = make(kafka.unique("files"), lambda orders: orders.select("id", "total"), lake.parquet("orders"))
    for run in range(2):
        with world.start(graph) as running:
            running.send_many(f"{graph.name}.orders", [Order(f"{run}-{n}", "c", n) for n in range(20)])
            running.wait_idle(timeout_s=180)
    store = open_store(f"{s3.url}/deep", s3.options)
    paths = {one.url.removeprefix(f"{s3.url}/deep/") for one in files(f"{s3.url}/deep", options=s3.options)}
    assert set(store.below("orders")) == paths
    tables = [pyarrow.parquet.read_table(pa.BufferReader(store.read(path) or b"")) for path in paths]
    assert sorted(pa.concat_tables(tables)["id"].to_pylist()) == sorted(f"{r}-{n}" for r in range(2) for n in range(20))


@pytest.mark.full
def test_a_store_that_goes_away_pauses_the_processor_and_it_goes_on_by_itself(
    world: World, kafka: KafkaFixture
) -> None:
    """In mid-run: no row becomes an error, and the cause is in the status."""
    schema = {"total": "int64", "id": "string"}
    graph = make(kafka.unique("files"), texts, Blobs(world.url).parquet("totals", schema=schema))
    store, away = world.root / "store", world.root / "away"
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", [Order(f"{n}", "c", n) for n in range(3)])
        running.wait_idle(timeout_s=180)
        store.rename(away)
        store.write_text("in its place")
        running.send_many(f"{graph.name}.orders", [Order(f"{n}", "c", n) for n in range(4, 13)])
        [stopped] = until(lambda: list(running.status().stopped), "the processor says that it stopped", 120)
        assert "the store does not" in stopped.stopped
        store.unlink()
        away.rename(store)
        until(lambda: not running.status().stopped, "it goes on", 120)
        running.wait_idle(timeout_s=180)
        assert not running.messages(f"{graph.name}.errors")
    assert sorted(row["total"] for row in world.rows("totals")) == [n for n in range(13) if n != 3]


def test_wrong_columns_are_refused_at_the_start_with_the_remedy(world: World, kafka: KafkaFixture) -> None:
    """Before any topic or file is written by the query."""
    lake = Blobs(world.url)
    wrong: list[tuple[Callable[..., Any], FileTable, str]] = [
        (lambda o: o.withColumnRenamed("id", "_key"), lake.parquet("t"), r"'_key' are the key.*withColumnRenamed"),
        (
            lambda o: o.select("id", o.total.alias("ID")),
            lake.parquet("t"),
            "'ID', 'id' have one name for those",
        ),
        (lambda o: o, lake.parquet("t", schema={"totl": "int64"}), "no column 'totl'.*'total'"),
        (lambda o: o.select("_cues"), lake.parquet("t"), "no column is left"),
        (lambda o: o.selectExpr("array(total) AS all"), lake.parquet("t", schema={"all": "int64"}), "Correct one"),
        (lambda o: o.selectExpr("INTERVAL 1 MONTH AS m"), lake.parquet("t"), "cast it"),
    ]
    for fn, table, why in wrong:
        graph = make(kafka.unique("wrong"), fn, table)
        with pytest.raises(ConfigError, match=why):
            explain(graph, world.options, engine=world.engine())
