"""Tasks that move between workers on a real broker: nothing lost, doubled or out of order, and no task is called dead.

The workers are several `start()` of one process; each is an incarnation and a member of its own.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from cues_kafka import Graph, Json, Kafka, Message, Processor, Source, Topic, start
from cues_kafka.running.running import Running
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.workers import questions
from tests.fault.support import (
    PATIENCE_S,
    Program,
    Record,
    Setup,
    backing,
    check_chain,
    committed,
    outcomes,
    produce,
    until,
)

PARTITIONS = 4
EACH = 250
"""Messages of each partition of each topic."""


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own."""
    return Setup(kafka.bootstrap, kafka.unique("g"))


def zipped(a: Any, b: Any) -> Any:
    """A join."""
    return [a, b]


def either(a: Any = None, b: Any = None) -> Any:
    """An alts processor."""
    return a or b


def pairs(name: str) -> Graph:
    """A join and an alts processor over the same two topics."""
    both = {"a": f"{name}.a", "b": f"{name}.b"}
    return Graph(
        name,
        Source(both["a"]),
        Source(both["b"]),
        Processor(zipped, inputs=both, outputs=f"{name}.joined"),
        Processor(either, alts=both, outputs=f"{name}.either", effects=True),
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"assignor": "cooperative-sticky"},
        pytest.param({"assignor": "range"}, marks=pytest.mark.full),
        pytest.param({"group_protocol": "consumer", "assignor": "uniform"}, marks=pytest.mark.full),
        pytest.param({"sessions": 1}, marks=pytest.mark.full),
        pytest.param({"sessions": 1, "assignor": "range"}, marks=pytest.mark.full),
    ],
    ids=["cooperative", "eager", "consumer", "one session", "one session, eager"],
)
def test_a_join_and_an_alts_processor_survive_one_three_two_workers(kafka: KafkaFixture, options: Any) -> None:
    """Workers come and go while messages flow; the join pairs the k-th with the k-th, alts delivers each once."""
    name = kafka.unique("g")
    graph, cluster = pairs(name), Kafka(kafka.bootstrap, **options)
    fed = threading.Event()

    def feed() -> None:
        for k in range(0, EACH, 10):
            for side in ("a", "b"):
                records = [
                    Record(json.dumps([side, p, i]).encode(), None, p)
                    for i in range(k, k + 10)
                    for p in range(PARTITIONS)
                ]
                produce(kafka.bootstrap, f"{name}.{side}", records)
        fed.set()

    with ExitStack() as workers:
        first = workers.enter_context(start(graph, cluster))
        feeder = threading.Thread(target=feed)
        feeder.start()
        second = start(graph, cluster)
        workers.callback(second.abandon)
        third = workers.enter_context(start(graph, cluster))
        until(lambda: owned(first, second, third) == [8] and len(first.status().tasks) < 8, "three share the tasks")
        feeder.join(PATIENCE_S)
        assert fed.is_set()
        second.stop()
        for worker in (first, third):
            worker.wait_idle(timeout_s=60)
        assert not first.status().stopped
        assert not third.status().stopped

    check(kafka.bootstrap, name)


def owned(*workers: Running) -> list[int]:
    """How many tasks all workers have together, where each is at one worker only."""
    tasks = [task.task for worker in workers for task in worker.status().tasks]
    return [len(tasks)] if len(set(tasks)) == len(tasks) else []


def check(bootstrap: str, name: str) -> None:
    """Whole outputs, backing records, and the number of outcomes of every message."""
    joined, mixed = committed(bootstrap, f"{name}.joined"), committed(bootstrap, f"{name}.either")
    by_partition: dict[int, list[Any]] = {p: [] for p in range(PARTITIONS)}
    for message in joined:
        by_partition[int(message.partition() or 0)].append(json.loads(message.value() or b""))
    assert by_partition == {p: [[["a", p, k], ["b", p, k]] for k in range(EACH)] for p in range(PARTITIONS)}

    for p in range(PARTITIONS):
        came = [json.loads(m.value() or b"") for m in mixed if m.partition() == p]
        for side in ("a", "b"):
            assert [k for s, _, k in came if s == side] == list(range(EACH))

    for messages, steps, processor in ((joined, EACH, "zipped"), (mixed, 2 * EACH, "either")):
        counts = outcomes(messages)
        assert len(counts) == 2 * PARTITIONS * EACH
        assert set(counts.values()) == {1}
        records = backing(bootstrap, f"{name}.{processor}.backing")
        check_chain(records)
        assert [r[-1]["totals"]["deliveries"] for r in records] == [steps] * PARTITIONS


# ---- slow steps


class Slow:
    """Waits for its release when it sees "slow"; tells that it is there."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.calls: list[Any] = []

    def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        if value == "slow":
            self.entered.set()
            assert self.release.wait(120)
        return value

    def called_more_than(self, times: int) -> bool:
        """Whether a worker called it again."""
        return len(self.calls) > times


def partitions_of(worker: Running) -> set[int]:
    """Which tasks a worker has."""
    return {int(task.task.rpartition("/")[2]) for task in worker.status().tasks}


def has_only(worker: Running, partition: int) -> bool:
    """Whether it has this task and no other."""
    return partitions_of(worker) == {partition}


def moving_partition(setup: Setup, first: Running, graph: Callable[[], Graph], options: Any) -> int:
    """A partition that a second worker takes from the first: by their names the assignors do so again."""
    with setup.start(graph(), options=options, instance="a") as second:
        until(lambda: owned(first, second) == [2] and partitions_of(second), "the tasks are shared")
        [found] = partitions_of(second)
    until(lambda: partitions_of(first) == {0, 1}, "the first has them back")
    return found


@pytest.mark.parametrize("assignor", ["cooperative-sticky", pytest.param("range", marks=pytest.mark.full)])
def test_a_member_that_loses_one_task_while_it_computes_keeps_the_others(setup: Setup, assignor: str) -> None:
    """A3: its result is thrown away, the other worker delivers the message, the loser's other task goes on."""
    options: Any = {"assignor": assignor}
    slow, quick = Slow(), Slow()
    quick.release.set()
    first = setup.start(setup.graph(slow, partitions=2), options=options, instance="b")
    try:
        moves = moving_partition(setup, first, lambda: setup.graph(quick, partitions=2), options)
        setup.send(Record(b'"slow"', None, moves))
        assert slow.entered.wait(PATIENCE_S)
        with setup.start(setup.graph(quick, partitions=2), options=options, instance="a") as second:
            until(lambda: owned(first, second) == [2] and partitions_of(second), "the tasks are shared")
            assert partitions_of(second) == {moves}, "the assignor is deterministic"
            until(lambda: quick.calls == ["slow"], "the second worker is called")
            setup.send(Record(b'"other"', None, 1 - moves))
            slow.release.set()
            until(lambda: "other" in slow.calls, "the first goes on with its other task")
            first.wait_idle(timeout_s=30)
            second.wait_idle(timeout_s=30)
            assert not first.status().stopped
    finally:
        slow.release.set()
        first.stop()

    world = setup.world()
    assert sorted(world.values) == ["other", "slow"]
    assert world.errors == []
    assert world.totals == {"deliveries": 2, "outputs": 2, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}


@pytest.mark.parametrize(
    "assignor",
    [pytest.param("cooperative-sticky", marks=pytest.mark.full), pytest.param("range", marks=pytest.mark.slow)],
)
def test_a_task_that_moves_ten_times_during_one_slow_step_is_never_quarantined(setup: Setup, assignor: str) -> None:
    """Q1: a revocation is no death; the snapshot is left in order each time, so that its count stays at 0."""
    options: Any = {"assignor": assignor}
    slow = Slow()
    graph = setup.graph(slow, partitions=2, quarantine_after=1)
    first = setup.start(graph, options=options, instance="b")
    try:
        moves = moving_partition(setup, first, lambda: graph, options)
        setup.send(Record(b'"slow"', None, moves))
        assert slow.entered.wait(PATIENCE_S)
        for _ in range(5):
            called = len(slow.calls)
            second = setup.start(graph, options=options, instance="a", timeout_s=None)
            until(partial(has_only, second, moves), "it moves to the second")
            until(partial(slow.called_more_than, called), "and its function is called there")
            second.stop()
            until(lambda: partitions_of(first) == {0, 1}, "it moves back")
        slow.release.set()
        first.wait_idle(timeout_s=30)
    finally:
        slow.release.set()
        first.stop()

    world = setup.world()
    assert (world.values, world.errors) == (["slow"], [])
    assert world.totals == {"deliveries": 1, "outputs": 1, "errors": 0, "nils": 0}
    records = backing(setup.bootstrap, setup.backing)[moves]
    assert [record["starts"] for record in records] == [0] * len(records)
    assert sum(record["left"] for record in records) >= 5


DYING = """
import os, signal, sys, time
from cues_kafka.workers.worker import ProcessorWorker
from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, start

def same(value):
    return value

def die(self, partitions):
    os.kill(os.getpid(), signal.SIGKILL)

name, bootstrap = sys.argv[1:]
pipe = Processor(same, name="pipe", inputs=f"{name}.in", outputs=f"{name}.out")
graph = Graph(name, Source(f"{name}.in"), pipe, defaults=Topic(value=Json(), partitions=4))
running = start(graph, Kafka(bootstrap), instance="one")
ProcessorWorker.on_revoke = die
print("ready", flush=True)
running.wait()
"""


def same(value: Any) -> Any:
    """A pipe."""
    return value


def test_tasks_of_a_worker_that_died_between_two_rounds_of_a_rebalance_find_an_owner(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The group told it to give two tasks back, and told no other member to take them: that comes when it has.
    Its successor takes its place, gets what was left to it, and the group is stable.
    """
    monkeypatch.setattr(questions, "CHECK_GROUP_S", 0.5)
    name = setup.name
    pipe = Processor(same, name="pipe", inputs=f"{name}.in", outputs=f"{name}.out")
    graph = Graph(name, Source(f"{name}.in"), pipe, defaults=Topic(value=Json(), partitions=PARTITIONS))
    options = Kafka(setup.bootstrap)
    with Program([sys.executable, "-c", DYING, name, setup.bootstrap]) as dying, ExitStack() as stack:
        dying.expect("ready")
        stack.enter_context(start(graph, options, instance="two", timeout_s=None))
        assert dying.dead() == -signal.SIGKILL
        one = stack.enter_context(start(graph, options, instance="one", timeout_s=None))
        for partition in range(PARTITIONS):
            one.send(f"{name}.in", Message(partition, partition=partition))
        one.wait_idle(timeout_s=60)
        assert sorted(m.value for m in one.messages(f"{name}.out")) == list(range(PARTITIONS))
