"""Replays of errors on Spark, through deaths of what makes them, on a real broker (Y1 to Y4)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer

from cues_kafka import Delta, Graph, Json, Kafka, Processor, Source, Sql, Step, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.names import replay_topic
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import Selection
from cues_kafka.spark import Spark
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, until
from tests.spark import fixable
from tests.spark.drivers import STARTED_S, Drivers, Numbers
from tests.spark.fault_driver import graph
from tests.spark.staged_checks import StagedDrivers, announcing, at, publishing

pytestmark = pytest.mark.timeout(300)


@pytest.mark.full
def test_errors_are_replayed_once_beside_batches_and_through_a_sigkill(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """The first replay kills its process; the query goes on, and new messages are delivered meanwhile."""
    name = kafka.unique("replays")
    fixed, died = tmp_path / "fixed", tmp_path / "died"

    def work(n: int, step: Step) -> list[int | None]:
        if n % 5 == 0 and not fixed.exists():
            raise ValueError(f"{n} is too round")
        if step.replay and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [n, step.replay]

    made = Graph(
        name,
        Source(f"{name}.in"),
        Processor(work, inputs=f"{name}.in", outputs=f"{name}.out"),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=2),
    )
    cluster = Kafka(kafka.bootstrap)
    broker = open_broker(cluster)
    try:
        with start(made, cluster, engine=Spark(spark, checkpoint=str(tmp_path / "checkpoint"))) as running:
            running.send_many(f"{name}.in", range(20))
            running.wait_idle(timeout_s=120)
            fixed.touch()
            with Repairs(made, broker) as tool:
                requested = tool.ask("replay")
                assert requested.asked == 4
                running.send_many(f"{name}.in", range(20, 24))
                assert tool.wait(requested, timeout_s=60.0), requested.open
                assert tool.causes() == ()
            running.wait_idle(timeout_s=60)
            out = [message.value for message in running.messages(f"{name}.out")]
        assert died.exists()
        assert sorted(out) == [[n, 1 if n % 5 == 0 and n < 20 else None] for n in range(24)]
        report = verify(made, broker)
        assert not report.anomalies
        assert [one.replays for one in report.processors] == [4]
    finally:
        broker.close()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_errors_of_a_staged_processor_become_rows_of_a_batch_once(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """With state, beside new messages: what is fixed counts once, the rest fails again, and a repeat does nothing."""
    name, fixed = kafka.unique("restaged"), tmp_path / "fixed"
    made = fixable.graph(name, str(fixed))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def send(*values: str) -> None:
        for n, value in enumerate(values):
            producer.produce(f"{name}.in", b'{"n": %b}' % value.encode(), b"k", n % 2)
        assert producer.flush(30) == 0

    def total() -> tuple[int, int]:
        last = max((m.value for m in running.messages(f"{name}.out")), key=lambda one: one["count"])
        return int(last["count"]), int(last["sum"])

    cluster = Kafka(kafka.bootstrap)
    broker = open_broker(cluster)
    try:
        with (
            start(made, cluster, engine=Spark(spark, checkpoint=str(tmp_path / "checkpoint"))) as running,
            Repairs(made, broker) as tool,
        ):
            send("1", '"10"', "2", '"20"', '"never"')
            running.wait_idle(timeout_s=200)
            assert total() == (2, 3)
            fixed.touch()
            requested = tool.ask("replay")
            assert (requested.asked, tool.ask("replay").asked) == (3, 0)
            send("4")
            assert tool.wait(requested, timeout_s=100.0), requested.open
            assert requested.outcomes == {"row": 2, "error": 1}
            running.wait_idle(timeout_s=100)
            assert total() == (5, 37)
            [cause] = tool.causes()
            assert (cause.count, cause.kind, cause.exception) == (1, "decode", "CodecError")
            [again] = [one for one in tool.find() if one.settled is None]
            assert "fixable.py:decode:" in again.message.causes[-1].trace[-1]

            dropped = tool.ask("drop")
            for request in running.committed(replay_topic(name, "work")):  # all of them once more
                producer.produce(replay_topic(name, "work"), request.value(), request.key(), request.partition())
            send("8")
            assert tool.wait(dropped, timeout_s=100.0)
            running.wait_idle(timeout_s=100)
            assert total() == (6, 45)
            assert tool.causes() == ()
        report = verify(made, broker)
        assert not report.anomalies, report
        assert [one.replays for one in report.processors] == [3]
    finally:
        broker.close()


def _delta(root: Path) -> tuple[Effect, Callable[[], list[tuple[int, int]]]]:
    """A table of Delta Lake, and what it has: a row for each sum that a batch changed."""
    table = Delta(f"file://{root}/lake").table("sums")

    def read() -> list[tuple[int, int]]:
        return sorted(pl.read_delta(table.url()).select("count", "sum").rows())

    return table, read


def _database(root: Path) -> tuple[Effect, Callable[[], list[tuple[int, int]]]]:
    """A table of a database, and what it has: the newest sum."""
    path = root / "sums.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute(
            'CREATE TABLE sums (key TEXT PRIMARY KEY, "count" INTEGER, "sum" INTEGER, cues_source TEXT, '
            "cues_offset BIGINT, cues_deleted BOOLEAN NOT NULL DEFAULT false)"
        )

    def read() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(path)) as opened:
            return opened.execute('SELECT "count", "sum" FROM sums').fetchall()

    return Sql(f"sqlite:///{path}").upsert("sums", key="key", columns=["count", "sum"]), read


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", [_delta, _database])
def test_errors_that_are_replayed_become_rows_of_a_table_once(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, place: Callable[[Path], Any]
) -> None:
    """With state, beside new messages: what is fixed counts once, the rest fails again, and a repeat does nothing."""
    name, fixed = kafka.unique("retabled"), tmp_path / "fixed"
    into, read = place(tmp_path)
    made = fixable.graph(name, str(fixed), into)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def send(*values: str) -> None:
        for n, value in enumerate(values):
            producer.produce(f"{name}.in", b'{"n": %b}' % value.encode(), b"k", n % 2)
        assert producer.flush(30) == 0

    broker = open_broker(Kafka(kafka.bootstrap))
    engine = Spark(spark, checkpoint=str(tmp_path / "checkpoint"))
    try:
        with start(made, Kafka(kafka.bootstrap), engine=engine) as running, Repairs(made, broker) as tool:
            send("1", '"10"', "2", '"20"', '"never"')
            running.wait_idle(timeout_s=200)
            assert read()[-1] == (2, 3)
            fixed.touch()
            requested = tool.ask("replay")
            send("4")
            assert tool.wait(requested, timeout_s=100.0), requested.open
            assert requested.outcomes == {"row": 2, "error": 1}
            running.wait_idle(timeout_s=100)
            assert read()[-1] == (5, 37)
            for request in running.committed(replay_topic(name, "work")):  # all of them once more
                producer.produce(replay_topic(name, "work"), request.value(), request.key(), request.partition())
            send("8")
            until(lambda: read()[-1] == (6, 45), "the last message is in the table", 100)
            running.wait_idle(timeout_s=100)
            assert read()[-1] == (6, 45)
            assert [cause.count for cause in tool.causes()] == [1]
        report = verify(made, broker)
        assert not report.anomalies, report
        assert [one.replays for one in report.processors] == [3]
    finally:
        broker.close()


@pytest.mark.slow
@pytest.mark.fault
def test_driver_that_dies_in_a_replay_leaves_it_to_the_next(kafka: KafkaFixture, tmp_path: Path) -> None:
    """With its JVM, while the transaction of a replay is open: the next driver ends what was announced."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    made = graph(setup.name)
    setup.start(made).stop()
    numbers = Numbers(setup)
    numbers.send(40)
    broker = open_broker(Kafka(kafka.bootstrap))
    try:
        with Drivers(setup, tmp_path) as drivers, Repairs(made, broker) as tool:
            dies = drivers.add(point={"where": "before Commit", "nth": 2, "replays": True}).started()
            numbers.wait()
            requested = tool.ask("replay")
            assert requested.asked == 4
            dies.reached()
            dies.kill_all()
            last = drivers.add().started()
            assert tool.wait(requested, timeout_s=60.0), requested.open
            assert requested.outcomes == {"error": 4}
            numbers.send(10)
            until(lambda: numbers.delivered() == 54, "what came behind the replays is delivered")
            last.stop()
        report = verify(made, broker)
        assert not report.anomalies
        assert [one.replays for one in report.processors] == [4]
    finally:
        broker.close()


KILLS = {
    "spark": [
        *(at("staging"), at("unlisted"), at("staged"), announcing("before Commit"), announcing("after Commit")),
        *(publishing("before Commit"), publishing("after Commit"), at("published"), at("behind")),
        publishing("before Init", partition=1),
    ],
    "driver": [
        *(at(where, held=True) for where in ("staging", "unlisted", "staged", "announced", "published", "behind")),
        *(at("announced"), publishing("after Flush"), publishing("after Commit"), at("behind")),
    ],
}


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("where", KILLS)
def test_drivers_that_die_beside_live_traffic_replay_each_error_of_a_staged_processor_once(
    kafka: KafkaFixture, tmp_path: Path, where: str
) -> None:
    """Ten with their JVMs, each while a batch has new messages and requests: nothing is lost, doubled or left open."""
    setup, fixed = Setup(kafka.bootstrap, kafka.unique("g")), tmp_path / "fixed"
    made = fixable.graph(setup.name, str(fixed))
    producer, sent = Producer({"bootstrap.servers": kafka.bootstrap}), list[int]()

    def send(count: int, form: bytes) -> None:
        for n in range(len(sent), len(sent) + count):
            producer.produce(setup.source, form % n, b"k", n % fixable.WIDTH)
            sent.append(n)
        assert producer.flush(30) == 0

    broker = open_broker(Kafka(kafka.bootstrap))
    prepare(made, broker)
    kills = KILLS[where]
    try:
        with (
            StagedDrivers(setup, tmp_path, str(fixed), graph="tests.spark.fixable:graph", limit=None) as drivers,
            Repairs(made, broker) as tool,
            connect(Kafka(kafka.bootstrap), made) as client,
        ):
            send(8 * len(kills), b'{"n": "%d"}')
            send(10, b'{"n": "never %d"}')
            driver = drivers.add().started()
            until(lambda: sum(one.count for one in tool.causes()) == len(sent), "all are errors", STARTED_S)
            driver.stop()
            fixed.touch()
            never, first = sent[-10:], Selection(until_ms=int(time.time() * 1000))
            for number, kill in enumerate(kills):
                assert tool.ask("replay", first, limit=9).asked == 9
                send(10, b'{"n": %d}')
                driver = drivers.add(**kill)
                driver.reached()
                driver.kill_all() if number % 2 == 0 else driver.kill_driver()
                driver.gone()
            driver = drivers.add().started()
            send(10, b'{"n": %d}')
            good = [n for n in sent if n not in never]
            values = [len(good), sum(good)]

            def newest() -> list[int]:
                found = max(
                    (m.value for m in client.messages(f"{setup.name}.out", limit=10_000)), key=itemgetter("count")
                )
                return [found["count"], found["sum"]]

            until(lambda: newest() == values, f"the total is {values}", STARTED_S)
            driver.stop()
            totals = [m.value["count"] for m in client.messages(f"{setup.name}.out", limit=10_000)]
            assert totals == sorted(set(totals))
            found = list(tool.find())
        settled = [one.settled.outcome for one in found if one.settled is not None]
        assert sorted(settled) == ["error"] * 10 + ["row"] * (8 * len(kills))
        assert len(found) - len(settled) == 10
        places = [(c.partition, c.offset) for one in found if one.settled is None for c in one.message.consumed]
        assert len(set(places)) == 10
        report = verify(made, broker)
        assert not report.anomalies, report
        assert [one.replays for one in report.processors] == [9 * len(kills)]
    finally:
        broker.close()
