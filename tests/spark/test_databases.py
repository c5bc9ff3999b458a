"""Plain processors on Spark with a database: drivers, Python workers and the server are killed, on real ones (E1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Setup, until
from tests.integration.databases import Shop, Shops
from tests.spark.database_driver import GRAPH, Booked, graph
from tests.spark.drivers import Drivers, hidden, stable

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=["postgresql"])
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database in a server."""
    return shops.give(request.param, tmp_path)


@pytest.fixture
def booked(kafka: KafkaFixture, shop: Shop) -> Booked:
    """Names of the test's own; topics and first records are there before the first driver."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    setup.start(graph(setup.name, shop.url)).stop()
    return Booked(setup, shop)


def drivers(booked: Booked, directory: Path, **settings: Any) -> Drivers:
    """Of this graph, with small transactions."""
    settings = {"policy": {"max_messages": 15}, **settings}
    return Drivers(booked.setup, directory, booked.shop.url, graph=GRAPH, **settings)


def at(where: str, nth: int = 1, **more: Any) -> dict[str, Any]:
    """Settings of a driver one of whose slots pauses there."""
    return {"point": {"where": where, "nth": nth, **more}}


@pytest.mark.full
@pytest.mark.parametrize("shop", ["postgresql", "mysql"], indirect=True)
def test_drivers_that_die_around_the_commit_of_the_database_lose_and_double_no_row(
    booked: Booked, tmp_path: Path
) -> None:
    """With their JVMs: before it, behind it and before Kafka's, and in Kafka's. The next one asks the database."""
    booked.send(200)
    with drivers(booked, tmp_path) as each:
        before = each.add(**at("before CommitTarget", partition=0))
        before.reached()
        assert [n for n, _ in booked.rows if booked.partition(n) == 0] == []  # another slot may be further
        before.kill_all()

        behind = each.add(**at("after CommitTarget", 2))
        behind.reached()
        assert booked.ahead(), "else this kill proves nothing"
        behind.kill_all()

        booked.send(200)  # the slots that were quicker may have nothing left, and one of them has to commit four times
        inside = each.add(**at("before Commit", 4))
        inside.reached()
        inside.kill_driver()
        booked.send(50)
        last = each.add().started()
        booked.wait()
        last.stop()
    booked.check()


@pytest.mark.slow
def test_python_workers_that_die_around_the_commit_of_the_database_repeat_nothing(
    booked: Booked, tmp_path: Path
) -> None:
    """Spark tries their tasks again; the query goes on. Each tried task asks the database first."""
    booked.send(200)
    with drivers(booked, tmp_path, master="local[2,4]") as each:
        for where in ("before CommitTarget", "after CommitTarget"):
            driver = each.add(**at(where, 2, action="SIGKILL", times=3)).started()
            booked.wait()
            assert sum(line.startswith("point: ") for line in driver.lines) == 3
            assert not any(line.startswith("stopped") for line in driver.lines), "the query was not to end"
            driver.stop()
            booked.send(100)
        last = each.add().started()
        booked.wait()
        last.stop()
    booked.check()


@pytest.mark.full
def test_server_that_dies_under_a_slot_makes_no_error_and_repeats_no_row(booked: Booked, tmp_path: Path) -> None:
    """Between its answer and Kafka's commit, and before its commit. Its tasks stop, and resume by themselves."""
    server = booked.shop.server
    booked.send(200)
    with drivers(booked, tmp_path) as each:
        driver = each.add(**at("before CommitTarget", 2)).started()
        slot = driver.reached()
        server.kill()
        driver.wake(slot)
        driver.expect("stopped", 90)
        server.start()
        booked.wait()
        booked.send(50)
        server.kill()
        server.start()
        booked.wait()
        driver.stop()
    booked.check()


@pytest.mark.full
def test_slot_that_sleeps_in_the_transaction_of_the_database_gives_way_to_another_driver(
    booked: Booked, tmp_path: Path
) -> None:
    """
    Its driver and it are frozen, and a second driver delivers. The server ends the connection that has the lock.

    When both wake up, the slot finds its range delivered. Two drivers at once then lose and double nothing.
    """
    booked.send(200)
    with drivers(booked, tmp_path) as each:
        frozen = each.add(**at("before CommitTarget", 2)).started()
        slot = frozen.reached()
        second = each.add().started()
        booked.wait()
        frozen.wake(slot)
        booked.send(100)
        booked.wait()
        until(lambda: not hidden(stable(booked.setup)), "nothing is hidden", 10)
        frozen.kill()  # Spark may have ended its query by itself: two drivers write one checkpoint
        booked.send(50)
        booked.wait()
        second.stop()
    booked.check()
