"""SIGKILL of drivers whose batches go to a table or to files, on a real broker: around commit and parts (E5, E6)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet
import pytest

from cues_kafka import Graph, Kafka, files
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, committed_all, until
from tests.spark import files_driver
from tests.spark.drivers import STARTED_S
from tests.spark.files_driver import BAD
from tests.spark.staged_checks import LIMIT, StagedDrivers, Tally, at, ranges_of
from tests.spark.test_staged_faults import stopped

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


class Lake:
    """What goes in, and what readers of files and of the errors topic see."""

    kind = "files"

    def __init__(self, kafka: KafkaFixture, directory: Path) -> None:
        self.setup = Setup(kafka.bootstrap, kafka.unique("g"))
        self.directory = directory
        self.url = f"file://{directory}/lake"
        self.tally = Tally(self.setup)
        broker = open_broker(Kafka(kafka.bootstrap))
        try:
            prepare(self.graph, broker)
        finally:
            broker.close()

    def drivers(self) -> StagedDrivers:
        """Of this graph."""
        names = {"program": "tests.spark.files_driver", "graph": "tests.spark.files_driver:graph"}
        return StagedDrivers(self.setup, self.directory, self.url, self.kind, **names)

    @property
    def graph(self) -> Graph:
        """What runs."""
        return files_driver.graph(self.setup.name, self.url, self.kind)

    def files(self) -> list[tuple[int, str, dict[str, str]]]:
        """Publication number, path, and values that are not in the file, of each file that readers see."""
        return [(one.step, one.url.removeprefix("file://"), {}) for one in files(self.url, "counts")]

    def committed(self) -> list[int]:
        """Publication numbers of the batches that readers see."""
        return list(dict.fromkeys(step for step, *_ in self.files()))

    def published(self) -> list[int]:
        """Publication numbers of the batches that Kafka has."""
        return [one["staged"]["number"] for one in self.tally.records()[0] if one["kind"] == "Attempt"]

    def drained(self) -> bool:
        """Whether all that was sent is published."""
        records = self.tally.records()[0]
        if not records or records[-1]["kind"] != "Attempt":
            return False
        [extent] = records[-1]["staged"]["extents"]
        _, ends = ranges_of(extent)
        return bool(sum(ends.values()) == self.tally.count)

    def wait(self) -> None:
        """Until all is published."""
        until(self.drained, f"all {self.tally.count} are published", STARTED_S)

    def check(self, batches: int) -> None:
        """Each row of each batch is in one file or one error message, of the attempt that was announced."""
        setup = self.setup
        found = committed_all(setup.bootstrap, [setup.source, setup.errors, setup.backing])
        announced = [one["staged"] for one in self.tally.records()[0] if one["kind"] == "Snapshot"]
        assert len(announced) == batches
        assert self.published() == [one["number"] for one in announced]
        named: dict[int, Any] = {one["number"]: one for one in announced}
        rows: Counter[tuple[int, str, int]] = Counter()
        nonces: Counter[str] = Counter()
        for step, path, values in self.files():
            own = named[step]
            assert own["attempt"] in path
            for row in [{**values, **one} for one in pyarrow.parquet.read_table(path).to_pylist()]:
                rows[own["batch"], row["key"], row["count"]] += 1
                nonces[row["nonce"]] += 1
        expected = self.tally._counts(announced, found[setup.source])
        bad = Counter(batch for batch, key, _ in expected if key == BAD)
        assert rows == Counter({row: count for row, count in expected.items() if row[1] != BAD})
        assert set(nonces.values()) == {1}
        errors = [error_messages().decode(one.value() or b"") for one in found[setup.errors]]
        assert Counter(int(one.context["batch"]) for one in errors) == bad
        listed = {path for _, path, _ in self.files()}
        assert {str(path) for path in (self.directory / "lake" / "counts").rglob("*.parquet")} == listed
        broker = open_broker(Kafka(setup.bootstrap))
        try:
            report = verify(self.graph, broker)
            assert report.ok, str(report)
        finally:
            broker.close()


class DeltaLake(Lake):
    """The same with a table of Delta Lake. What it has is read from the entries of its log."""

    kind = "delta"

    def files(self) -> list[tuple[int, str, dict[str, str]]]:
        found, root = [], self.directory / "lake" / "counts"
        for entry in sorted((root / "_delta_log").glob("0*.json")):
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            apps = [one["txn"] for one in actions if "txn" in one]
            steps = [one["version"] for one in apps if one["appId"] == f"{self.setup.name}.work"]
            added = [one["add"] for one in actions if "add" in one]
            found += [(step, str(root / one["path"]), one["partitionValues"]) for step in steps for one in added]
        return found

    def check(self, batches: int) -> None:
        deltalake.DeltaTable(f"{self.directory}/lake/counts").vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
        )
        super().check(batches)


@pytest.mark.parametrize("kind", [Lake, DeltaLake])
def test_drivers_that_die_around_the_entry_lose_and_double_no_row(
    kafka: KafkaFixture, tmp_path: Path, kind: type[Lake]
) -> None:
    """
    One is killed before the entry of its batch, one sleeps there, one is killed between entry and parts.

    Each kill takes the JVM along. The last driver publishes the rest, and the one that slept commits nothing.
    """
    lake = kind(kafka, tmp_path)
    lake.tally.send(LIMIT)
    with lake.drivers() as drivers:
        killed = drivers.add(**at("announced", 0))
        killed.reached()
        killed.kill_all()
        assert (len(lake.committed()), lake.published()) == (0, [])
        asleep = drivers.add(**at("announced", 0))
        pid = asleep.reached()
        killed = drivers.add(**at("committed", 0))
        killed.reached()
        killed.kill_driver()
        killed.gone()
        assert (len(lake.committed()), lake.published()) == (1, [])
        lake.tally.send(2 * LIMIT)
        driver = drivers.add().started()
        lake.wait()
        seen = lake.committed()
        assert len(seen) == len(lake.published()) == 3
        asleep.wake(pid)
        stopped(asleep, "stop the older driver of the two")
        asleep.kill_all()
        assert lake.committed() == seen
        driver.stop()
    lake.check(3)
