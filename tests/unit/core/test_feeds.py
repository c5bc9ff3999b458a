"""G1 to G3: a feed's records have its place, its position is the end of its own log, and nothing is announced."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import Halt, IllegalEvent, InputFacts
from cues_kafka.core.feeds import BINDING
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Attempt, Record, Start, Totals
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.task import Doing, Task
from cues_kafka.ports.log import Position
from tests.unit.core.world import BEFORE, ME

TOPIC_ID = b"f" * 16


def spec_of(**changes: Any) -> Spec:
    """Task 1 of a feed."""
    common: dict[str, Any] = {
        "graph": "g", "processor": "p", "partition": 1, "inputs": (Input(BINDING, "g.p.backing"),), "width": 4,
        "transactional_id": "g.p.1", "group": "g.p", "backing": "g.p.backing", "writer": ME, "feed": True,
    }  # fmt: skip
    return Spec(**common | changes)


def attempt(offset: int, place: str, **fields: Any) -> Attempt:
    """The newest record of an earlier run."""
    common: dict[str, Any] = {
        "sequence": 7, "step": 40, "positions": (Position(BINDING, "g.p.backing", TOPIC_ID, offset),), "place": place,
        "totals": Totals(40, 36, 4, 0, 36, 40), "born": 4, "writer": BEFORE,
    }  # fmt: skip
    return Attempt(**common | fields)


def recovered(record: Record | None, high: int, committed: int | None, *, low: int = 0) -> tuple[Task, do.Effect]:
    """A task behind R5."""
    task, effect = handle(Task(spec_of()), on.Assigned())
    for event in (
        on.Initialised(),
        on.OffsetsFetched({BINDING: committed}),
        on.WatermarkFetched(high),
        on.NewestRead(record),
        on.InputsFetched({BINDING: InputFacts(TOPIC_ID, low, high, high)}, 1.0),
    ):
        task, effect = handle(task, event)
    return task, effect


def through(task: Task, effect: do.Effect) -> tuple[Task, do.Effect, Record, int]:
    """A transaction that lands where it must; gives the task behind it, its record and its offset."""
    assert isinstance(effect, do.Begin)
    task, effect = handle(task, on.Done())
    assert isinstance(effect, do.Produce)
    record = effect.record
    task, effect = handle(task, on.Done())
    assert isinstance(effect, do.SendOffsets)
    [position] = effect.positions
    task, _ = handle(task, on.Done())
    task, _ = handle(task, on.Flushed(1, 1, task.expected))
    task, effect = handle(task, on.Committed())
    return task, effect, record, position.offset


def test_the_first_record_of_a_feed_has_no_place_and_ends_its_log() -> None:
    """G2: two offsets further than the log was, behind aborted transactions too."""
    task, effect = recovered(None, high=5, committed=None)
    assert isinstance(effect, do.FetchSibling)
    task, effect, record, offset = through(*handle(task, on.SiblingRead(None)))

    assert isinstance(record, Start)
    assert (record.place, offset, record.positions[0].offset) == ("", 7, 7)
    assert isinstance(effect, do.AssignReader)


def test_each_attempt_carries_the_place_behind_its_rows() -> None:
    """G1, G2: one after the other; a stop keeps what came before it."""
    task, effect = recovered(attempt(12, "40"), high=12, committed=12)
    assert isinstance(effect, do.AssignReader)
    assert task.record is not None
    assert task.record.place == "40"
    task, effect = handle(task, on.Done())
    assert isinstance(effect, do.Await)
    assert not task.snapshot_due
    assert task.pipelined

    task, effect, record, offset = through(*handle(task, on.Called((), Totals(2, 2, messages=2), place="42")))
    assert (record.place, record.step, offset) == ("42", 42, 14)
    halt = Halt("refused", "replaced", "put it back")
    task, effect, record, offset = through(*handle(task, on.Called((), Totals(1, 0, 1), halt, "43")))
    assert (record.place, record.step, offset) == ("43", 43, 16)
    assert isinstance(effect, do.Stop)
    assert task.state is Doing.STOPPED


def test_a_stop_without_a_row_writes_nothing() -> None:
    """There is no snapshot to leave, either."""
    task, _ = recovered(attempt(12, "40"), high=12, committed=12)
    task, _ = handle(task, on.Done())
    task, effect = handle(task, on.Called((), Totals(), Halt("refused", "replaced", "put it back")))
    assert isinstance(effect, do.Stop)


@pytest.mark.parametrize("high", [12, 40])
def test_the_log_may_end_behind_the_newest_record(high: int) -> None:
    """G2: aborted transactions leave markers, and compaction takes what is old."""
    task, effect = recovered(attempt(12, "40"), high=high, committed=12, low=12)
    assert isinstance(effect, do.AssignReader)
    task, _ = handle(task, on.Done())
    _, _, _, offset = through(*handle(task, on.Called((), Totals(1, 1, messages=1), place="41")))
    assert offset == high + 2


def test_offsets_of_another_program_and_another_topic_are_refused() -> None:
    """R5 holds for the feed's own topic as for any input."""
    task, effect = recovered(attempt(12, "40"), high=12, committed=10)
    assert isinstance(effect, do.Discard)
    assert "group offset 10" in effect.text
    other = attempt(12, "40", positions=(Position(BINDING, "g.p.backing", b"o" * 16, 12),))
    task, effect = recovered(other, high=12, committed=12)
    assert isinstance(effect, do.Stop)
    assert "recreated" in effect.halt.text
    assert task.state is Doing.STOPPED


def test_nothing_is_announced() -> None:
    """G3: after deaths too, which are not counted."""
    task, _ = recovered(attempt(12, "40", writer=BEFORE), high=12, committed=12)
    task, _ = handle(task, on.Done())
    assert task.first
    assert not task.snapshot_due
    task, effect = handle(task, on.Called((), Totals(1, 1, messages=1), place="41"))
    assert isinstance(effect, do.Begin)
    assert isinstance(task.pending, Attempt)
    assert task.pending.starts == 0
    with pytest.raises(IllegalEvent):
        handle(task, on.Polled((), 1))
