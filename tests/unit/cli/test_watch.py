"""What `run` prints about a worker in its process."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cues_kafka import Feed, Graph, Iterate, Json, Memory, Processor, Topic, start
from cues_kafka.cli.watch import EMPTY_S, TaskWatch, announce
from cues_kafka.core.records import Totals
from cues_kafka.task.status import Status, TaskStatus


def same(number: int) -> int:
    return number


def test_first_line_counts_tasks_of_feeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of the processor, and one of the feed."""
    graph = Graph(
        "g",
        Feed(Iterate(lambda place: ()), into="in", name="feed"),
        Processor(same, inputs="in", outputs="out"),
        defaults=Topic(value=Json(int), partitions=2),
    )
    with start(graph, Memory()) as running:
        announce(running, "here", warn=False)
    assert capsys.readouterr().out == "g: 3 tasks on here\n"


class Given:
    """A worker with the tasks that its group has given it."""

    def __init__(self) -> None:
        self.settled = True
        self.tasks: tuple[TaskStatus, ...] = ()

    def status(self) -> Status:
        return Status(self.tasks)

    def loops(self) -> list[Any]:
        return []


def test_worker_without_tasks_is_not_ready_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group gives it tasks when others have given them up; a supervisor waits before it replaces those others."""
    graph = Graph("g", Processor(same, inputs="in", outputs="out"), defaults=Topic(value=Json(int)))
    now, said = [100.0], "g: ready after "
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def look_of(running: Any) -> TaskWatch:
        return TaskWatch(graph, running, fail_fast=False, succeeded=True, began=100.0)

    given, empty = Given(), Given()
    looks = [look_of(given), look_of(empty)]
    for look in looks:
        look._look()
    assert said not in capsys.readouterr().out

    given.settled = False
    now[0] += EMPTY_S - 0.1
    looks[0]._look()
    given.settled, given.tasks = True, (TaskStatus("same/0", "ready", (), Totals()),)
    looks[0]._look()
    assert f"{said}2.90 s, 1 task here" in capsys.readouterr().out

    now[0] += 0.1
    looks[1]._look()
    assert f"{said}3.00 s, 0 tasks here" in capsys.readouterr().out
