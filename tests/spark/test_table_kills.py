"""SIGKILL of drivers and of the server while batches go to a table of a database, on real ones (E7)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, committed_all, until
from tests.integration.databases import Shop, Shops
from tests.spark import table_driver
from tests.spark.files_driver import BAD
from tests.spark.staged_checks import LIMIT, StagedDrivers, Tally, at
from tests.spark.staged_driver import WIDTH

BATCH_FAILED = "There was an exception while executing the Python Proxy"
"""Py4J says so when all parts of the batch have ended."""

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=["postgresql"])
def ledger(request: pytest.FixtureRequest, shops: Shops, kafka: KafkaFixture, tmp_path: Path) -> Ledger:
    """An empty table in a server, and topics."""
    return Ledger(kafka, shops.give(request.param, tmp_path), tmp_path)


class Ledger:
    """What goes in, and what readers of the database and of the errors topic see."""

    def __init__(self, kafka: KafkaFixture, shop: Shop, directory: Path) -> None:
        self.setup = Setup(kafka.bootstrap, kafka.unique("g"))
        self.directory, self.shop = directory, shop
        self.tally = Tally(self.setup)
        shop.query("DROP TABLE IF EXISTS counts")
        shop.query(table_driver.TABLE)
        broker = open_broker(Kafka(kafka.bootstrap))
        try:
            prepare(table_driver.graph(self.setup.name, shop.url), broker)
        finally:
            broker.close()

    def drivers(self) -> StagedDrivers:
        """Of this graph."""
        names = {"program": "tests.spark.table_driver", "graph": "tests.spark.table_driver:graph"}
        return StagedDrivers(self.setup, self.directory, self.shop.url, **names)

    def written(self) -> dict[int, int]:
        """The publication of each part, by the database."""
        return {part: step - 1 for part, step in self.shop.query("SELECT part, step FROM cues_task") if step}

    def published(self) -> dict[int, int]:
        """The publication of each part, by Kafka."""
        slots = self.tally.records()
        return {p: own[-1]["staged"]["number"] for p, own in enumerate(slots) if own and own[-1]["kind"] == "Attempt"}

    def check(self) -> None:
        """Each row of each batch is in the table or one error message, of the attempt that was announced."""
        setup = self.setup
        found = committed_all(setup.bootstrap, [setup.source, setup.errors, setup.backing])
        slots = self.tally.records()
        announced = [one["staged"] for one in slots[0] if one["kind"] == "Snapshot"]
        expected = self.tally._counts(announced, found[setup.source])
        bad = Counter(batch for batch, key, _ in expected if key == BAD)
        kept = Counter((key, count) for _, key, count in expected if key != BAD)
        assert Counter(self.shop.query("SELECT k, n FROM counts")) == kept
        assert len(self.shop.query("SELECT DISTINCT nonce FROM counts")) == kept.total()
        errors = [error_messages().decode(one.value() or b"") for one in found[setup.errors]]
        assert Counter(int(one.context["batch"]) for one in errors) == bad
        assert all("table 'counts' refuses a row: " in one.text for one in errors)
        assert {json.loads(one.payload)["key"] for one in errors if one.payload} <= {BAD}
        assert self.written() == self.published() == dict.fromkeys(range(WIDTH), announced[-1]["number"])
        broker = open_broker(Kafka(setup.bootstrap))
        try:
            report = verify(table_driver.graph(setup.name, self.shop.url), broker)
            assert report.ok, str(report)
        finally:
            broker.close()


@pytest.mark.parametrize("ledger", ["postgresql", "mysql"], indirect=True)
def test_drivers_that_die_around_the_commit_of_a_part_lose_and_double_no_row(ledger: Ledger) -> None:
    """
    One is killed before it, one behind it and before Kafka's, each with its JVM; one sleeps before it.

    The last driver writes the rest, and the part that slept writes nothing.
    """
    ledger.tally.send(LIMIT)
    with ledger.drivers() as drivers:
        before = drivers.add(**at("due", 0))
        before.reached()
        before.kill_all()
        assert ledger.published() == {}

        behind = drivers.add(**at("written", 0))
        behind.reached()
        assert ledger.written().items() - ledger.published().items(), "else this kill proves nothing"
        behind.kill_all()

        ledger.tally.send(2 * LIMIT)
        asleep = drivers.add(**at("due", 1))
        part = asleep.reached()
        asleep.kill_all(part)
        driver = drivers.add().started()
        ledger.tally.wait()
        rows = ledger.shop.query("SELECT count(*) FROM counts")
        asleep.wake(part)
        # A small batch is published by the driver itself, which lives on. A part that was connecting when the driver
        # fell asleep may be the first to fail, so no certain reason is awaited.
        until(
            lambda: any(BATCH_FAILED in line for line in asleep.lines) or not asleep.lives(part),
            "the part that slept is refused",
            90,
        )
        assert ledger.shop.query("SELECT count(*) FROM counts") == rows
        driver.stop()
    ledger.check()


def test_server_that_dies_under_a_part_delays_the_batch_alone(ledger: Ledger) -> None:
    """The query ends with the cause, and is started again until the server answers."""
    ledger.tally.send(LIMIT)
    with ledger.drivers() as drivers:
        driver = drivers.add(**at("due", 0))
        part = driver.reached()
        ledger.shop.server.kill()
        driver.wake(part)
        driver.expect("stopped", 90)
        ledger.shop.server.start()
        ledger.tally.wait()
        ledger.tally.send(LIMIT)
        ledger.tally.wait()
        driver.stop()
    ledger.check()
