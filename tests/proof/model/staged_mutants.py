"""Mutants of staged publication (T1 to T4), each caught in a staged world; see `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import staged as rules
from cues_kafka.core import task as value
from cues_kafka.core import writing
from cues_kafka.core.records import Attempt, Staged
from cues_kafka.core.staged import Announce, Turn
from cues_kafka.core.states import delivery, recovery
from cues_kafka.core.task import Task
from tests.proof.model import staging
from tests.proof.model.mutant import (
    CRASH,
    MOVE,
    NET,
    NET_AND_MOVE,
    NOTHING,
    ZOMBIE,
    Handler,
    Mutant,
    Patch,
    anywhere,
    around_world,
    fenced_slot_again,
    handler,
    reading_first,
    reports_ignored,
    suspect_trusted,
)
from tests.proof.model.staged import StagedWorld
from tests.proof.model.states import State


def _recorded(**change: Any) -> Patch:
    """Another record of a part."""
    old = writing.publication_of

    def publication(task: Task, batch: Any) -> Attempt:
        record = old(task, batch)
        assert record.staged
        return replace(record, staged=replace(record.staged, **change))

    return delivery, "publication_of", publication


def _same_query(new: Callable[[Staged, Staged], Any]) -> Patch:
    """Another decision on a batch of the same query; None: the decision as it was."""
    old = rules._same_query
    return rules, "_same_query", lambda mine, was: new(mine, was) or old(mine, was)


def _judged(new: Callable[[Any, Any], Any]) -> Patch:
    """Another newest record for the one who announces."""
    old = rules.verdict

    def verdict(role: Any, record: Any, *, settled: bool | None = None) -> Any:
        if isinstance(role, Announce) and record and record.staged:
            record = replace(record, staged=new(role.batch, record.staged))
        return old(role, record, settled=settled)

    return recovery, "verdict", verdict


def _anywhere(mine: Staged, was: Staged) -> Staged:
    """Where the batch before ended is not looked at."""
    if (was.query, was.batch) == (mine.query, mine.batch):
        return was
    rows = zip(was.extents, mine.extents, strict=True)
    return replace(was, extents=tuple(then._replace(end=now.start) for then, now in rows))


def _complete(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """What the other parts say is not looked at."""
    return old(task, replace(event, settled=True))


def _without_lead(_: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """What part 0 says is not looked at."""
    return recovery._staged(task, event.settled)


def _not_asked() -> Patch:
    old = rules.verdict
    return recovery, "verdict", lambda role, record, **_: old(role, record, settled=True)


def _last_stable() -> Patch:
    """T2 by the last stable offset."""

    def high(_: Any, _world: StagedWorld, log: tuple[int, ...]) -> int:
        opened = [i for i, entry in enumerate(log) if entry >= 0 and not entry & 1]
        return opened[0] if opened else len(log)

    return around_world("_parts_high", high, StagedWorld)


def _own_attempt(old: Any, world: StagedWorld, *asked: Any) -> Any:
    """The driver publishes what it has staged itself."""
    s, d, driver, announced = asked
    return old(world, s, d, driver, replace(world.batches.items[driver.batch], number=announced.number))


def _dropped_in_doubt(old: Any, world: StagedWorld, s: State, d: int, **why: Any) -> Any:
    """T1: files are taken away although it is not known whether they are announced."""
    driver = world.spark(s).drivers[d]
    if driver.doing == staging.ANNOUNCING:
        s = world._dropped(s, world.batches.items[driver.batch])
    return old(world, s, d, **why)


def _not_entered(old: Any, world: StagedWorld, s: State, d: int, p: int) -> Any:
    """D6 left out for all parts but the first."""
    if p == 0:
        return old(world, s, d, p)
    driver = world.spark(s).drivers[d]
    point = world.spark(s).checkpoints[driver.query]
    return world._put_driver(s, d, driver._replace(doing=staging.READY, next=point.committed))


def _any_attempt() -> Patch:
    """A part's attempt is not compared with the announced one."""
    old = rules._due
    return rules, "_due", lambda mine, was: old(mine, replace(was, attempt=mine.attempt, checksum=mine.checksum))


_ABOVE = (rules, "_due", lambda *_: Turn.GO)
_TWICE = (value, "is_published", lambda *_: False)
_HAVE_STATE_HERE = around_world("_stateless", lambda *_: True, StagedWorld)

STAGED: Final[tuple[Mutant, ...]] = (
    Mutant("attempt that names no manifest", "staged", NOTHING, (_recorded(attempt="", checksum=b""),)),
    Mutant(
        "older driver's snapshot accepted",
        "staged-restored",
        MOVE,
        (_same_query(lambda mine, was: Turn.SNAPSHOT if was.batch > mine.batch else None),),
        progress=False,
    ),
    Mutant("staged part published above a newer record", "staged", ZOMBIE, (_ABOVE,)),
    Mutant("staged parts without a publication number", "staged", NOTHING, (_recorded(number=-1),)),
    Mutant(
        "a second attempt of one batch announced",
        "staged",
        CRASH,
        (_same_query(lambda mine, was: Turn.SNAPSHOT if was.batch == mine.batch else None),),
    ),
    Mutant(
        "driver publishes its own attempt", "staged", CRASH, (around_world("_publishing", _own_attempt, StagedWorld),)
    ),
    Mutant(
        "driver publishes its own attempt, which is not compared",
        "staged",
        CRASH,
        (around_world("_publishing", _own_attempt, StagedWorld), _any_attempt()),
        progress=False,
    ),
    Mutant("publication repeated under an equal number", "staged", NOTHING, (_TWICE,)),
    Mutant("completeness not asked", "staged-query", MOVE, (_not_asked(),)),
    Mutant("completeness by part 0 alone", "staged-other", MOVE, (handler("parts_read", _complete),), progress=False),
    Mutant("completeness without part 0", "staged-query", MOVE, (handler("parts_read", _without_lead),)),
    Mutant("parts read up to the last stable offset", "staged-other", MOVE, (_last_stable(),), progress=False),
    Mutant("another query's batch that begins elsewhere", "staged-query", MOVE, (_judged(_anywhere),)),
    Mutant("query with state over another one's batch", "staged-state", MOVE, (_HAVE_STATE_HERE,)),
    Mutant(
        "a batch that was announced with another extent",
        "staged-restored",
        MOVE,
        (_judged(lambda mine, was: replace(was, extents=mine.extents) if was.batch == mine.batch else was),),
        progress=False,
    ),
    Mutant("staged: init after reading", "staged", CRASH, (reading_first(),)),
    Mutant(
        "staged: init after reading, without P6a", "staged", ZOMBIE, (reading_first(flushed=anywhere),), progress=False
    ),
    Mutant("staged: no P6a", "staged", NET, (handler("flushed", anywhere),)),
    Mutant("staged: delivery reports not counted", "staged", NET, (reports_ignored(place=False),)),
    Mutant("staged: fenced slot takes the id again", "staged", ZOMBIE, (fenced_slot_again(),)),
    Mutant("fenced part taken for published", "staged", ZOMBIE, (around_world("_seen", lambda *_: True, StagedWorld),)),
    Mutant(
        "files taken away while their announcement is in doubt",
        "staged-one",
        NET_AND_MOVE,
        (around_world("_failing", _dropped_in_doubt, StagedWorld),),
    ),
)

COVERED_STAGED: Final[tuple[tuple[Mutant, str], ...]] = (
    (
        Mutant("staged: suspect commit trusted", "staged", NET, (suspect_trusted(),)),
        "one transaction in each session",
    ),
    (
        Mutant(
            "state of another query not asked for when a query starts",
            "staged-state",
            MOVE,
            ((rules, "_entered", lambda *_: Turn.GO),),
        ),
        "asked again before anything is announced",
    ),
    (
        Mutant("parts not entered", "staged", ZOMBIE, (around_world("_entering", _not_entered, StagedWorld),)),
        "each task inits; but an orphan transaction blocks readers until then",
    ),
)
