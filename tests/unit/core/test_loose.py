"""At-least-once: the record behind the outputs, without a lock (W5, W6); and the verb that changes a strategy (W7)."""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.moves import MOVED, behind_both
from cues_kafka.core.records import Attempt, Start, Totals
from cues_kafka.core.recover import Refuse, recover
from cues_kafka.core.spec import Move
from tests.unit.core.world import RECREATED, World, at, attempt, called, facts, make_spec, snapshot

SPEC = make_spec(strategy="at-least-once")


def test_a_batch_is_written_before_its_record_and_the_offsets_come_last() -> None:
    """W5, I17: the order in which a death may only repeat."""
    world = World(SPEC)
    task, _ = world.begin()
    world.names()

    world.run(task, called(at(4), outputs=4))

    assert world.names() == ["Begin", "Emit", "Produce", "Flush", "SendOffsets", "Await"]
    assert world.log[-1].batch == Totals(4, 4, 0, 0, 4, taken=4)


def test_a_batch_without_records_has_nothing_to_emit() -> None:
    """P1: positions that have moved over markers."""
    world = World(SPEC)
    task, _ = world.begin()
    world.names()

    world.run(task, on.Idle(at(4)))

    assert world.names() == ["Begin", "Produce", "Flush", "SendOffsets", "Await"]


def test_a_start_sends_its_offsets_before_its_record() -> None:
    """W6: the group refuses those of a former member, who then writes nothing."""
    world = World(SPEC)
    world.answers[do.SendOffsets] = [world.failed("no member")]

    world.begin()

    names = world.names()
    assert names.index("Discard") < names.index("Produce")
    assert names[-6:] == ["Begin", "SendOffsets", "Produce", "Flush", "AssignReader", "Await"]
    assert [type(record) for record in world.log] == [Start]


def test_a_task_without_a_record_begins_at_the_groups_offsets() -> None:
    """W6: a start that was not completed has resolved `latest` already."""
    world = World(replace(SPEC, start="latest"), offsets={"in": 7})

    world.begin()

    assert world.log[0].positions == at(7)


def test_a_start_is_resolved_once_although_its_offsets_get_no_answer() -> None:
    """W6: offsets that come late must not put the group behind what this task will deliver."""
    world = World(replace(SPEC, start="latest"))
    world.answers[do.SendOffsets] = [world.failed("no answer"), world.failed("no answer")]
    world.answers[do.FetchInputs] = [on.InputsFetched(facts(SPEC, stable=end), 0.0) for end in (7, 8, 9)]

    world.begin()

    assert [effect.positions for effect in world.effects if isinstance(effect, do.SendOffsets)] == [at(7)] * 3
    assert world.log[0].positions == at(7)


def test_a_start_is_resolved_again_where_its_topic_was_recreated() -> None:
    """The offset of a deleted topic means nothing in the one that has its name now."""
    world = World(replace(SPEC, start="latest"))
    world.answers[do.SendOffsets] = [world.failed("no answer")]
    recreated = {"in": on.InputFacts(RECREATED, 0, 2, 2)}
    world.answers[do.FetchInputs] = [on.InputsFetched(found, 0.0) for found in (facts(SPEC, stable=7), recreated)]

    world.begin()

    assert [(p.offset, p.topic_id) for p in world.log[0].positions] == [(2, RECREATED)]


def test_a_stopped_task_begins_again_where_it_wanted_to_start() -> None:
    """W6: its offsets may still come late."""
    world = World(replace(SPEC, start="latest"))
    world.answers[do.SendOffsets] = [world.failed("no answer")] * 6
    world.answers[do.FetchInputs] = [on.InputsFetched(facts(SPEC, stable=7), 0.0)]
    task, _ = world.begin()
    assert task.state.value == "stopped"

    world.run(task, on.Assigned())

    assert world.log[0].positions == at(7)


def test_outputs_that_are_not_acknowledged_are_written_again() -> None:
    """W5: no record may stand behind them."""
    world = World(SPEC)
    task, _ = world.begin()
    world.answers[do.Emit] = [on.Flushed(3, 4, None)]
    world.names()

    world.run(task, called(at(4), outputs=4))

    assert world.names()[:3] == ["Begin", "Emit", "Discard"]
    assert [type(record) for record in world.log] == [Start]


def test_a_former_worker_that_writes_behind_a_change_is_refused_by_name() -> None:
    """W7: exactly-once, a record of another strategy is never believed, also where it is newer."""
    late = attempt(SPEC, 3, strategy="at-least-once")
    decision = recover(make_spec(), late, {"in": 9}, facts(make_spec()))

    assert isinstance(decision, Refuse)
    assert "was written at-least-once; the graph says exactly-once" in decision.halt.text
    assert "cues-kafka strategy" in decision.halt.remedy


def changing(after: int, *, strategy: str, to: str = "exactly-once") -> World:
    """A tool that changes the strategy behind this record, or moves a task of the new declaration."""
    move = Move(after=after, positions=at(9), strategy=to if strategy else "")
    return World(make_spec(strategy=to, move=move))


def test_the_verb_writes_the_new_strategy_under_the_lock() -> None:
    """W7: by a transaction, whatever the strategies are."""
    world = changing(7, strategy="new")
    world.log.append(attempt(SPEC, 5, strategy="at-least-once"))

    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert effect.halt.kind == MOVED
    assert "Commit" in world.names()
    assert isinstance(world.log[-1], Attempt)
    assert (world.log[-1].strategy, world.log[-1].positions, world.log[-1].sequence) == ("exactly-once", at(9), 8)


def test_the_verb_is_refused_over_a_snapshot() -> None:
    """W7: what is announced belongs to the strategy that announced it."""
    world = changing(7, strategy="new", to="at-most-once")
    world.log.append(snapshot(make_spec(), (5,), (9,), 4))

    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert "has announced 4 steps, which exactly-once has to deliver" in effect.halt.text
    assert len(world.log) == 1


def test_another_tool_does_not_change_a_strategy() -> None:
    """A reset with the new declaration would, unnoticed."""
    world = changing(7, strategy="")
    world.log.append(attempt(SPEC, 5, strategy="at-least-once"))

    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert "`cues-kafka strategy` changes it" in effect.halt.remedy
    assert len(world.log) == 1


def test_at_least_once_the_farther_of_record_and_group_counts() -> None:
    """W7: an older record may have landed behind the newest one."""
    record = attempt(SPEC, 5, strategy="at-least-once")

    assert behind_both(record, {"in": 8}) == at(8)
    assert behind_both(record, {"in": 3}) == at(5)
    assert behind_both(record, {"in": None}) == at(5)
