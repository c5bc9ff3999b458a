"""A processor moves between native workers and Spark at its next message; in both at once, one stops and says why."""

from __future__ import annotations

import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import QUICK, Child, Children, Setup, backing
from tests.spark.drivers import GRAPH, STARTED_S, Drivers, Numbers, await_open
from tests.spark.fault_driver import PARTITIONS, graph

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.timeout(600)]


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own; its topics and first records are there before anybody runs."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    setup.start(graph(setup.name)).stop()
    return setup


def native(children: Children, setup: Setup, **settings: Any) -> Child:
    """A native worker of the graph that drivers run."""
    return children.add(setup.bootstrap, GRAPH, setup.name, options=QUICK, instance="native-7", **settings)


def runtimes(setup: Setup) -> list[list[str]]:
    """Of each partition: the runtimes that wrote its records, in turn."""
    records = backing(setup.bootstrap, setup.backing)
    return [[runtime for runtime, _ in groupby(r["writer"]["runtime"] for r in one)] for one in records]


def test_a_processor_moves_to_spark_and_back_at_its_next_message(setup: Setup, tmp_path: Path) -> None:
    """Stopped in order on each side; no side has to wait for the other's session."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path) as drivers, Children() as children:
        for _ in range(2):
            numbers.send(100)
            worker = native(children, setup)
            numbers.wait()
            worker.stop()
            numbers.send(100)
            driver = drivers.add().started()
            numbers.wait()
            driver.stop()
        numbers.send(100)
        native(children, setup)
        numbers.wait()
    assert runtimes(setup) == [["native", "spark", "native", "spark", "native"]] * PARTITIONS
    numbers.check()


def test_a_processor_moves_to_spark_and_back_with_kills_in_between(setup: Setup, tmp_path: Path) -> None:
    """Each side dies in an open transaction, and the other one goes on."""
    numbers = Numbers(setup)
    small = {"max_messages": 15}
    with Drivers(setup, tmp_path, limit=120, policy=small) as drivers, Children() as children:
        for _ in range(2):
            numbers.send(200)
            dying = native(children, setup, policy=small, point=("before Commit", 6, "SIGKILL"))
            assert dying.dead(STARTED_S) == -signal.SIGKILL
            driver = drivers.add(point={"where": "before Commit", "nth": 2})
            driver.reached()
            await_open(setup)
            driver.kill_all()
        numbers.send(100)
        worker = native(children, setup, policy=small)
        numbers.wait()
        worker.stop()
    assert {"native", "spark"} == {runtime for partition in runtimes(setup) for runtime in partition}
    numbers.check()


def test_spark_beside_a_native_worker_stops_and_names_it(setup: Setup, tmp_path: Path) -> None:
    """R7: the native worker was there first, and is not even disturbed."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path) as drivers, Children() as children:
        worker = native(children, setup)
        worker.expect("started")
        driver = drivers.add()
        said = driver.expect("TaskStopped", STARTED_S)
        assert "has members ['native-7']: native workers run 'work'" in said
        assert "only=" in said
        assert driver.dead() == 3
        numbers.send(100)
        numbers.wait()
        assert not any("fenced" in line or "discard" in line for line in worker.lines)
        worker.stop()
    assert runtimes(setup) == [["native"]] * PARTITIONS
    numbers.check()


def test_spark_stops_for_a_native_worker_that_comes_and_goes_on_when_it_has_left(setup: Setup, tmp_path: Path) -> None:
    """R7: the driver lives, says in its status who is there, and looks again with back-off."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path, limit=100) as drivers, Children() as children:
        driver = drivers.add().started()
        numbers.send(100)
        numbers.wait()
        worker = native(children, setup)
        worker.expect("started")
        numbers.send(100)
        said = driver.expect("stopped work", STARTED_S)
        assert "native-7" in said
        assert "only=" in said
        numbers.wait()
        driver.expect("native workers run 'work'. Stop them", STARTED_S)
        worker.stop()
        numbers.send(100)
        numbers.wait(150)
        driver.stop()
    assert all(partition[-3:] == ["spark", "native", "spark"] for partition in runtimes(setup)), runtimes(setup)
    numbers.check()


def test_a_native_worker_that_spark_fences_twice_stops_and_names_it(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: by two slots that had looked at the group before the worker came, and go on while it is paused."""
    numbers = Numbers(setup)
    options = Kafka(setup.bootstrap, **QUICK)
    broker = open_broker(options)
    shop, place = graph(setup.name), TopicPartition(setup.source, 0)
    planned, facts = prepare(shop, broker)
    work = Work(shop, "work", options, planned, facts, Identity("spark", "driver-9", "run"))
    with Children() as children:
        worker = native(children, setup)
        worker.expect("started")
        for attempt in ("1", "2"):
            numbers.send(40)
            numbers.wait()
            worker.process.send_signal(signal.SIGSTOP)
            worker.paused()
            numbers.send(40)
            end = broker.watermarks([place])[place].stable
            slot = work.slot(0, attempt)
            monkeypatch.setattr(slot._broker, "members", lambda group: [])
            outcome = slot.deliver({setup.source: end}, first=False)
            assert (outcome.kind, outcome.positions, outcome.counts.deliveries) == ("", {setup.source: end}, 10)
            worker.resume()
        said = worker.expect("stopped work/0")
        assert "fenced twice by 'driver-9' (spark, run.2), which runs this task too" in said
        numbers.send(40)
        numbers.wait()  # it looks again, and is alone
        worker.stop()
    broker.close()
    numbers.check()
