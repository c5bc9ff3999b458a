"""`start`: waiting until the graph is idle, starts that fail, arguments that are no graph."""

from __future__ import annotations

import time

import pytest

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, TaskStopped, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports import NewTopic


def test_wait_idle_waits_for_user_code_that_runs() -> None:
    """A batch that was being called was neither in the buffer nor on its way."""
    done = []

    def slow(n: int) -> int:
        if n == 2:
            time.sleep(0.7)
        done.append(n)
        return n

    with start(Graph("g", Source("in"), Processor(slow, inputs="in", outputs="out")), Memory()) as running:
        for n in (1, 2):
            running.send("in", n, key="k")
            running.wait_idle(timeout_s=20)
        assert done == [1, 2]


def test_starts_that_fail_count_no_deaths() -> None:
    """A refused task made `start` drop the others like a crash, and their snapshots counted against the messages."""

    def slow(n: int) -> int:
        time.sleep(0.2)
        return n

    def other(n: int) -> int:
        return n

    memory = Memory()
    graph = Graph(
        "g",
        Source("in"),
        Source("in2"),
        Processor(slow, inputs="in", outputs="out"),
        Processor(other, inputs="in2", outputs="out2"),
        errors="failed",
    )
    with start(graph, memory) as running:
        running.send("in2", 1, key="k")
        running.wait_idle(timeout_s=20)
        running.send("in", 1, key="k")
    broker = open_broker(memory)
    broker.delete(["in2"])
    broker.create([NewTopic("in2", 1)])
    for _ in range(4):
        with pytest.raises(TaskStopped, match="recreated"):
            start(graph, memory)
    with start(graph, memory, only=["slow"]) as running:
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("out")] == [1]
        assert running.messages("failed") == []


def test_start_says_what_it_wants_instead_of_a_graph() -> None:
    """The name of one, for example."""
    with pytest.raises(ConfigError, match=r"first argument is the graph, not str. Write start\(Graph"):
        start("life", Memory())  # type: ignore[arg-type]
