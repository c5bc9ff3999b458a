"""Marks of the charts: what became of the process that had a task before."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source
from cues_kafka.graph.names import status_topic
from cues_kafka.operate.look.seen import GraphStatus, SeenTask
from cues_kafka.operate.look.status import StatusView
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.facts import NewTopic
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.testing.tester import Tester
from cues_kafka.ui.history import LastHour
from cues_kafka.ui.moves import SILENT_S


def task(partition: int, owner: str, told_s: float, state: Any = "working") -> SeenTask:
    """A task as it is seen."""
    return SeenTask(processor="check", partition=partition, state=state, owner=owner, told_s=told_s)


class Looks:
    """Looks at two tasks; at the first one, the process `a` has both."""

    def __init__(self) -> None:
        self.history = LastHour()
        self.take(0.0, task(0, "a", 0.0), task(1, "a", 0.0))

    def take(self, at_s: float, *tasks: SeenTask, left: tuple[str, ...] = ()) -> None:
        """One look."""
        self.history.take(GraphStatus(graph="shop", at_s=at_s, tasks=tasks), left)

    def marks(self, of: str = "check/0") -> list[tuple[float, str]]:
        """Those of a task."""
        return [(at_s, what) for at_s, what in self.history.of(of)["marks"]]


def test_a_process_that_said_farewell_was_stopped_in_order() -> None:
    """It is known at once, whatever else it tells."""
    looks = Looks()
    looks.take(2.0, task(0, "b", 1.5), task(1, "b", 1.5), left=("a",))

    for name in ("check/0", "check/1"):
        assert looks.marks(name) == [(2.0, "moved to b: a was stopped in order")]


def test_a_process_that_tells_of_another_task_after_the_move_goes_on() -> None:
    """What it told before the move says nothing: it may have died since."""
    looks = Looks()
    looks.take(2.0, task(0, "b", 1.5), task(1, "a", 1.0))
    assert looks.marks() == [(2.0, "moved to b")]
    looks.take(6.0, task(0, "b", 5.5), task(1, "a", 5.0))

    assert looks.marks() == [(2.0, "moved to b: a goes on, and the tasks were shared out again")]
    assert looks.marks("check/1") == []


def test_a_process_that_is_killed_is_silent_without_a_farewell() -> None:
    """The farewell of another process, or of the new owner, does not explain the move."""
    looks = Looks()
    looks.take(2.0, task(0, "b", 1.5), task(1, "a", 1.0), left=("c",))
    looks.take(10.0, task(0, "b", 9.5), task(1, "a", 1.0, "not heard of"))
    assert looks.marks() == [(2.0, "moved to b")]
    looks.take(2.0 + SILENT_S, task(0, "b", 31.0), task(1, "b", 31.0), left=("b",))

    [(at_s, what)] = looks.marks()
    assert at_s == 2.0
    assert what.startswith("moved to b: a is silent without a farewell: it was killed or cut off")


def test_a_move_back_has_its_own_reason() -> None:
    """Each mark keeps what was found."""
    looks = Looks()
    looks.take(2.0, task(0, "b", 1.5), task(1, "a", 1.9))
    looks.take(4.0, task(0, "a", 3.5), task(1, "a", 3.5), left=("b",))

    assert [what for _, what in looks.marks()] == [
        "moved to b: a goes on, and the tasks were shared out again",
        "moved to a: b was stopped in order",
    ]


@pytest.mark.parametrize(("last", "left"), [("left", True), ("working", False)])
def test_a_farewell_is_seen_also_where_the_next_process_has_told_since(last: Any, left: bool) -> None:
    """Each record of the status topic is read; a process that starts again with its name has not left."""
    graph = Graph("shop", Source("orders"), Processor(lambda order: None, name="check", inputs="orders"))
    tester = Tester(graph)
    owners = [TaskOwner(instance=name) for name in ("a", "b")]
    told: list[tuple[Any, TaskOwner]] = [("left", owners[0]), (last, owners[0]), ("working", owners[1])]
    topic = status_topic("shop")
    with StatusView(graph, tester.broker, sides=Sides(status=True, control=False)) as view:
        tester.broker.create([NewTopic(topic, 1, config={"cleanup.policy": "compact"})])
        sender = tester.broker.sender("test")
        for state, owner in told:
            record = StatusRecord(task="check/0", state=state, owner=owner, every_s=5.0)
            sender.send([(topic, 0, b"check/0", encode_status(record), None, 0)])
        view.told()
        assert ("a" in view.left, "b" in view.left) == (left, False)
