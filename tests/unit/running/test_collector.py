"""The collector: the facts of all tasks of a process, from their status, their tally and their totals."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, Topic, start
from cues_kafka.core.records import Totals
from cues_kafka.running.collector import RATE_S, Collector
from cues_kafka.task.status import TaskStatus
from tests.unit.samples import StandingClock


class One:
    """A worker with the tasks that the test gives it."""

    def __init__(self, *, state: str = "ready", stopped: str = "", **deliveries: int) -> None:
        self.deliveries, self.state, self.stopped = deliveries, state, stopped

    def status(self) -> list[TaskStatus]:
        return [
            TaskStatus(n.replace("_", "/"), self.state, (), Totals(d), self.stopped) for n, d in self.deliveries.items()
        ]


def rates(collector: Collector, worker: Any) -> dict[str, float]:
    """The rate of each task."""
    return {one.task: one.rate for one in collector.collect([worker])}


def test_a_rate_is_the_mean_of_the_last_ten_seconds() -> None:
    """The first look has none; what was long ago does not count."""
    clock, worker = StandingClock(), One(check_0=5_000)
    collector = Collector(clock)
    assert rates(collector, worker) == {"check/0": 0.0}

    for _ in range(10):
        clock.sleep(5.0)
        worker.deliveries["check_0"] += 500
        found = rates(collector, worker)
    assert found == {"check/0": 100.0}

    for _ in range(int(RATE_S / 5) + 1):
        clock.sleep(5.0)
        found = rates(collector, worker)
    assert found == {"check/0": 0.0}


def test_a_look_within_the_same_second_gives_no_rate_and_does_not_disturb_the_next() -> None:
    """Metrics and status may look at the same time."""
    clock, worker = StandingClock(), One(check_0=0)
    collector = Collector(clock)
    rates(collector, worker)
    clock.sleep(0.1)
    worker.deliveries["check_0"] = 100
    assert rates(collector, worker) == {"check/0": 0.0}
    clock.sleep(9.9)
    assert rates(collector, worker) == {"check/0": pytest.approx(10.0)}


def test_a_task_that_recovers_or_leaves_gives_no_negative_rate() -> None:
    """Its totals are unknown until its record is read again; a task that comes back begins again."""
    clock, worker = StandingClock(), One(check_0=100)
    collector = Collector(clock)
    rates(collector, worker)
    clock.sleep(5.0)
    assert rates(collector, One(check_0=0)) == {"check/0": 0.0}
    clock.sleep(5.0)
    assert rates(collector, One()) == {}
    assert rates(collector, One(check_0=50)) == {"check/0": 0.0}


@pytest.mark.parametrize(("state", "why"), [("new", ""), ("reading newest", ""), ("stopped", "a right is missing")])
def test_what_a_task_delivered_before_it_came_here_is_no_rate(state: str, why: str) -> None:
    """Its totals come with its record, after the first looks."""
    clock = StandingClock()
    collector = Collector(clock)
    assert rates(collector, One(state=state, stopped=why, check_0=0)) == {"check/0": 0.0}
    clock.sleep(5.0)
    assert rates(collector, One(check_0=2_000)) == {"check/0": 0.0}
    clock.sleep(5.0)
    assert rates(collector, One(check_0=2_100)) == {"check/0": 20.0}


def test_a_processor_that_stopped_as_a_whole_has_no_partition() -> None:
    """So it is on Spark, before the first slot has told anything."""
    [whole] = Collector(StandingClock()).collect([cast(Any, One(totals=0))])

    assert (whole.processor, whole.partition, whole.task) == ("totals", None, "totals")


def check(order: dict[str, int]) -> dict[str, int]:
    """Refuse what is negative."""
    if order["total"] < 0:
        raise ValueError("negative")
    return order


def test_running_graph_collects_what_its_tasks_did() -> None:
    """Status and tally of one task say the same."""
    graph = Graph(
        "shop",
        Source("orders"),
        Processor(check, inputs="orders", outputs="checked"),
        errors="shop.errors",
        defaults=Topic(value=Json(), partitions=1),
    )
    with start(graph, Memory()) as running:
        running.send_many("orders", [{"total": 1}, {"total": -1}, {"total": 2}])
        running.wait_idle()
        [task] = running.collect()

    assert (task.processor, task.partition) == ("check", 0)
    assert task.status.totals[:4] == (3, 2, 1, 0)
    assert (task.tally.deliveries, task.tally.outputs, task.tally.errors) == (3, 2, 1)
    assert task.tally.error == "orders/0 at 1: ValueError: negative"
    assert task.tally.committed_s > 0
