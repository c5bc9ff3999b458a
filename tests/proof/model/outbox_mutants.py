"""Mutants of the rules of targets (E1); see `mutants`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import target
from cues_kafka.core.records import Snapshot, TargetRow
from cues_kafka.core.states import delivery, recovery
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Doing, Task
from cues_kafka.core.writing import attempt_in, attempt_of, owner_of
from tests.proof.model import cluster
from tests.proof.model.ahead import AheadWorld
from tests.proof.model.mutant import (
    CRASH,
    MOVE,
    NET,
    NET_AND_CRASH,
    NOTHING,
    ZOMBIE,
    Mutant,
    Patch,
    around_world,
    handler,
    handlers,
)
from tests.proof.model.outbox import ACTS, Batch, Contents, OutboxWorld, Published
from tests.proof.model.parts import PartsWorld
from tests.proof.model.states import Delivered, Lane, State, Step, Turn


def _world(name: str, new: Any) -> Patch:
    return around_world(name, new, OutboxWorld)


# E1 as it was written first: the row has a step number and an owner, and nothing else.

_NEVER_ASKED: Final = (recovery, "compare", lambda *_: None)


def _owner_alone() -> Patch:
    """A batch goes on where the row has some of its steps already."""
    return _world("_fits_row", lambda _old, _world, task, row: row.owner <= owner_of(task))


def _steps_by_number() -> Patch:
    """What is applied is what the row does not count yet."""

    def written(old: Any, world: OutboxWorld, *place: Any) -> Contents:
        s, p, lane, batch = place
        after: Contents = old(world, *place)
        now = world.database(s, p).now
        record = world.task(lane).record
        row = now.row or TargetRow(base=0, step=0)
        assert record
        assert after.row
        known = max(0, row.step - record.step)
        acted = tuple((step, kind) for step, kind in batch.done[known:] if kind in ACTS)
        row = replace(after.row, step=max(row.step, after.row.step))
        outbox = now.outbox[-known:] + batch.done[known:] if known else batch.done
        return after._replace(row=row, outbox=outbox, applied=now.applied + acted)

    return _world("_written", written)


def _known_steps(kinds: Any) -> Patch:
    """Steps whose numbers the row has are not called; `kinds` says how they end, by what the target has."""

    def results(old: Any, world: OutboxWorld, turn: Turn, steps: tuple[Step, ...]) -> Iterator[tuple[Delivered, str]]:
        now, record = world.database(turn.s, turn.p).now, world.task(turn.lane).record
        assert record
        count = max(0, now.row.step - record.step) if now.row else 0
        known = tuple(zip(steps, kinds(now, count), strict=False))
        for done, halt in old(world, turn, steps[len(known) :]):
            yield known + done, halt

    return _world("_results", results)


def _lost(_: Contents, count: int) -> str:
    """No process knows how they ended: neither outputs nor an error come of them."""
    return "n" * count


def _by_number(now: Contents, count: int) -> str:
    """The outbox has the outcomes of that many steps."""
    return "".join(kind for _, kind in now.outbox)[-count:] if count else ""


_E1_FIRST: Final = (_NEVER_ASKED, _owner_alone(), _steps_by_number())


# The rules as they are.


def _waited_for() -> Patch:
    """I5: who holds the row is not ended."""
    return _world("_waits", lambda _old, world, turn: bool(world._holder(turn.s, turn.p, turn.w)))


def _unlocked() -> Patch:
    return _world("_holder", lambda *_: "")


def _step_not_compared() -> Patch:
    return _owner_alone()


def _owner_not_compared() -> Patch:
    return _world("_fits_row", lambda _old, _world, task, row: row.step == task.record.step)


def _without_fence() -> Patch:
    return _world("_fenced", lambda _old, _world, s, _p, _ask: s)


def _asked_beside_a_commit() -> Patch:
    """The row is read without its lock."""
    return _world("_waits_to_ask", lambda *_: False)


def _own_snapshot_trusted() -> Patch:
    """A task goes on under its own snapshot, with the owner of before."""
    old = recovery._retry

    def retry(task: Task, record: Snapshot, starts: int) -> Task:
        after = old(task, record, starts)
        mine = record.writer.incarnation == task.spec.writer.incarnation and not record.left
        return replace(after, first=False, owner=record.owner) if mine and after.due else after

    return recovery, "_retry", retry


def _quarantine_first() -> Patch:
    """Q3 before the target is asked."""

    def asked(old: Any, task: Task, event: Any) -> Any:
        after, effect = recovery._decided(task)
        return (after, effect) if after.quarantined else old(task, event)

    return handler("target_asked", asked)


def _first_forgotten() -> Patch:
    """S1 left out, as a slot of Spark does it without a target (D3)."""

    def assigned(old: Any, task: Task, event: Any) -> Any:
        after, effect = old(task, event)
        return replace(after, first=False), effect

    return handler("assigned", assigned)


def _quarantine_without_snapshot() -> Patch:
    """What is taken out goes to the target before this start has a record of its own."""

    def polled(old: Any, task: Task, event: Any) -> Any:
        if task.due and (again := delivery._polled_again(task, task.due, event)).quarantined and again.due:
            return go.called_for(replace(again, first=False), again.due)
        return old(task, event)

    return handler("polled", polled)


def _where_it_is_quarantined() -> Patch:
    """Begin with the first calm state in which a message is to be taken out: it is too far away for a search."""

    def first(old: Any, world: OutboxWorld) -> State:
        state: State = old(world)
        while not any(_takes_out(world, lane) for lane in world.worker(state, 0).lanes):
            state = next(after for (who, _), calm, after in world.moves(state) if calm and who != "operator")
        return state

    return _world("first", first)


def _takes_out(world: OutboxWorld, lane: Lane | None) -> bool:
    return lane is not None and lane.effect >= 0 and isinstance(world.machine.effects.items[lane.effect], do.Quarantine)


_QUARANTINE_AT_ONCE: Final = (cluster, "QUARANTINE_AFTER", 0)
"""One death is enough, so that the search is short."""


def _passes_by(kinds: str) -> Patch:
    """Batches whose steps all ended so do not move the row."""
    return _world("_goes_through", lambda _old, _world, done: not all(kind in kinds for _, kind in done))


def _named_when_called() -> Patch:
    """O8: the outbox keeps the provenance header as it was made for the first attempt."""
    return _world("_named", lambda _old, _world, task: task.next_sequence)


def _changelog_forgotten() -> Patch:
    """The outbox has outputs and errors only."""

    def value(old: Any, world: OutboxWorld, p: int, lane: Any) -> Any:
        return lane.store.value if isinstance(lane.own, Published) else old(world, p, lane)

    return _world("_value", value)


def _record_from_memory() -> Patch:
    """After a commit without an answer the record is not read again, so the row seems to be ahead of it still."""

    def failed(old: Any, task: Task, event: Any) -> Any:
        after, effect = old(task, event)
        return replace(after, record=task.record if task.state is Doing.COMMITTING else None), effect

    def newest(old: Any, task: Task, event: Any) -> Any:
        return old(task, replace(event, record=task.record or event.record))

    return handlers(failed=failed, newest_read=newest)


def _up_to_the_snapshot() -> Patch:
    """What is published reaches up to where the snapshot said, not to where the row says."""

    def attempt(task: Task, row: TargetRow) -> Any:
        record = task.record
        return attempt_in(task, replace(row, ends=record.ends) if isinstance(record, Snapshot) else row)

    return recovery, "attempt_in", attempt


def _tool_asks_nothing() -> Patch:
    """X2: a tool moves a task as if it had no target."""

    def fetched(old: Any, task: Task, event: Any) -> Any:
        if not task.spec.move:
            return old(task, event)
        return recovery._decided(replace(task, inputs=tuple(event.inputs.items()), recovered_at_s=event.at_s))

    return handler("inputs_fetched", fetched)


def _behind_accepted() -> Patch:
    """A row that lost commits is taken for one that has nothing new."""
    old = target.compare

    def compare(spec: Any, record: Any, row: TargetRow | None) -> Any:
        behind = record is not None and (row.step if row else 0) < record.step
        return None if behind else old(spec, record, row)

    return recovery, "compare", compare


def _failed_acts() -> Patch:
    return _world("_acts", lambda _old, _world, kind: kind in {*ACTS, "e"})


def _choice_forgotten() -> Patch:
    return recovery, "attempt_in", lambda task, row: attempt_of(task, row.ends, row.batch)


# Calls ahead of Kafka's commit.


def _commit_not_awaited() -> Patch:
    """The database commits what was called ahead as soon as it is called."""
    return around_world("_commits", lambda *_: True, AheadWorld)


def _row_made_early() -> Patch:
    """The row of what was called ahead begins where the record stood when it was called."""

    def written(old: Any, world: AheadWorld, *place: Any) -> Contents:
        s, p, _, batch = place
        after: Contents = old(world, *place)
        before = world.database(s, p).now.row
        if not batch.ahead or before is None or after.row is None:
            return after
        return after._replace(row=replace(after.row, base=before.base, step=before.base + len(batch.done)))

    return around_world("_written", written, AheadWorld)


def _ahead_not_locked() -> Patch:
    """What is called ahead neither locks the row nor holds it."""

    def holder(old: Any, world: AheadWorld, s: State, p: int, w: int) -> str:
        name = str(old(world, s, p, w))
        lanes = [worker.lanes[p] for worker in world.workers(s)]
        return (
            "" if any(lane is not None and isinstance(lane.own, Batch) and lane.own.ahead for lane in lanes) else name
        )

    return around_world("_holder", holder, AheadWorld)


# Batches that are committed in parts.


def _attempt_not_claimed() -> Patch:
    """A recovery that finds the row one attempt ahead leaves it to its owner."""

    def fenced(old: Any, world: OutboxWorld, s: State, p: int, ask: do.AskTarget) -> State:
        claimed: State = old(world, s, p, ask)
        return claimed if world._row(s, p).step == ask.step else s

    return _world("_fenced", fenced)


def _part_by_itself() -> Patch:
    """The row of a part begins where the part before it ended."""

    def written(old: Any, world: PartsWorld, *place: Any) -> Contents:
        s, p, _, batch = place
        after: Contents = old(world, *place)
        before = world.database(s, p).now.row
        if not batch.kept or before is None or after.row is None:
            return after
        return after._replace(row=replace(after.row, base=before.step), outbox=batch.done[batch.kept :])

    return around_world("_written", written, PartsWorld)


def _part_not_compared() -> Patch:
    """The next part begins on whatever the target holds."""
    return around_world("_fits_part", lambda *_: True, PartsWorld)


def _kept_part_forgotten() -> Patch:
    """Kafka's transaction has the steps behind the first part alone."""

    def told(old: Any, world: PartsWorld, turn: Turn, ends: Any, done: Delivered) -> State:
        return old(world, turn, ends, done[-1:])  # type: ignore[no-any-return]

    return around_world("_told", told, PartsWorld)


OUTBOX: Final[tuple[Mutant, ...]] = (
    Mutant(
        "a target that is an attempt ahead is asked without a fence",
        "outbox-parts",
        ZOMBIE,
        (_attempt_not_claimed(),),
    ),
    Mutant("the row of a part begins at the part before it", "outbox-parts", CRASH, (_part_by_itself(),)),
    Mutant("the next part does not compare the row", "outbox-parts", ZOMBIE, (_part_not_compared(),)),
    Mutant("Kafka gets the last part of a batch alone", "outbox-parts", NOTHING, (_kept_part_forgotten(),)),
    Mutant(
        "E1 as first written, with step number and owner alone: what the target has is skipped, its outcome is lost",
        "outbox",
        CRASH,
        (*_E1_FIRST, _known_steps(_lost)),
        progress=False,
    ),
    Mutant(
        "E1 as first written, with step number and owner alone: what the target has is called again for its outcome",
        "outbox",
        CRASH,
        _E1_FIRST,
        progress=False,
    ),
    Mutant(
        "an outcome in the outbox is matched by its step number alone",
        "outbox-compacted",
        CRASH,
        (*_E1_FIRST, _known_steps(_by_number)),
        progress=False,
    ),
    Mutant("quarantine before the target is asked", "outbox", CRASH, (_quarantine_first(), _QUARANTINE_AT_ONCE)),
    Mutant(
        "quarantine before the target is asked, and not compared with its row",
        "outbox",
        CRASH,
        (_quarantine_first(), _step_not_compared(), _QUARANTINE_AT_ONCE),
        progress=False,
    ),
    Mutant("steps that fail do not move the target's row", "outbox", NOTHING, (_passes_by("e"),), progress=False),
    Mutant("a quarantined step does not move the target's row", "outbox-kill", NOTHING, (_passes_by("q"),)),
    Mutant("the lock of a row is waited for without end", "outbox", CRASH, (_waited_for(),)),
    Mutant("the target's row is not locked", "outbox", ZOMBIE, (_unlocked(),), progress=False),
    Mutant("a batch does not compare the row's step", "outbox-restored", MOVE, (_step_not_compared(),)),
    Mutant(
        "a batch does not compare the row's owner", "outbox-moved", NOTHING, (_owner_not_compared(),), progress=False
    ),
    Mutant("the target is asked without a fence", "outbox-moved", NOTHING, (_without_fence(),), progress=False),
    Mutant(
        "the target is asked beside a commit that is under way",
        "outbox-compacted",
        NET,
        (_asked_beside_a_commit(),),
        progress=False,
    ),
    Mutant("with a target a task goes on under its own snapshot", "outbox-moved", NOTHING, (_own_snapshot_trusted(),)),
    Mutant(
        "with a target the first batch of a start has no snapshot",
        "outbox-moved",
        NOTHING,
        (_first_forgotten(),),
        progress=False,
    ),
    Mutant(
        "a quarantine goes to the target before the start has a record of its own",
        "outbox-moved-kill",
        NOTHING,
        (_quarantine_without_snapshot(), _where_it_is_quarantined()),
        progress=False,
    ),
    Mutant(
        "provenance in the outbox names the attempt that was made first",
        "outbox",
        MOVE,
        (_named_when_called(),),
        progress=False,
    ),
    Mutant(
        "changes of a store are not in the outbox", "outbox-store", CRASH, (_changelog_forgotten(),), progress=False
    ),
    Mutant(
        "what a target is ahead with is published twice", "outbox-retry", NET, (_record_from_memory(),), progress=False
    ),
    Mutant(
        "what a target is ahead with is published up to the snapshot's ends",
        "outbox-retry",
        NET_AND_CRASH,
        (_up_to_the_snapshot(),),
        progress=False,
    ),
    Mutant(
        "a tool moves a task without asking its target",
        "outbox-moved",
        NOTHING,
        (_tool_asks_nothing(),),
        progress=False,
    ),
    Mutant("a target that lost commits is accepted", "outbox-restored", MOVE, (_behind_accepted(),)),
    Mutant("what a failed step wrote into the target is kept", "outbox-restored", NOTHING, (_failed_acts(),)),
    Mutant(
        "a target commits what is called ahead before Kafka's commit is known",
        "outbox-ahead-kill",
        NET,
        (_commit_not_awaited(),),
    ),
    Mutant(
        "the row of what is called ahead begins at the record before the commit",
        "outbox-ahead-kill",
        CRASH,
        (_row_made_early(),),
    ),
    Mutant(
        "what is called ahead does not hold the row", "outbox-ahead", ZOMBIE, (_ahead_not_locked(),), progress=False
    ),
)

COVERED_OUTBOX: Final[tuple[tuple[Mutant, str], ...]] = (
    (
        Mutant("the target's row has no choice", "outbox-alts", NET, (_choice_forgotten(),)),
        "each batch of alts has a snapshot (S2), which tells the same",
    ),
)
