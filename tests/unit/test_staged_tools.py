"""`reset`, `accept-loss`, `verify` and progress of staged processors, on the reference broker."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, RecoveryError
from cues_kafka.core.records import Attempt, Snapshot
from cues_kafka.core.staged import RESET
from cues_kafka.ports import TopicPartition
from cues_kafka.runtime.maintenance import Maintenance, Move
from tests.unit.staged_world import GRAPH, PARTS, World


def tool(world: World) -> Maintenance:
    """As the command line uses it."""
    return Maintenance(GRAPH, world.broker, "frames", who="reset on here")


def notes(moves: list[Move]) -> str:
    """All that is said."""
    return "\n".join(note for move in moves for note in move.notes)


# Reset


def test_a_reset_takes_a_publication_number_in_every_slot() -> None:
    """Numbers, sequences and totals go on; the query of before is named; nothing is said to be at fault."""
    world = World()
    driver = world.driver()
    driver.enter()
    driver.deliver(0)
    world.send(3)
    number = driver.deliver(1).number
    before = [world.records(part)[-1] for part in range(PARTS)]

    moves = tool(world).reset()
    assert [move.spec.name for move in moves] == ["frames/0", "frames/1", "frames/2"]
    assert "a: begins anew, by partition: 0 at 0, 1 at 0; outputs of what lies behind REPEAT" in notes(moves)
    assert "the checkpoint of query first" in notes(moves)
    assert "never will be" not in notes(moves)
    tool(world).carry_out(moves)

    for part in range(PARTS):
        record = world.records(part)[-1]
        assert isinstance(record, Attempt)
        assert record.staged
        assert (record.staged.query, record.staged.batch, record.staged.extents) == ("first", RESET, ())
        assert (record.staged.number, record.staged.part, record.staged.parts) == (number + 2, part, PARTS)
        assert record.sequence == before[part].sequence + 1
        assert (record.totals, record.step) == (before[part].totals, before[part].step)
        assert (record.writer.runtime, record.writer.name) == ("tool", "reset on here")
    assert world.records(0)[-1].sequence == number + 2
    places = [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert list(world.broker.committed("g.frames", places).values()) == [0, 0]


def test_after_a_reset_a_new_query_begins_and_the_old_one_is_refused() -> None:
    """Its checkpoint, its driver that still runs, and a Spark task that still has a part in its hands."""
    world = World()
    old = world.driver()
    old.enter()
    announced = old.deliver(0)
    tool(world).carry_out(tool(world).reset())
    written = world.written("out")

    assert ["was reset" in outcome.text for outcome in old.enter()] == [True, False, False]
    outcome, _ = old.announce(1)
    assert "was reset" in outcome.text
    assert [old.publish(announced, part, [(0, b"zombie")]).kind for part in range(PARTS)] == ["refused"] * PARTS
    assert world.written("out") == written

    new = world.driver("second")
    assert not any(outcome.kind for outcome in new.enter())
    batch = new.deliver(0)
    assert batch.number > announced.number + 1
    world.send(1)
    new.deliver(1)
    assert world.written("out") == 3 * written
    assert ["older driver" in old.publish(announced, part, [(0, b"z")]).remedy for part in range(PARTS)] == [True] * 3


def test_reset_to_latest_begins_at_the_ends_of_now() -> None:
    """They are in the record of slot 0, and in the group."""
    world = World()
    world.driver().deliver(0)
    world.send(5)
    moves = tool(world).reset(to="latest")
    assert "is LOST" in notes(moves)
    tool(world).carry_out(moves)

    staged = world.records(0)[-1].staged
    assert staged
    assert [(one.source, one.start, one.end) for one in staged.extents] == [
        (name, world.offsets(name, "stable"), world.offsets(name, "stable")) for name in ("a", "b")
    ]
    assert all(not record.staged.extents for part in (1, 2) if (record := world.records(part)[-1]) and record.staged)
    world.send(1)
    world.driver("second").deliver(0)
    assert tool(world).reset() != []


def test_a_reset_gives_up_a_batch_that_cannot_be_published() -> None:
    """Its files are gone, so it is announced for ever: that is said."""
    world = World()
    driver = world.driver()
    driver.deliver(0)
    world.send(1)
    _, announced = driver.announce(1)
    assert announced
    driver.publish(announced, 1, [(0, b"row")])
    moves = tool(world).reset()
    assert "batch 1 is announced, but its parts 0, 2 are not published, and never will be" in notes(moves)
    assert isinstance(world.records(0)[-1], Snapshot)
    tool(world).carry_out(moves)

    assert not world.driver("second").announce(0)[0].kind


def test_half_a_reset_lets_nobody_begin_and_is_made_whole() -> None:
    """The tool died behind slot 0."""
    world = World()
    world.driver().deliver(0)
    tool(world).carry_out(tool(world).reset()[:1])
    outcome, _ = world.driver("second").announce(0)
    assert "has not reached all parts" in outcome.text
    assert "again" in outcome.remedy

    tool(world).carry_out(tool(world).reset())
    assert tool(world).reset() == []
    world.driver("second").deliver(0)


def test_a_reset_goes_on_above_every_number_that_a_slot_has() -> None:
    """Slot 0 lost its records, the others did not; a number of before would be taken for done."""
    world = World()
    for batch in range(3):
        world.driver().deliver(batch)
        world.send(1)
    number = world.records(1)[-1].staged
    assert number
    world.broker.trim({TopicPartition("g.frames.backing", 0): -1})
    tool(world).carry_out(tool(world).reset())

    assert world.records(0)[-1].sequence == number.number + 1
    assert world.driver("second").deliver(0).number > number.number


def test_what_is_published_between_the_look_and_the_act_is_noticed() -> None:
    """What was said would not be what happens."""
    world = World()
    world.driver().deliver(0)
    moves = tool(world).reset()
    world.send(1)
    world.driver().deliver(1)

    with pytest.raises(RecoveryError, match="has moved since"):
        tool(world).carry_out(moves)


def test_an_open_transaction_shows_a_query_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no member of the group; the slot is named."""
    monkeypatch.setattr("cues_kafka.runtime.maintenance.PATIENCE_S", 0.2)
    world = World()
    world.driver().deliver(0)
    moves = tool(world).reset()
    session = world.broker.session("g.frames.1")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("g.frames.backing", 1, b"t", b"x", [], 0)])
    session.flush()

    for act in (lambda: tool(world).reset(), lambda: tool(world).carry_out(moves)):
        with pytest.raises(RecoveryError, match="frames/1: a transaction is open"):
            act()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda tool: tool.accept_loss(), "written staged: where it goes on is in the checkpoint"),
        (lambda tool: tool.reset(partition=1), "begins anew as a whole"),
    ],
)
def test_what_means_nothing_for_a_staged_processor_is_refused_with_the_reason(act: Any, words: str) -> None:
    """And with what to do instead."""
    world = World()
    world.driver().deliver(0)

    with pytest.raises(ConfigError, match=words):
        act(tool(world))


def test_a_processor_that_never_ran_has_nothing_to_reset() -> None:
    """Its topics are there, no record is."""
    with pytest.raises(ConfigError, match="never started"):
        tool(World())
