"""DataFrames written staged, killed in every way, on a real broker; readers see each batch's one attempt, whole."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import FaultClusters, KafkaFixture
from tests.fault.support import Setup, until
from tests.spark import test_faults
from tests.spark.drivers import STARTED_S, Driver, await_open, hidden, readable, stable
from tests.spark.staged_checks import LIMIT, SINKS, StagedDrivers, Tally, announcing, at, noted, publishing
from tests.spark.staged_driver import WIDTH, graph

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(900)]

cluster, two_hosts = test_faults.cluster, test_faults.two_hosts
"""Fixtures: settings of drivers whose executors are processes."""


def prepared(setup: Setup, *args: Any) -> Setup:
    """Topics of a test's own."""
    broker = open_broker(Kafka(setup.bootstrap))
    try:
        prepare(graph(setup.name, *args), broker)
    finally:
        broker.close()
    return setup


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own; its topics are there before the first driver."""
    return prepared(Setup(kafka.bootstrap, kafka.unique("g")))


KILLS = {
    "in job 1": [at("staging")],
    "before the manifest": [at("unlisted", 1)],
    "before the announcement": [at("staged"), announcing("before Commit")],
    "behind the announcement": [announcing("after Commit"), at("announced", 1)],
    "before a publication": [publishing("before Init", partition=0)],
    "in a publication": [publishing("before Commit", partition=1)],
    "between publications": [publishing("after Commit", partition=0), publishing("after Flush", partition=3)],
    "while the driver keeps few rows": [at("staging", 1, held=True), at("unlisted", 2, held=True)],
    "while the driver publishes": [
        publishing("before Commit", partition=2, held=True, batch=1),
        publishing("after Commit", partition=1, held=True, batch=2),
    ],
    "behind the last publication": [at("published")],
    "before Spark has noted it": [at("behind", 1)],
}


@pytest.mark.parametrize("where", KILLS)
def test_drivers_that_die_one_after_the_other_publish_one_attempt_of_each_batch(
    setup: Setup, tmp_path: Path, where: str
) -> None:
    """Each is killed with its JVM, in turn with and without its workers; nothing is lost, doubled, mixed or hidden."""
    tally = Tally(setup)
    with StagedDrivers(setup, tmp_path) as drivers:
        marks = stable(setup, SINKS)
        for number, kill in enumerate(KILLS[where]):
            tally.send(LIMIT * (1 + (kill["point"]["batch"] or 0)))
            driver = drivers.add(**kill)
            driver.reached()
            assert readable(stable(setup, SINKS), marks), "readers wait for a dead transaction"
            marks = stable(setup, SINKS)
            if kill["point"]["where"] in ("before Commit", "after Flush"):
                await_open(setup, SINKS)
            driver.kill_all() if number % 2 == 0 else driver.kill_driver()
            driver.gone()
            tally.check(whole=False)
        last = drivers.add().started()
        assert readable(stable(setup, SINKS), marks), "readers wait for a dead transaction"
        tally.wait()
        last.stop()
    tally.check()


ZOMBIES = {
    "before its init": publishing("before Init", partition=1),
    "before its transaction": publishing("before Begin", partition=1),
    "in its transaction": publishing("before Commit", partition=1),
}


@pytest.mark.parametrize("where", ZOMBIES)
def test_a_python_worker_that_outlives_its_driver_publishes_nothing(setup: Setup, tmp_path: Path, where: str) -> None:
    """Paused while its driver dies and the next one publishes this batch and another; awake again it is refused."""
    tally = Tally(setup)
    tally.send(80)
    with StagedDrivers(setup, tmp_path) as drivers:
        dead = drivers.add(**ZOMBIES[where])
        zombie = dead.reached()
        marks = stable(setup, SINKS)
        dead.kill_all(zombie)
        driver = drivers.add().started()
        assert readable(stable(setup, SINKS), marks), "readers wait for a transaction of the zombie"
        tally.wait()
        dead.wake(zombie)
        until(lambda: not dead.lives(zombie), "the zombie has come to its end", 90)
        assert any("then before Stop of 1" in line for line in dead.lines), dead.lines
        tally.send(40)
        tally.wait()
        driver.stop()
    tally.check()


@pytest.mark.parametrize(
    ("where", "batch", "held"), [("staged", 0, False), ("announced", 0, False), ("announced", 1, True)]
)
def test_a_driver_that_slept_while_another_went_on_publishes_nothing(
    setup: Setup, tmp_path: Path, where: str, batch: int, held: bool
) -> None:
    """
    Paused behind job 1, or behind its announcement, with its rows at hand or not; another one publishes this batch and
    the next; then it wakes.
    """
    tally = Tally(setup)
    tally.send(LIMIT * (2 + batch))
    with StagedDrivers(setup, tmp_path) as drivers:
        asleep = drivers.add(**at(where, batch, held=held))
        pid = asleep.reached()
        driver = drivers.add().started()
        tally.wait()
        before = tally.records()
        asleep.wake(pid)
        stopped(asleep, "stop the older driver of the two")
        asleep.kill_all()
        assert tally.records() == before
        tally.send(40)
        tally.wait()
        driver.stop()
    tally.check()


def test_a_second_driver_from_a_copied_checkpoint_is_refused(setup: Setup, tmp_path: Path) -> None:
    """Beside a driver that has announced, and behind one that went on; the copy publishes nothing, and says why."""
    tally = Tally(setup)
    tally.send(40)
    with StagedDrivers(setup, tmp_path) as drivers:
        first = drivers.add().started()
        tally.wait()
        first.stop()
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
        tally.send(40)
        first = drivers.add(**at("announced", 1))
        pid = first.reached()
        copy = drivers.add(checkpoint="copy").started()
        stopped(copy, "manifest.json is gone: batch 1 was announced with it")
        copy.kill_all()
        first.wake(pid)
        tally.wait()
        tally.send(40)
        tally.wait()
        before = tally.records()
        copy = drivers.add(checkpoint="copy").started()
        stopped(copy, "batch 2 of the same query is announced already")
        copy.kill_all()
        assert tally.records() == before
        first.kill_all()
    tally.check()


# ---- Python workers and executors


@pytest.mark.parametrize("point", [at("staging"), publishing("before Commit")], ids=["preparing", "publishing"])
def test_a_spark_task_that_is_tried_again_repeats_nothing(setup: Setup, tmp_path: Path, point: dict[str, Any]) -> None:
    """Two Python workers die, in job 1 or in open transactions; Spark tries their tasks again, the query goes on."""
    tally = Tally(setup)
    tally.send(80)
    deadly = {"point": {**point["point"], "action": "SIGKILL", "times": 2}}
    with StagedDrivers(setup, tmp_path, master="local[2,4]") as drivers:
        driver = drivers.add(**deadly).started()
        tally.wait()
        assert sum(line.startswith("point: ") for line in driver.lines) == 2
        assert not any(line.startswith("stopped") for line in driver.lines), "the query was not to end"
        tally.send(40)
        driver.kill_worker()
        tally.wait()
        until(
            lambda: noted(tmp_path) + 1 == tally.check().batches, "each batch of Spark's is one that is published", 30
        )
        driver.stop()
    assert tally.check().batches >= 3


def test_an_executor_that_dies_repeats_and_hides_nothing(setup: Setup, tmp_path: Path, cluster: dict[str, Any]) -> None:
    """SIGKILL of one whose slot is in a transaction, then of whichever has most to do."""
    tally = Tally(setup)
    tally.send(80)
    with StagedDrivers(setup, tmp_path, **cluster) as drivers:
        driver = drivers.add(**publishing("before Commit")).started()
        driver.kill_executor_of(driver.reached())
        tally.wait(300)
        tally.send(40)
        driver.kill_executor()
        tally.wait(300)
        until(lambda: not hidden(stable(setup, SINKS)), "readers wait for a dead transaction", 5)
        driver.stop()
    tally.check()


def test_speculation_doubles_nothing(setup: Setup, tmp_path: Path, two_hosts: dict[str, Any]) -> None:
    """A slot stands still in its transaction; Spark runs it a second time beside it, and then it wakes up."""
    tally = Tally(setup)
    tally.send(80)
    with StagedDrivers(setup, tmp_path, conf=test_faults.SPECULATION, **two_hosts) as drivers:
        driver = drivers.add(**publishing("before Commit")).started()
        slow = driver.reached()
        tally.wait(300)
        if driver.lives(slow):  # until Spark ends it, because the other one has succeeded
            driver.wake(slow)
        tally.send(40)
        tally.wait()
        driver.stop()
    tally.check()


# ---- staged files


def test_staged_files_that_were_altered_are_refused_until_they_are_restored(setup: Setup, tmp_path: Path) -> None:
    """Between announcement and publication: cut, flipped, deleted, manifest; each is named with the remedy."""
    tally = Tally(setup)
    tally.send(40)
    with StagedDrivers(setup, tmp_path) as drivers:
        driver = drivers.add(**at("announced", 0))
        pid = driver.reached()
        [manifest] = (tmp_path / "checkpoint").glob("*/stage/0/*/manifest.json")
        listed = json.loads(manifest.read_text())
        harmed = listed["chunks"][-1]
        rows = manifest.parent / "rows" / listed["files"][harmed[-1]][0]
        whole, text = rows.read_bytes(), manifest.read_bytes()
        payload = parquet.read_table(rows).column("payload")[-1].as_py()
        middle = whole.index(payload) + len(payload) // 2

        flip = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        rows.write_bytes(flip)
        rows.with_name(f".{rows.name}.crc").unlink(missing_ok=True)
        driver.wake(pid)
        assert f"part {harmed[0]} of batch 0" in refused(driver, "do not have their checksum")
        assert tally.records()[harmed[0]] == []
        rows.write_bytes(whole[:-10])
        refused(driver, f"{rows.name} has {len(whole) - 10} bytes, not {len(whole)}")
        rows.unlink()
        refused(driver, f"{rows.name} is gone")
        manifest.write_bytes(text.replace(b'"batch":0', b'"batch":1'))
        rows.write_bytes(whole)
        refused(driver, "manifest.json is not as it was announced")
        manifest.unlink()
        refused(driver, "manifest.json is gone")
        assert tally.records()[harmed[0]] == []
        manifest.write_bytes(text)
        tally.wait()
        driver.stop()
    tally.check()


def stopped(driver: Driver, text: str) -> str:
    """What a driver says when it stops for that."""
    said: str = until(
        lambda: next((line for line in driver.lines if line.startswith("stopped ") and text in line), None),
        f"stopped: {text}",
        STARTED_S,
    )
    return said


def refused(driver: Driver, text: str) -> str:
    """What a driver says when it stops for staged files; with the remedy."""
    said = stopped(driver, text)
    assert "Restore the directory of staged files; or run `cues-kafka reset" in said
    return said


def test_a_full_disk_ends_the_attempt_and_room_lets_it_go_on(setup: Setup, tmp_path: Path) -> None:
    """
    No file of the JVM, and then none of the driver, which keeps few rows itself, may grow beyond 16 kB while a batch is
    staged: nothing is announced, nothing stays; then it may.
    """
    tally = Tally(setup)
    with StagedDrivers(setup, tmp_path, "counts", 200) as drivers:
        driver = drivers.add().started()
        for pid in (driver.java(), driver.process.pid):
            readable_before = tally.records()
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (16_384, before[1]))
            tally.send(80)
            stopped(driver, "File too large")
            assert tally.records() == readable_before
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
            tally.wait()
            del driver.lines[:]
        driver.stop()
        attempts = list((tmp_path / "checkpoint").glob("*/stage/*/*"))
        assert len(attempts) == 1, attempts
    tally.check()


# ---- the cluster


def test_a_broker_that_restarts_while_a_part_is_published_repeats_and_loses_nothing(
    kafka_fault_cluster: FaultClusters, tmp_path: Path
) -> None:
    """SIGKILL of the broker while one slot is in its transaction and the others have published."""
    broker = kafka_fault_cluster()
    [node] = broker.nodes
    setup = prepared(Setup(broker.bootstrap, "restarted"))
    tally = Tally(setup)
    tally.send(40)
    with StagedDrivers(setup, tmp_path) as drivers:
        driver = drivers.add(**publishing("before Commit", partition=WIDTH - 1)).started()
        slot = driver.reached()
        # No other transaction is under way: Kafka may forget one that was prepared (see test_broker_faults).
        until(lambda: [len(one) for one in tally.records()] == [2, 1, 1, 0], "the others have published", STARTED_S)
        node.kill()
        node.start()
        until(lambda: test_faults.answered(setup), "each partition has its leader again")
        driver.wake(slot)
        tally.wait()
        tally.send(40)
        tally.wait()
        driver.stop()
    tally.check()


# ---- state


def test_windows_are_published_once_over_kills(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Append mode: a driver dies behind job 1, one in a publication; each window that is over comes exactly once."""
    setup = prepared(Setup(kafka.bootstrap, kafka.unique("g")), "windows")
    tally = Tally(setup, kind="windows", step_s=3)
    with StagedDrivers(setup, tmp_path, "windows") as drivers:
        for kill in (at("staged", 1), publishing("before Commit", batch=2)):
            tally.send(80)
            driver = drivers.add(**kill)
            driver.reached()
            driver.kill_all()
        tally.send(40)
        driver = drivers.add().started()
        tally.wait()
        until(lambda: tally.drained() and not tally.audit().lost, "the windows are closed", STARTED_S)
        driver.stop()
    assert tally.check().rows == 8
