"""E6 on the S3 server: the contract of targets, what others read, and a store that lets a second writer win."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

from cues_kafka import ConfigError, Delta, Graph, Kafka, Memory, Sink, Source, start
from cues_kafka.on_spark.staged.delta_rows import DividedWriter
from cues_kafka.sinks.blobs.checks import probe as probe_store
from cues_kafka.sinks.blobs.store import open_store
from cues_kafka.sinks.delta import commit_turns
from cues_kafka.sinks.delta.batches import BatchCommits, DeltaBatch
from cues_kafka.sinks.delta.checks import probe
from cues_kafka.sinks.delta.columns import schema_of
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.sinks.delta.table import OpenedTable, TableFile
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.targets import TargetContract
from tests.delta_reading import values
from tests.servers.fixtures import S3Bucket, started
from tests.servers.s3 import OverwritingS3


@pytest.mark.full
class TestS3(TargetContract):
    """A table in a bucket."""

    most_lines = 3

    @pytest.fixture
    def target(self, s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> DeltaTarget:
        monkeypatch.setattr(commit_turns, "HELD_S", 0.2)  # a thread that is killed here keeps its turn
        return Delta(f"{s3.url}/deep", options=s3.storage_options).table("numbers", columns={"number": "long"})

    def prepare(self, target: DeltaTarget) -> None:
        target.make(first=True)

    def write(self, into: Any, number: int) -> None:
        into.write({"number": number})

    def write_refused(self, into: Any) -> bool:
        into.write({"number": "three"})
        return True

    def read(self, target: DeltaTarget) -> Iterable[int]:
        return values(target.url(), "number", target.delta.options)


def test_rows_in_s3_are_read_by_others(kafka: KafkaFixture, s3: S3Bucket) -> None:
    """polars, DuckDB and pandas see one row for each message, and the columns with their types."""
    topic = kafka.unique("orders")
    columns = {"id": "long", "state": "string", "at": "timestamp"}
    table = Delta(s3.url, options=s3.storage_options).table("orders", columns=columns, partition_by="state")
    graph = Graph(kafka.unique("lake"), Source(topic), Sink("rows", inputs=topic, into=table))
    sent = [{"id": n, "state": "new" if n % 2 else "paid", "at": None} for n in range(20)]
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send_many(topic, sent)
        running.wait_idle(timeout_s=60)

    url = f"{s3.url}/orders"
    found = pl.read_delta(url, storage_options=s3.storage_options).sort("id")
    assert found.select("id", "state").to_dicts() == [{"id": one["id"], "state": one["state"]} for one in sent]
    assert found.schema["at"] == pl.Datetime("us", "UTC")
    opened = deltalake.DeltaTable(url, storage_options=s3.storage_options)
    assert opened.metadata().partition_columns == ["state"]
    orders = opened.to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("orders", orders)
    assert connection.execute("SELECT state, count(*) FROM orders GROUP BY state ORDER BY state").fetchall() == [
        ("new", 10),
        ("paid", 10),
    ]
    assert sorted(opened.to_pandas()["id"]) == list(range(20))


def test_files_of_spark_tasks_in_s3_are_committed_once_and_read_by_others(s3: S3Bucket) -> None:
    """As Spark's tasks write them, divided by texts that addresses encode; a file that is gone is missed."""
    columns = {"id": "long", "state": "string"}
    table = Delta(f"{s3.url}/deep", options=s3.storage_options).table("t", columns=columns, partition_by="state")
    table.make(first=True)
    rows = [{"id": n, "state": state} for n, state in enumerate(["c 1/ü%", None, "paid", "c 1/ü%"])]
    with DividedWriter(table, schema_of(columns), "part-0") as writer:
        batch = pa.RecordBatch.from_pylist(rows, schema=schema_of(columns))
        found = [*writer.write(batch), *writer.finish()]
    files = tuple(TableFile(one.path, one.rows, one.bytes, *json.loads(one.more)) for one in found)
    for _ in range(2):
        BatchCommits(table, "g.p").commit(DeltaBatch(3, 0, "a", files), look=True)

    seen = pl.read_delta(table.url(), storage_options=s3.storage_options).sort("id")
    assert seen.select("id", "state").to_dicts() == rows
    assert sorted(map(str, values(table.url(), "state", s3.storage_options))) == ["None", "c 1/ü%", "c 1/ü%", "paid"]
    opened = OpenedTable(table.url(), table.options)
    assert opened.missing(files) == []
    opened.delete(files[0].path)
    assert opened.missing(files) == [files[0].path]


def test_store_that_lets_a_second_writer_win_is_refused() -> None:
    """As for files: the start says what is missing, and makes no table."""
    with ExitStack() as running:
        server = started(running, OverwritingS3())
        url = server.create_bucket("bucket")
        assert "If-None-Match" in probe_store(open_store(url, server.options))
        table = Delta(url, options=server.storage_options).table("orders", columns={"id": "long"})
        assert "If-None-Match" in probe(table)
        graph = Graph("lake", Source("orders"), Sink("rows", inputs="orders", into=table))
        with pytest.raises(
            ConfigError, match=r"rows, effects\['into'\]: the store lets a second writer replace a commit"
        ):
            start(graph, Memory())
        with pytest.raises(Exception, match=r"No such file|no log files|not found|No files"):
            deltalake.DeltaTable(f"{url}/orders", storage_options=server.storage_options)


def test_probe_leaves_nothing(s3: S3Bucket, tmp_path: Path) -> None:
    """Neither in a bucket nor in a directory."""
    in_bucket = Delta(s3.url, options=s3.storage_options).table("orders", columns={"id": "long"})
    assert probe(in_bucket) == ""
    assert open_store(s3.url, s3.options).below("orders") == []
    in_directory = Delta(f"file://{tmp_path}").table("orders", columns={"id": "long"})
    assert probe(in_directory) == ""
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []
