"""The page that moves a store of Parquet files to a table of Delta Lake, on Spark, as its reader follows it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from cues_kafka import Blobs, Delta, Graph, Kafka, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.main import app
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.spark import test_delta, test_files
from tests.spark.test_files import Order, World, texts

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "delta.md"

MODULE = """
from cues_kafka import Delta
from tests.spark.test_delta import make
from tests.spark.test_files import texts

graph = make("{name}", texts, Delta("{lake}").table("orders"))
"""


def shown() -> list[str]:
    """The command that the page has for Spark."""
    [item] = re.findall(r"^- \*\*On Spark\*\* (?:.(?!\n- ))*", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [command] = re.findall(r"`cues-kafka ([^`]*)`", item)
    return shlex.split(command)


def test_reset_fills_a_table_with_all_that_the_topic_has(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Rows of the files and of new messages are in the table once. The reset names the checkpoint that has to go."""
    world = World(spark, Kafka(kafka.bootstrap), tmp_path)
    name = kafka.unique("moved")
    old = test_files.make(name, texts, Blobs(world.url).parquet("orders"))
    deliver(world, old, 0)
    assert len(world.rows("orders")) == 20

    lake = Delta(f"file://{tmp_path}/lake")
    new, module = test_delta.make(name, texts, lake.table("orders")), tmp_path / "moved.py"
    module.write_text(MODULE.format(name=name, lake=lake.url))
    verb, target, processor = shown()
    assert (target, processor) == ("MODULE:GRAPH", "PROCESSOR")
    arguments = [verb, f"{module}:graph", "frames", "--yes", "--bootstrap", kafka.bootstrap]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert f"delete the checkpoint of its query (<checkpoint>/{name}.frames)" in told.output
    shutil.rmtree(tmp_path / "checkpoint" / f"{name}.frames")

    deliver(world, new, 1)
    rows = pl.read_delta(f"{lake.url}/orders")
    wanted = {f"{run}-{n}": "three" if n % 10 == 3 else str(n) for run in range(2) for n in range(20)}
    assert sorted(rows.select("id", "total").rows()) == sorted(wanted.items())
    broker = open_broker(world.options)
    try:
        report = verify(new, broker)
        assert not report.anomalies, str(report)
    finally:
        broker.close()


def deliver(world: World, graph: Graph, run: int) -> None:
    """Start, send, wait, stop."""
    with start(graph, world.options, engine=world.engine()) as running:
        running.send_many(f"{graph.name}.orders", [Order(f"{run}-{n}", "c", n) for n in range(20)])
        running.wait_idle(timeout_s=180)
