"""Replays of errors on Spark, through the death of the Python process that makes them, on a real broker (Y1 to Y3)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Json, Kafka, Processor, Source, Step, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Setup, until
from tests.spark.drivers import Drivers, Numbers
from tests.spark.fault_driver import graph

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
