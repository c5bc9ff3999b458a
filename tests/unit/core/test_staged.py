"""T2, T3: what a slot of a staged processor may do, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Record, Snapshot, Staged, Totals
from cues_kafka.core.staged import RESET, Announce, Enter, Publish, Role, Turn, is_published, verdict
from cues_kafka.core.task import Doing, Task
from tests.unit.core.world import (
    OTHER_QUERY,
    QUERY,
    RECREATED,
    World,
    announced,
    attempt,
    made,
    make_spec,
    published,
    staged,
)

SPEC = make_spec((), slot=True)
NEXT = staged(-1, batch=4, attempt="mine")
"""A batch behind the one of `staged()`, as its driver prepared it."""


def announce(batch: Any = NEXT, *, stateless: bool = False, settled: int = -1) -> Announce:
    """The role of a driver."""
    return Announce(batch, stateless, settled)


OF_ANOTHER = replace(NEXT, query=OTHER_QUERY, batch=0)


def named(batch: Staged, ids: str) -> Staged:
    """With a source that has topics of these ids."""
    return replace(batch, extents=(batch.extents[0]._replace(topic_id=ids.encode()),))


FROM_ZERO = (staged().extents[0]._replace(start="0"),)

ANYWHERE = published(SPEC, staged(6, batch=RESET, attempt="", extents=()))
"""What `reset --to earliest` leaves behind publication 5."""

AT_40 = published(
    SPEC, staged(6, batch=RESET, attempt="", extents=(OF_ANOTHER.extents[0]._replace(start="40", end="40"),))
)
"""What `reset --to latest` leaves; `OF_ANOTHER` begins there."""

GOES: list[tuple[str, Role, Record | None, bool | None, Turn]] = [
    ("enter: nothing there", Enter("", stateless=False, part=0), None, None, Turn.GO),
    ("enter: its own query", Enter(QUERY, stateless=False, part=0), announced(SPEC, staged()), None, Turn.GO),
    (
        "enter: a new checkpoint without state",
        Enter("", stateless=True, part=0),
        published(SPEC, staged()),
        None,
        Turn.GO,
    ),
    ("enter: another part", Enter("", stateless=False, part=1), published(SPEC, staged(part=1)), None, Turn.GO),
    ("announce: the first", announce(), None, None, Turn.SNAPSHOT),
    ("announce: the batch before is to be looked at", announce(), published(SPEC, staged()), None, Turn.ASK),
    ("announce: the batch before is complete", announce(), published(SPEC, staged()), True, Turn.SNAPSHOT),
    ("announce: this driver saw it complete", announce(settled=5), published(SPEC, staged()), None, Turn.SNAPSHOT),
    ("announce: it saw another one", announce(settled=4), published(SPEC, staged()), None, Turn.ASK),
    ("announce: it was announced", announce(staged(-1, attempt="mine")), announced(SPEC, staged()), None, Turn.GO),
    (
        "announce: where it began is not known",
        announce(replace(staged(-1), extents=(staged().extents[0]._replace(start=""),))),
        announced(SPEC, staged()),
        None,
        Turn.GO,
    ),
    (
        "announce: a topic more in a source of many",
        announce(named(NEXT, '{"a":"01","b":"02"}')),
        published(SPEC, named(staged(), '{"b":"02","of-old":"03"}')),
        True,
        Turn.SNAPSHOT,
    ),
    (
        "announce: a source whose topics were not known",
        announce(named(NEXT, '{"a":"01","b":"02"}')),
        published(SPEC, named(staged(), "")),
        True,
        Turn.SNAPSHOT,
    ),
    ("announce: it is published", announce(staged(-1, attempt="mine")), published(SPEC, staged()), None, Turn.GO),
    (
        "announce: another query, no state",
        announce(OF_ANOTHER, stateless=True),
        published(SPEC, staged()),
        True,
        Turn.SNAPSHOT,
    ),
    ("publish: due in part 0", Publish(staged()), announced(SPEC, staged()), None, Turn.GO),
    ("publish: done in part 0", Publish(staged()), published(SPEC, staged()), None, Turn.GO),
    ("publish: due in an empty part", Publish(staged(part=1)), None, None, Turn.GO),
    ("publish: due in another part", Publish(staged(part=1)), published(SPEC, staged(3, part=1)), None, Turn.GO),
    ("publish: done in another part", Publish(staged(part=1)), published(SPEC, staged(part=1)), None, Turn.GO),
    ("enter: a new checkpoint after a reset", Enter("", stateless=False, part=0), ANYWHERE, None, Turn.GO),
    ("enter: begun after a reset", Enter(OTHER_QUERY, stateless=False, part=0), ANYWHERE, None, Turn.GO),
    ("enter: another part after a reset", Enter(QUERY, stateless=False, part=1), ANYWHERE, None, Turn.GO),
    ("announce: is all of it reset?", announce(OF_ANOTHER), ANYWHERE, None, Turn.ASK),
    ("announce: the first after a reset", announce(OF_ANOTHER), ANYWHERE, True, Turn.SNAPSHOT),
    ("announce: where the reset said", announce(OF_ANOTHER), AT_40, True, Turn.SNAPSHOT),
    (
        "announce: after a reset, of other topics",
        announce(replace(OF_ANOTHER, extents=(NEXT.extents[0]._replace(topic_id=RECREATED),))),
        ANYWHERE,
        True,
        Turn.SNAPSHOT,
    ),
    ("publish: the first after a reset", Publish(staged(7, part=1)), ANYWHERE, None, Turn.GO),
]


@pytest.mark.parametrize(("role", "record", "settled", "turn"), [row[1:] for row in GOES], ids=[r[0] for r in GOES])
def test_what_a_slot_may_do(role: Role, record: Record | None, settled: bool | None, turn: Turn) -> None:
    """Each row is a case of T2 or T3."""
    assert verdict(role, record, settled=settled) is turn


REFUSED: list[tuple[str, Role, Record | None, bool | None, str]] = [
    ("enter: a lost checkpoint", Enter("", stateless=False, part=0), published(SPEC, staged()), None,
     "of another query"),
    ("announce: the state of another query", announce(OF_ANOTHER), published(SPEC, staged()), True, "of another query"),
    ("announce: a gap to another query", announce(replace(OF_ANOTHER, extents=staged(batch=7).extents), stateless=True),
     published(SPEC, staged()), True, "begins at in: 70"),
    ("announce: over an incomplete batch", announce(), announced(SPEC, staged()), False, "not all of its parts"),
    ("announce: an older driver", announce(staged(-1, batch=2)), published(SPEC, staged()), None,
     "is announced already"),
    ("announce: it begins elsewhere now", announce(replace(staged(-1), extents=FROM_ZERO)), published(SPEC, staged()),
     None, "was announced from in: 30, and is now from in: 0"),
    ("announce: a batch is missing", announce(staged(-1, batch=6)), published(SPEC, staged()), None, "is the newest"),
    ("announce: a restored checkpoint", announce(staged(-1, extents=(staged(batch=3).extents[0]._replace(end="39"),))),
     announced(SPEC, staged()), None, "and is now in: 39"),
    ("announce: a topic recreated", announce(replace(NEXT, extents=(NEXT.extents[0]._replace(topic_id=RECREATED),))),
     published(SPEC, staged()), True, "recreated"),
    ("announce: one of many topics was recreated", announce(named(NEXT, '{"a":"01","b":"09"}')),
     published(SPEC, named(staged(), '{"a":"01","b":"02"}')), True, "topics of ['b'] were deleted and recreated"),
    ("announce: other inputs", announce(replace(NEXT, extents=(NEXT.extents[0]._replace(source="other"),))),
     published(SPEC, staged()), True, "the query reads"),
    ("announce: other parts", announce(replace(NEXT, parts=3)), published(SPEC, staged()), True, "3 parts"),
    ("enter: a checkpoint from before a reset", Enter(QUERY, stateless=True, part=0), ANYWHERE, None, "was reset"),
    ("announce: a driver from before a reset", announce(settled=5, stateless=True), ANYWHERE, None, "was reset"),
    ("announce: its batch 0 once more", announce(staged(-1, batch=0)), ANYWHERE, None, "was reset"),
    ("announce: a driver of another query", announce(replace(OF_ANOTHER, batch=2)), ANYWHERE, None, "was reset"),
    ("announce: over half a reset", announce(OF_ANOTHER), ANYWHERE, False, "has not reached all parts"),
    ("announce: not where the reset said", announce(replace(OF_ANOTHER, extents=staged(batch=7).extents)), AT_40, True,
     "begins at in: 70"),
    ("publish: a zombie from before a reset", Publish(staged(5, part=1)), ANYWHERE, None, "was reset since"),
    ("announce: written directly before", announce(), attempt(make_spec(), 7), None, "not that of a staged"),
    ("publish: a zombie", Publish(staged(4, part=1)), published(SPEC, staged(5, part=1)), None, "batch 3 is published"),
    ("publish: a zombie in part 0", Publish(staged(4)), announced(SPEC, staged(5)), None, "batch 3 is published"),
    ("publish: another attempt", Publish(staged(attempt="x")), announced(SPEC, staged()), None, "is attempt first"),
    ("publish: other files", Publish(staged(checksum=b"x")), announced(SPEC, staged()), None, "is attempt first"),
    ("publish: no announcement", Publish(staged()), None, None, "is gone"),
    ("publish: an older announcement", Publish(staged()), published(SPEC, staged(4, batch=2)), None, "is gone"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "record", "settled", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_a_slot_refuses_with_a_remedy(role: Role, record: Record | None, settled: bool | None, text: str) -> None:
    """Going on would lose, double or mix rows."""
    found = verdict(role, record, settled=settled)
    assert isinstance(found, on.Halt)
    assert text in found.text
    assert found.remedy


def test_a_part_is_published_by_its_attempt_and_by_no_announcement() -> None:
    """Part 0 has both kinds of records."""
    assert is_published(Publish(staged()), published(SPEC, staged()))
    assert not is_published(Publish(staged()), announced(SPEC, staged()))
    assert not is_published(Publish(staged()), published(SPEC, staged(4)))
    assert not is_published(announce(), published(SPEC, staged()))


def run(role: Role, *log: Record, **answers: Any) -> tuple[World, Task, do.Effect]:
    """A slot, from its assignment on."""
    world = World(make_spec((), slot=True, staged=role), log=list(log), **answers)
    return (world, *world.begin())


def test_an_announcement_carries_its_own_sequence_as_the_publication_number() -> None:
    """T3; and the group gets what lies before it (T4)."""
    world, task, effect = run(announce(settled=5), published(SPEC, staged()))
    [sent] = [effect for effect in world.effects if isinstance(effect, do.SendOffsets)]
    assert isinstance(effect, do.Await)
    assert isinstance(task.record, Snapshot)
    assert task.record.staged == replace(NEXT, number=task.record.sequence)
    assert task.record.sequence == 7
    assert sent == do.SendOffsets((), NEXT.extents)


def test_a_driver_that_comes_second_finds_what_was_announced() -> None:
    """The first committed announcement wins: nothing is written."""
    first = announced(SPEC, staged())
    world, task, effect = run(announce(staged(-1, attempt="mine")), first)
    assert isinstance(effect, do.Await)
    assert task.record == first
    assert not any(isinstance(effect, do.Begin) for effect in world.effects)


def test_a_part_is_published_once_with_what_was_announced() -> None:
    """Part 0 keeps the announcement, which the next T2 asks for; no offsets go with it."""
    world, task, _ = run(Publish(staged(extents=())), announced(SPEC, staged()))
    assert not task.published
    task, effect = world.run(task, on.Called((), Totals(3, 2, 1, 0, 2)))
    assert isinstance(effect, do.Await)
    assert task.published
    assert isinstance(task.record, Attempt)
    assert task.record.staged == staged()
    assert task.record.totals == Totals(43, 32, 5, 6, 32, 43)
    again, told, _ = run(Publish(staged()), announced(SPEC, staged()), published(SPEC, staged()))
    assert told.published
    assert not any(isinstance(effect, do.Begin) for effect in again.effects)


def test_a_fenced_slot_stops_and_leaves_nothing_to_say() -> None:
    """D5; an announcement is no snapshot that a slot could have left (Q1)."""
    world, task, _ = run(announce(settled=5), published(SPEC, staged()))
    task, effect = world.run(task, on.Failed("fenced", 0.0, fenced=True))
    assert task.state is Doing.STOPPED
    assert isinstance(effect, do.Stop)
    task, effect = world.run(task, on.Revoked())
    assert isinstance(effect, do.Release)


def test_a_slot_of_another_kind_refuses_a_staged_record() -> None:
    """A staged processor does not move (T4)."""
    world = World(make_spec(), log=[published(make_spec(), staged())])
    _, effect = world.begin()
    assert isinstance(effect, do.Stop)
    assert "staged processor" in effect.halt.text


def test_an_incomplete_batch_is_asked_for_and_refused() -> None:
    """Every part must have it before the next batch is announced."""
    world, task, effect = run(announce(), published(SPEC, staged()), answers={do.FetchParts: [on.PartsRead(False)]})
    assert isinstance(effect, do.Stop)
    assert task.halt
    assert "not all of its parts" in task.halt.text
    [asked] = [effect for effect in world.effects if isinstance(effect, do.FetchParts)]
    assert asked == do.FetchParts(5, 2)


def test_part_zero_must_be_published_too() -> None:
    """Its newest record is the announcement itself."""
    _, task, effect = run(announce(), announced(SPEC, staged()), answers={do.FetchParts: [on.PartsRead(True)]})
    assert isinstance(effect, do.Stop)
    assert task.halt
    assert "not all of its parts" in task.halt.text


def test_a_record_of_another_application_is_refused() -> None:
    """I14, before anything else is looked at."""
    foreign = made(Attempt, SPEC, (), staged=staged(), writer=replace(SPEC.writer, transactional_id="other"))
    _, _, effect = run(announce(), foreign)
    assert isinstance(effect, do.Stop)
    assert "was written by 'other'" in effect.halt.text
