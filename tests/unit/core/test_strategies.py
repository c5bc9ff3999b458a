"""Strategies: a row of a table changes what the machine does, and nothing else has to change."""

from __future__ import annotations

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Start
from cues_kafka.core.recover import Delivered, Refuse, recover
from cues_kafka.core.strategies import STRATEGIES, Strategy
from tests.unit.core.world import World, at, attempt, called, facts, make_spec

LOOSE = make_spec(strategy="loose")


@pytest.fixture(autouse=True)
def a_strategy_without_lock_and_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new inhabitant of the table: what at-least-once delivery needs of the machine."""
    monkeypatch.setitem(STRATEGIES, "loose", Strategy(fenced=False, snapshots=False, ahead=True))


def test_a_strategy_without_snapshots_calls_at_once() -> None:
    """The first batch of a start is delivered and written with no snapshot before it."""
    world = World(LOOSE)
    task, effect = world.begin()

    assert effect == do.Await()
    assert task.pipelined
    task, _ = world.run(task, called(at(4), outputs=4))
    assert [type(record) for record in world.log] == [Start, Attempt]
    assert {record.strategy for record in world.log} == {"loose"}


def test_a_strategy_without_lock_does_not_ask_where_its_record_landed() -> None:
    """P6a belongs to the transactional id: without it, another record may lie between."""
    world = World(LOOSE)
    task, _ = world.begin()
    world.answers[do.Flush] = [on.Flushed(1, 1, task.expected + 7)]

    task, effect = world.run(task, called(at(4), outputs=4))

    assert effect == do.Await()
    assert isinstance(task.record, Attempt)


def test_a_strategy_without_lock_is_not_bound_to_the_groups_offsets() -> None:
    """R5: offsets that were committed behind the record are older, and harmless."""
    record = attempt(LOOSE, 5, strategy="loose")

    assert recover(LOOSE, record, {"in": 3}, facts(LOOSE)) == Delivered(record)


def test_a_strategy_does_not_change_by_itself() -> None:
    """R5: what one strategy wrote, another one refuses by name."""
    decision = recover(LOOSE, attempt(LOOSE, 5), {}, facts(LOOSE))

    assert isinstance(decision, Refuse)
    assert "was written exactly-once; the graph says loose" in decision.halt.text
