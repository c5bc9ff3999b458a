"""With Spark Connect: the client has no JVM, and what is called for a micro-batch runs on the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Setup, committed_all, outcomes, until
from tests.spark.connect_server import connect_server
from tests.spark.drivers import CONF
from tests.spark.staged_checks import LIMIT, StagedDrivers, Tally, at, noted, publishing
from tests.spark.staged_driver import graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


def test_graphs_and_frames_run_exactly_once_through_a_server(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Status comes from the records, why a task stopped through the query's exception, refusals from `explain`."""
    name = kafka.unique("connect")
    command = [sys.executable, "-m", "tests.spark.connect_program", kafka.bootstrap, name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=360, check=False)
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)

    assert done.returncode == 0, done.stderr[-4_000:]
    assert said["plain"] == str([2 * n for n in range(40)])
    assert said["status"] == "40"
    assert "no double" in said["stopped"]
    assert "double/" in said["stopped"]
    assert said["refused"].startswith("a staged write_exactly_once asks Spark's Java which cluster")
    assert "has to begin with file:" in said["unshared"]
    assert said["counted 20"] == f"{dict.fromkeys(range(4), 5)} 0 {[b'{}']}"
    assert said["counted 40"] == f"{dict.fromkeys(range(4), 10)} 0 {[b'{}'] * 2}"
    assert said["asked"] == "2"
    assert said["counted 42"] == f"{dict.fromkeys(range(4), 10) | {2: 12}} 0 {[b'{}'] * 2}"
    [source, copied] = committed_all(kafka.bootstrap, [f"{name}.in", f"{name}.copy"]).values()
    assert {place[1:]: count for place, count in outcomes(copied).items()} == {
        (message.partition(), message.offset()): 1 for message in source if (message.offset() or 0) >= 5
    }


KILLS = {
    "behind the announcement": at("announced", 1),
    "in a publication": publishing("before Commit", partition=1),
    "before Spark has noted it": at("published"),
}


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Topics of an aggregate."""
    made = Setup(kafka.bootstrap, kafka.unique("connect-kills"))
    broker = open_broker(Kafka(made.bootstrap))
    prepare(graph(made.name), broker)
    broker.close()
    return made


def test_staged_processors_pass_kills_of_client_and_server_exactly_once(setup: Setup, tmp_path: Path) -> None:
    """A killed server, in turn with and without its Python processes; the next one publishes what was announced."""
    tally = Tally(setup)
    with StagedDrivers(setup, tmp_path, master="connect:local[2]") as drivers:
        for number, kill in enumerate(KILLS.values()):
            tally.send(LIMIT * (1 + (kill["point"]["batch"] or 0)))
            driver = drivers.add(**kill)
            driver.reached()
            if number % 2:
                driver.kill_driver()  # the process of the batch outlives it, and asks the dead server for minutes
                continue
            driver.kill_all()
            driver.gone()
            tally.check(whole=False)
        last = drivers.add().started()
        tally.wait()
        last.stop()
    tally.check()


def test_new_client_takes_the_place_of_one_that_was_killed_while_the_server_lives(setup: Setup, tmp_path: Path) -> None:
    """The server goes on with the query of the dead client, until the next one starts it again."""
    tally = Tally(setup)
    with connect_server(tmp_path, CONF) as (address, secret):
        settings = {"master": f"connect:{address}", "environment": secret, "limit": LIMIT}
        with StagedDrivers(setup, tmp_path, **settings) as drivers:
            first = drivers.add().started()
            tally.send(10 * LIMIT)
            until(lambda: noted(tmp_path) >= 1, "two batches are done", 180)
            first.kill_all()
            tally.send(2 * LIMIT)
            last = drivers.add().started()
            tally.wait()
            last.stop()
    tally.check()
