"""What the log says of a worker's start: that it waits for its group, and that all tasks work."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import cast

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, State, Store, Topic, start
from cues_kafka.ports.clients import GroupMetadata, Member
from cues_kafka.task.restoring import Restoring
from cues_kafka.testing.tester import Tester
from cues_kafka.workers.membership import JOINING_S, PLACED_S


def count(word: str, counts: State[int]) -> int:
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


GRAPH = Graph(
    "g",
    Source("in"),
    Processor(count, inputs="in", outputs="out", state={"counts": Store(Json(int))}),
    defaults=Topic(partitions=3),
)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the worker's own log, without those of assignments."""
    lines = [one.getMessage() for one in caplog.records if one.name == "cues_kafka.worker"]
    return [line for line in lines if not line.startswith("assigned")]


def test_a_worker_that_the_group_does_not_take_in_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the reason: after a kill that is the session of the process before. At once it says nothing."""
    caplog.set_level(logging.INFO)
    tester = Tester(GRAPH)
    tester._start()
    [worker] = tester._workers
    worker._options = replace(worker._options, instance=None)
    worker.call_once()
    assert told(caplog) == []
    for _ in range(3):
        tester.clock.advance(JOINING_S)
        worker.call_once()
    [waiting] = told(caplog)
    assert "waiting for the group" in waiting
    assert "until its session has timed out; with --instance NAME" in waiting
    tester.run()
    assert "all tasks ready processor='count' tasks=3" in told(caplog)[-1]
    assert len(told(caplog)) == 2


def test_a_worker_with_an_instance_is_not_told_to_take_one(caplog: pytest.LogCaptureFixture) -> None:
    """It has a name; its group waits for the session of another worker."""
    caplog.set_level(logging.INFO)
    tester = Tester(GRAPH)
    tester._start()
    [worker] = tester._workers
    assert worker._options.instance
    for _ in range(2):
        worker.call_once()
        tester.clock.advance(JOINING_S)
    worker.call_once()
    [waiting] = told(caplog)
    assert "session has timed out" in waiting
    assert "--instance" not in waiting


def test_all_tasks_are_ready_when_their_stores_are_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for all of them, each time that tasks are assigned."""
    caplog.set_level(logging.INFO)
    tester, before, bring_up = Tester(GRAPH), list[list[str]](), Restoring.bring_up

    def restored(*arguments: object) -> None:
        tester._workers[0]._tell_progress()  # as the thread that calls functions does, meanwhile
        before.append(told(caplog))
        bring_up(*arguments)  # type: ignore[arg-type]

    for word in "abc":
        tester.send("in", word)
    tester.run()
    monkeypatch.setattr(Restoring, "bring_up", restored)
    for _ in range(2):
        caplog.clear()
        before.clear()
        tester.restart().run()
        assert before == [[], [], []]
        assert len(told(caplog)) == 1
        assert "all tasks ready" in told(caplog)[0]


def test_a_graph_is_settled_when_its_stores_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` then says that it is ready, and an operator restarts the next worker. `start` waits for records only."""
    cluster, entered, release, bring_up = Memory(), threading.Event(), threading.Event(), Restoring.bring_up
    with start(GRAPH, cluster) as running:
        for word in "abc":
            running.send("in", word)
        running.wait_idle()
        assert running.settled

    def slow(*arguments: object) -> None:
        entered.set()
        assert release.wait(20)
        bring_up(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Restoring, "bring_up", slow)
    with start(GRAPH, cluster) as running:
        try:
            assert entered.wait(20)
            assert not running.settled
        finally:
            release.set()
        running.wait_idle()
        assert running.settled


class Joined:
    """A member that the group has taken in, and whose partitions are still on their way."""

    def poll(self) -> None: ...

    def metadata(self) -> GroupMetadata:
        return GroupMetadata("g.count", 3)


def test_worker_has_no_place_before_it_knows_its_partitions() -> None:
    """A start that returned in between would not see that a task stops; a worker that gets none waits for a second."""
    tester = Tester(GRAPH)
    tester._start()
    first, second = tester._workers[0], Tester(GRAPH)
    first._membership.join(cast(Member, Joined()))
    first._membership.serve()
    assert first.generation == -1
    first.on_assign([])
    assert first.generation == 3

    second._start()
    [worker] = second._workers
    worker._membership.join(cast(Member, Joined()))
    worker._membership.serve()
    second.clock.advance(PLACED_S)
    worker._membership.serve()
    assert worker.generation == 3
