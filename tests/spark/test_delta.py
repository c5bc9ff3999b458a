"""DataFrames whose rows go to a table of Delta Lake, exactly once (E5, E6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pytest

from cues_kafka import ConfigError, DataFrameProcessor, Delta, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.running.running import Running
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.spark import Spark, explain
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import until
from tests.servers.fixtures import S3Bucket
from tests.spark.test_files import Order, sums, texts

pytestmark = pytest.mark.timeout(300)


def make(name: str, fn: Callable[..., Any], into: DeltaTarget, mode: Any = "append") -> Graph:
    """Orders in, a table out."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(fn, name="frames", inputs=f"{name}.orders", into=into, output_mode=mode),
        errors=f"{name}.errors",
        topics={f"{name}.orders": Topic(value=Json(Order), key="id", partitions=3)},
    )


class World:
    """One session, one cluster, one checkpoint."""

    def __init__(self, spark: Any, kafka: KafkaFixture, root: Path) -> None:
        self.options = Kafka(kafka.bootstrap)
        self.lake = Delta(f"file://{root}/lake")
        self.engine = Spark(spark, checkpoint=str(root / "checkpoint"))

    def start(self, graph: Graph) -> Running:
        """On Spark."""
        return start(graph, self.options, engine=self.engine)

    def deliver(self, graph: Graph, *orders: Order) -> None:
        """Start, send, wait, stop."""
        with self.start(graph) as running:
            running.send_many(f"{graph.name}.orders", orders)
            running.wait_idle(timeout_s=180)


@pytest.fixture
def world(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> World:
    """The session and the cluster."""
    return World(spark, kafka, tmp_path)


def test_rows_are_in_the_table_once_and_an_added_column_is_added(world: World, kafka: KafkaFixture) -> None:
    """
    Over a restart, with `optimize` and `vacuum` in between, and read by polars and DuckDB.

    Rows that do not fit are error messages. A column that is gone is refused.
    """
    from pyspark.sql import functions as f

    columns = {"id": "string", "total": "long", "even": "boolean"}
    graph = make(kafka.unique("delta"), _divided, world.lake.table("orders", columns=columns, partition_by="even"))
    told = explain(graph, world.options, engine=world.engine)["frames"]
    assert told.mode == "staged"
    assert "committed as a whole by one commit of the table's log" in told.why
    world.deliver(graph, *[Order(f"0-{n}", "c", n) for n in range(20)])

    url = world.lake.url.removeprefix("file://") + "/orders"
    table = deltalake.DeltaTable(url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    more = world.lake.table("orders", columns={**columns, "at": "timestamp"}, partition_by="even")
    graph = make(graph.name, _divided, more)
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", [Order(f"1-{n}", "c", n) for n in range(20)])
        running.wait_idle(timeout_s=180)
        errors = [message.value.payload for message in running.messages(f"{graph.name}.errors")]
    assert len(errors) == 4

    wanted = sorted((f"{run}-{n}", n, n % 2 == 0) for run in range(2) for n in range(20) if n % 10 != 3)
    rows = pl.read_delta(url)
    assert sorted(rows.select("id", "total", "even").rows()) == wanted
    assert rows.filter(pl.col("id").str.starts_with("0-"))["at"].null_count() == 18
    assert rows.filter(pl.col("id").str.starts_with("1-"))["at"].null_count() == 0
    connection = duckdb.connect()
    connection.register("orders", deltalake.DeltaTable(url).to_pyarrow_dataset())
    [(count, total)] = connection.execute("SELECT count(*), sum(total) FROM orders WHERE even").fetchall()
    assert (count, total) == (20, 180)
    [task] = running.status().tasks
    assert (task.totals.nils, task.totals.errors) == (36, 4)
    broker = open_broker(world.options)
    try:
        report = verify(graph, broker)
        assert report.ok, str(report)
    finally:
        broker.close()
    fewer = make(graph.name, lambda o: _divided(o).drop("at"), world.lake.table("orders", columns=columns))
    with pytest.raises(ConfigError, match=r"columns that are not declared: 'at'.*leave=.*divided by 'even'"):
        explain(fewer, world.options, engine=world.engine)
    wrong = make(graph.name, lambda o: o.select(f.create_map("id", "total").alias("ids")), world.lake.table("maps"))
    with pytest.raises(ConfigError, match=r"no columns of the types of 'ids'.*to_json"):
        explain(wrong, world.options, engine=world.engine)


def _divided(orders: Any) -> Any:
    from pyspark.sql import functions as f

    return texts(orders).withColumn("even", f.col("id").substr(3, 9).cast("int") % 2 == 0)


@pytest.mark.full
def test_batches_of_an_aggregate_go_to_s3_over_restarts(world: World, kafka: KafkaFixture, s3: S3Bucket) -> None:
    """Columns are those of the DataFrame. Spark's tasks get the options of the store."""
    lake = Delta(f"{s3.url}/deep", options=s3.storage_options)
    graph = make(kafka.unique("delta"), sums, lake.table("sums", partition_by="customer"), "update")
    for run in range(2):
        world.deliver(graph, *[Order(f"{run}-{n}", f"c {n % 5}/ü", n) for n in range(20)])
    rows = pl.read_delta(f"{s3.url}/deep/sums", storage_options=s3.storage_options)
    found = rows.select("customer", "orders").rows()
    assert len(set(found)) == len(found)
    assert set(found) >= {(f"c {c}/ü", 4 * sent) for c in range(5) for sent in (1, 2)}
    assert max(count for _, count in found) == 8


@pytest.mark.full
def test_lists_and_structures_of_a_frame_are_read_by_others(world: World, kafka: KafkaFixture) -> None:
    """Columns are those of the DataFrame; null and empty ones, too."""
    graph = make(kafka.unique("delta"), _nested, world.lake.table("nested"))
    world.deliver(graph, *[Order(f"{n}", "c", n) for n in range(3)])
    rows = pl.read_delta(world.lake.url.removeprefix("file://") + "/nested").sort("id").to_dicts()
    whole = {"customer": "c", "more": [{"total": 2, "text": "2"}]}
    assert rows == [
        {"id": "0", "sums": [], "one": None},
        {"id": "1", "sums": [1], "one": {"customer": "c", "more": [{"total": 1, "text": "1"}]}},
        {"id": "2", "sums": [2, 2], "one": whole},
    ]


def _nested(orders: Any) -> Any:
    from pyspark.sql import functions as f

    more = f.array(f.struct("total", f.col("id").alias("text")))
    return orders.select(
        "id",
        f.array_repeat("total", f.col("total").cast("int")).alias("sums"),
        f.when(f.col("total") > 0, f.struct("customer", more.alias("more"))).alias("one"),
    )


@pytest.mark.full
def test_a_table_that_goes_away_pauses_the_processor_and_it_goes_on_by_itself(
    world: World, kafka: KafkaFixture
) -> None:
    """In mid-run: no row becomes an error, and the cause is in the status."""
    graph = make(kafka.unique("delta"), lambda o: o.select("id", "total"), world.lake.table("orders"))
    table = Path(world.lake.url.removeprefix("file://")) / "orders"
    with world.start(graph) as running:
        running.send_many(f"{graph.name}.orders", [Order(f"{n}", "c", n) for n in range(3)])
        running.wait_idle(timeout_s=180)
        away = table.rename(table.with_name("away"))
        running.send_many(f"{graph.name}.orders", [Order(f"{n}", "c", n) for n in range(3, 13)])
        [stopped] = until(lambda: list(running.status().stopped), "the processor says that it stopped", 120)
        assert "there is no table" in stopped.stopped
        away.rename(table)
        until(lambda: not running.status().stopped, "it goes on", 120)
        running.wait_idle(timeout_s=180)
        assert not running.messages(f"{graph.name}.errors")
    assert sorted(pl.read_delta(str(table))["total"].to_list()) == list(range(13))
