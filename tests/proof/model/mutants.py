"""Mutants: one rule taken out of the core or the world at a time, each of which the explorer must catch.

A rule that another one covers for goes together with it: such a mutant names both, and `COVERED` lists what survives
alone and why. What has no subject here is listed in `NO_SUBJECT` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import hashing, moves, turns, writing
from cues_kafka.core import recover as rules
from cues_kafka.core import task as value
from cues_kafka.core.events import Halt
from cues_kafka.core.records import Attempt, Snapshot, Totals
from cues_kafka.core.recover import Delivered, Pending
from cues_kafka.core.states import delivery, recovery
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.ports.log import Coordinates
from tests.proof.model import lanes as around
from tests.proof.model import states
from tests.proof.model.bridge_mutants import BRIDGES, COVERED_BRIDGES
from tests.proof.model.feed_mutants import FEEDS
from tests.proof.model.machine import offsets_of
from tests.proof.model.marker_mutants import MARKERS
from tests.proof.model.migrating_mutants import DROPS, MIGRATIONS
from tests.proof.model.mutant import (
    CRASH,
    CRASHES,
    MOVE,
    MOVES,
    NET,
    NET_AND_CRASH,
    NET_AND_MOVE,
    NOTHING,
    ZOMBIE,
    ZOMBIE_AND_CRASH,
    Handler,
    Mutant,
    Patch,
    anywhere,
    around_world,
    fenced_slot_again,
    handler,
    handlers,
    reading_first,
    reports_ignored,
    suspect_trusted,
)
from tests.proof.model.outbox_mutants import COVERED_OUTBOX, OUTBOX
from tests.proof.model.renaming_mutants import COVERED_RENAMES, RENAMES
from tests.proof.model.replay_mutants import COVERED_REPLAYS, REPLAYS
from tests.proof.model.shell_mutants import HANDLERS, TABLES
from tests.proof.model.staged_mutants import COVERED_STAGED, STAGED
from tests.proof.model.states import ONGOING, Turn
from tests.proof.model.strategy_mutants import STRATEGIES
from tests.proof.model.tail_mutants import TAILS
from tests.proof.model.timer_mutants import COVERED_TIMERS, TIMERS
from tests.proof.model.world import World

# The core's rules.


def _unrecorded(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """A first position that is only remembered; sequences begin with the next record, as if this had been none."""
    after, _ = old(task, event)
    assert after.pending
    record = replace(after.pending, sequence=-1)
    return replace(after, state=Doing.ASSIGNING, pending=None, record=record), do.AssignReader(record.positions)


def _after_failed_commit(new: Callable[[Task], tuple[Task, do.Effect]]) -> Patch:
    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        doubtful = task.state is Doing.COMMITTING and not event.fenced and task.record
        return new(task) if doubtful else old(task, event)

    return handler("failed", failed)


def _taken_for_abort(task: Task) -> tuple[Task, do.Effect]:
    """Take a commit without an answer for an abort, and go on with the same session."""
    return replace(task, state=Doing.READY, pending=None), do.Await()


def _went_well(task: Task) -> tuple[Task, do.Effect]:
    """Take it for a commit."""
    return replace(task, state=Doing.READY, record=task.pending, pending=None, due=None, first=False), do.Await()


def _from_memory() -> Patch:
    """R6: after a failed commit the client believes its own record, whatever the log says."""

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        after, effect = old(task, event)
        believed = task.pending if task.state is Doing.COMMITTING else task.record
        return replace(after, record=believed), effect

    def newest(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        return old(task, replace(event, record=task.record or event.record))

    return handlers(failed=failed, newest_read=newest)


def _repeated(task: Task) -> tuple[Task, do.Effect]:
    """Ask again for the end of the transaction, in the same epoch."""
    return task, do.Commit()


def _blocked_waits() -> Patch:
    """No return to R1 when reading is blocked."""
    effects: dict[Doing, do.Effect] = {Doing.FETCHING_OFFSETS: do.FetchOffsets()}

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if event.text in ("blocked", "unstable"):
            return task, effects.get(task.state, do.ReadNewest(task.expected))
        return old(task, event)

    return handler("failed", failed)


def _session_kept() -> Patch:
    """P8 without a new session: a failure leads back to reading."""

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        after, effect = old(task, event)
        if not isinstance(effect, do.Discard) or event.fenced:
            return after, effect
        return replace(after, state=Doing.FETCHING_OFFSETS), do.FetchOffsets()

    return handler("failed", failed)


def _snapshot_sends(positions: Callable[[Snapshot], Any]) -> Patch:
    """The offsets of a snapshot's transaction."""

    def produced(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if not isinstance(task.pending, Snapshot):
            return old(task, event)
        sent = positions(task.pending)
        if sent is None:
            return replace(task, state=Doing.FLUSHING), do.Flush()
        return replace(task, state=Doing.SENDING_OFFSETS), do.SendOffsets(sent)

    return handler("produced", produced)


def _record(change: Callable[[Any, Task], Any]) -> Patch:
    """Change the records of attempts."""
    old = delivery._attempt  # mutants take rules out of the inside
    return delivery, "_attempt", lambda task, *delivered: change(old(task, *delivered), task)


def _polled_record(change: Callable[[Any, Task], Any]) -> Patch:
    """Change the snapshots of batches."""

    def polled(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        after, effect = old(task, event)
        return replace(after, pending=change(after.pending, task)) if after.pending else after, effect

    return handler("polled", polled)


def _decided(new: Callable[..., Any]) -> Patch:
    """Change what R5 decides."""
    old = rules.recover
    return recovery, "recover", lambda *args: new(old(*args), *args)


def _by_offsets(decision: Any, *asked: Any) -> Any:
    """The group's offsets decide, the record only lends its numbers."""
    _, record, offsets, _ = asked
    if record is None or not isinstance(decision, Pending | Delivered):
        return decision
    places = tuple(p._replace(offset=offsets[p.binding] or 0) for p in record.positions)
    return Delivered(replace(record, positions=places))


def _range_skipped(decision: Any, *_: Any) -> Any:
    """A snapshot taken for an attempt."""
    if not isinstance(decision, Pending):
        return decision
    return Delivered(replace(decision.record, positions=decision.record.ends))


def _without_left() -> Patch:
    def revoked(_: Handler, task: Task, _event: Any) -> tuple[Task, do.Effect]:
        return go.release(task)

    return handler("revoked", revoked)


def _left_in_place() -> Patch:
    """`left` under the sequence of its snapshot."""
    old = go.transact

    def transact(task: Task, record: Any, then: Doing) -> tuple[Task, do.Effect]:
        return old(task, replace(record, sequence=record.sequence - record.left), then)

    return go, "transact", transact


def _first_forgotten(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    return old(task, replace(event, first=False))


def _forgotten(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """P7 without taking over the new record."""
    after, effect = old(task, event)
    return replace(after, record=task.record or after.record), effect


_QUARANTINE_EARLY = (Task, "quarantined", property(lambda task: bool(task.due and task.due.starts > 1)))
_QUARANTINE_WIDE = (
    Task,
    "quarantined",
    property(lambda task: bool(task.due and task.due.starts > (task.spec.quarantine_after or 0))),
)
_NO_QUARANTINE = (Task, "quarantined", property(lambda _: False))


# The world's rules.


def _without_generation() -> Patch:
    return around_world("_is_member", lambda *_: True)


def _without_epoch() -> Patch:
    return around_world("_current", lambda _old, _world, *place: place[-1].session)


def _last_stable() -> Patch:
    """R3 by the last stable offset."""

    def watermark(_: Any, _world: World, log: tuple[int, ...]) -> int:
        opened = [i for i, entry in enumerate(log) if entry >= 0 and not entry & 1]
        return opened[0] if opened else len(log)

    return around_world("_watermark", watermark)


def _unstable_read() -> Patch:
    """R2 without `require_stable`."""
    return around_world("_require_stable", lambda *_: False)


def _fresh_id() -> Patch:
    """An id of its own for each session: init ends nothing that another one left open."""

    def init(old: Any, world: World, turn: Turn, effect: do.Init) -> None:
        s, w, p, lane, owner, out = turn
        if world.part(s, p).phase != ONGOING:
            old(world, turn, effect)
            return
        told = world._tell(s, w, p, lane._replace(session=True), "initialised")
        out.append(((f"w{w}/p{p}", "init under another id"), owner, told))

    return around_world("_init", init)


def _mark_of_the_batch_before() -> Patch:
    """R4b: the record does not name what its transaction writes."""
    return writing, "_kept", lambda _task, newest, _batch: newest.stores


def _marks_forgotten() -> Patch:
    """R4b: a snapshot does not carry the marks on."""
    return writing, "_CARRIED", tuple(name for name in writing._CARRIED if name != "stores")


def _end_believed() -> Patch:
    """R4b: the changelog's end is not compared with the record."""
    return around_world("_fits", lambda *_: True)


def _changes_kept(kinds: str) -> Patch:
    """Steps that end as one of these keep their changes, the others do not."""
    return around_world("_keeps", lambda _old, _world, kind: kind in kinds)


def _overlay_kept() -> Patch:
    """P8: what a void batch has changed stays in the process."""

    def failed(old: Any, world: World, *given: Any, **more: Any) -> Any:
        s, w, p, lane, *rest = given
        held = lane.store._replace(value=world._value(p, lane)) if lane.carried else lane.store
        return old(world, s, w, p, lane._replace(store=held), *rest, **more)

    return around_world("_failed", failed)


def _acknowledged_early() -> Patch:
    """A revocation is acknowledged while the task goes on."""

    def rebalancing(old: Any, world: World, s: Any, out: Any) -> None:
        group = world.group(s)
        for p, owner in enumerate(group.owners):
            if owner >= 0 and group.revoking[p]:
                after = world._put_group(s, states.unowned(group, p))
                out.append(((f"w{owner}", f"acknowledges at once that p{p} is revoked"), True, after))
                return
        old(world, s, out)

    return around_world("_rebalancing", rebalancing)


def _unverified() -> tuple[Patch, Patch]:
    """A broker that takes late records outside of any transaction (before 3.7)."""

    def arrived(old: Any, world: World, *late: Any) -> Any:
        s, kind, p, message = late
        part = world.part(s, p)
        if kind == "record" and part.phase != ONGOING:
            return world._put_part(s, p, part._replace(log=(*part.log, message[2] << 1)))
        return old(world, *late)

    def taken(old: Any, world: World, s: Any, p: int, w: int) -> Any:
        late = tuple(m for m in world.net(s) if m[0] == "record" and m[1] == p)
        after = old(world, s, p, w)
        kept = tuple(m for m in world.net(after) if m[0] != "record" or m[1] != p)
        return world._put_net(after, tuple(sorted((*kept, *late))))

    return around_world("_arrived", arrived), around_world("_taken", taken)


def _attempt_outside() -> Patch:
    """The record of an attempt is visible as soon as it lands."""

    def entry(old: Any, world: World, number: int) -> int:
        first: int = old(world, number)
        return first | (not isinstance(world.machine.record(number), Snapshot))

    return around_world("_entry", entry)


def _all_positions(_: Any, world: World, task: Task, _step: Any) -> Any:
    """The hash over everything that the task knows, not over what it consumes."""
    ids = world.machine.facts.ids
    rows = zip(world.bindings, ids, offsets_of(task.positions), strict=True)
    return [Coordinates(binding, id_, task.spec.partition, offset) for binding, id_, offset in rows]


def _choose_anew(decision: Any, *_: Any) -> Any:
    """A retry of alts that takes whatever comes first."""
    return Delivered(replace(decision.record, choice=())) if isinstance(decision, Pending) else decision


def _effects_unguarded(_: Any, world: World, *place: Any) -> Any:
    """E1 without the comparison of step numbers."""
    s, p, _, steps = place
    if not world.setting.effects or not steps:
        return s
    part = world.part(s, p)
    number, owner, applied_ = part.ledger
    return world._put_part(s, p, part._replace(ledger=(number + len(steps), owner, (*applied_, *steps))))


_NO_CHOICE_SNAPSHOT = (Task, "snapshot_due", property(lambda task: task.first or task.due is not None))
_MISSING_STEP: Final = (
    (around, "counts", lambda kinds, old=states.counts: old(kinds.replace("e", ""))),
    (states, "RECORDS", {**states.RECORDS, "e": 0}),
)
_ERROR_TOO: Final = (around, "MEANS", {**states.MEANS, "e": [("x", "")]})
_FORGOTTEN = (delivery, "_attempt", lambda *args, old=delivery._attempt: replace(old(*args), choice=()))
_OFFSETS_TRUSTED = (rules, "_other_offsets", lambda *_: None)
_EMPTY_TRUSTED = (rules, "_without_record", lambda *_: rules.Fresh())


_SETTLED = Task.settled.fget  # type: ignore[attr-defined]


def _released_at_the_call() -> Patch:
    """Q2a: others go on as soon as the snapshot is committed."""
    return Task, "settled", property(lambda task: task.state is Doing.CALLING or _SETTLED(task))


def _released_before_the_commit() -> Patch:
    """Q2a: others go on while the attempt is being committed."""
    return Task, "settled", property(lambda task: isinstance(task.pending, Attempt) or _SETTLED(task))


def _released_by_a_failure() -> Patch:
    """Q2a: others go on while the task recovers under its own snapshot."""
    return Task, "settled", property(lambda task: task.state is Doing.DISCARDING or _SETTLED(task))


def _calls_go_on() -> tuple[Patch, Patch]:
    """Q2a for those who poll under a snapshot only, not for user code that needs none or has its snapshot already."""

    def awaiting(old: Any, world: World, turn: Turn, effect: Any) -> None:
        if not world.task(turn.lane).snapshot_due:
            with_nobody = world._put_worker(turn.s, turn.w, _nobody_alone(world.worker(turn.s, turn.w)))
            turn = turn._replace(s=with_nobody)
        old(world, turn, effect)

    def call(_: Any, world: World, turn: Turn, called: do.Call) -> None:
        world._run(turn, world._due(world.task(turn.lane), called.steps, called.choice))

    return around_world("_await", awaiting), around_world("_call", call)


def _nobody_alone(worker: states.Worker) -> states.Worker:
    return worker._replace(lanes=tuple(lane and lane._replace(alone=False) for lane in worker.lanes))


def _always_died(_: Any, record: Any) -> bool:
    """P8 counted as a death."""
    return not record.left


# Alts that take turns, and inputs that are compacted.


def _greedy() -> Patch:
    def shares(waiting: Sequence[int], limit: int, turn: int) -> tuple[tuple[tuple[int, int], ...], int]:
        first = next((index for index, count in enumerate(waiting) if count), None)
        return ((), turn) if first is None else (((first, min(limit, waiting[first])),), turn)

    return turns, "shares", shares


def _turn_forgotten() -> Patch:
    old = turns.shares
    return turns, "shares", lambda waiting, limit, _: old(waiting, limit, 0)


def _deaths_kept() -> Patch:
    old = delivery._polled_again

    def again(task: Task, due: Due, event: Any) -> Task:
        after = old(task, due, event)
        assert after.due
        return replace(after, due=replace(after.due, starts=due.starts))

    return delivery, "_polled_again", again


def _all_demanded() -> Patch:
    old = delivery._polled_again

    def again(task: Task, due: Due, event: Any) -> Task:
        return old(replace(task, spec=replace(task.spec, compacted=False)), due, event)

    return delivery, "_polled_again", again


def _nothing_left() -> Patch:
    return handler("idle", lambda old, task, event: (task, do.Await()) if task.due else old(task, event))


# The order of bindings.


def _plan_as_declared(spec: Any, inputs: Any) -> bytes:
    """O7: the fingerprint takes the bindings in the order of declaration."""
    ids = b"".join(inputs[i.binding].topic_id for i in spec.inputs)
    return hashing.fingerprint(spec.processor, spec.pairing, [("all", ids)])


_PLAN_AS_DECLARED = ((rules, "plan_of", _plan_as_declared), (writing, "plan_of", _plan_as_declared))


def _old_order() -> Patch:
    """O7: a batch that was announced keeps the order in which it was announced."""
    return rules, "_in_order", lambda _, positions: positions


# Moves.


def _moved(change: Callable[[Any], Any]) -> Patch:
    old = moves.moved
    return moves, "moved", lambda spec, move, before, inputs: change(old(spec, move, before, inputs))


def _planned_over_any() -> Patch:
    """X2: whatever the newest record is by now, the planned one is written."""
    old = moves.decide

    def decide(spec: Any, move: Any, record: Any, inputs: Any) -> Any:
        found = old(spec, move, record, inputs)
        since = isinstance(found, Halt) and "moved since" in found.text
        return moves.moved(spec, move, record, inputs) if since else found

    return recovery, "decide", decide


def _move_believed() -> Patch:
    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if task.spec.move and task.state is Doing.COMMITTING and task.halt:
            return replace(task, state=Doing.STOPPED, pending=None), do.Stop(task.halt)
        return old(task, event)

    return handler("failed", failed)


def _move_keeps_snapshot() -> Patch:
    old = moves.moved

    def moved(spec: Any, move: Any, before: Any, inputs: Any) -> Any:
        record = old(spec, move, before, inputs)
        if not isinstance(before, Snapshot):
            return record
        kept = replace(before, sequence=record.sequence, writer=spec.writer, positions=move.positions)
        return kept if before.positions == move.positions else record

    return moves, "moved", moved


def _move_without_offsets() -> Patch:
    def produced(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        after, effect = old(task, event)
        if task.spec.move and isinstance(effect, do.SendOffsets):
            return replace(after, state=Doing.FLUSHING), do.Flush()
        return after, effect

    return handler("produced", produced)


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant("init after reading", "pipe", CRASH, (reading_first(),)),
    Mutant(
        "init after reading, up to the last stable offset, without P6a",
        "pipe",
        ZOMBIE,
        (reading_first(flushed=anywhere), _last_stable(), _unstable_read(), _OFFSETS_TRUSTED),
    ),
    Mutant(
        "group offsets over the record, init after reading, unstable ones read as they are",
        "pipe",
        ZOMBIE,
        (reading_first(flushed=anywhere), _last_stable(), _unstable_read(), _decided(_by_offsets)),
    ),
    Mutant("delivery reports not counted", "alone", NET, (reports_ignored(place=False),)),
    Mutant("no flush: neither reports nor place are looked at", "alone", NET, (reports_ignored(place=True),)),
    Mutant("suspect commit trusted", "alone", NET, (suspect_trusted(),)),
    Mutant("failed commit taken for an abort", "alone", NET, (_after_failed_commit(_taken_for_abort),)),
    Mutant("failed commit taken for a commit", "alone", NET, (_after_failed_commit(_went_well),)),
    Mutant("positions from memory", "alone", NET, (_from_memory(), _OFFSETS_TRUSTED)),
    Mutant("EndTxn repeated in the same epoch", "alone", NET, (_after_failed_commit(_repeated),)),
    Mutant("failure without a new session", "alone", NET, (_session_kept(),)),
    Mutant("fenced slot takes the id again", "slots", MOVE, (fenced_slot_again(),)),
    Mutant("snapshot without offsets", "alone", NOTHING, (_snapshot_sends(lambda _: None),)),
    Mutant("snapshot with the offsets of its ends", "alone", NOTHING, (_snapshot_sends(lambda r: r.ends),)),
    Mutant(
        "sequence of an attempt repeated",
        "alone",
        NOTHING,
        (_record(lambda r, _: replace(r, sequence=r.sequence - 1)),),
    ),
    Mutant(
        "step number not moved on",
        "alone",
        NOTHING,
        (_record(lambda r, _: replace(r, step=r.step - r.batch.deliveries)),),
    ),
    Mutant("totals not added up", "alone", NOTHING, (_record(lambda r, _: replace(r, totals=r.batch)),)),
    Mutant(
        "attempt at the positions before it",
        "alone",
        NOTHING,
        (_record(lambda r, t: replace(r, positions=t.positions)),),
    ),
    Mutant("committed record not taken over", "alone", NOTHING, (handler("committed", _forgotten),)),
    Mutant(
        "snapshot at the positions behind it",
        "alone",
        NOTHING,
        (_polled_record(lambda r, _: replace(r, positions=r.ends)),),
    ),
    Mutant("retry skips its ranges", "alone", CRASH, (_decided(_range_skipped),)),
    Mutant("own discard counted as a death", "kill", NET, ((rules, "died", _always_died),)),
    Mutant("revocation without `left`", "pipe", MOVE, (_without_left(),)),
    Mutant(
        "revocation in a recovery without `left`",
        "pipe",
        NET_AND_MOVE,
        (handler("interrupted", lambda _, task, event: go.release(task)),),
    ),
    Mutant("`left` under the same sequence", "pipe", MOVE, (_left_in_place(),)),
    Mutant("death not counted", "kill", NOTHING, ((rules, "died", lambda *_: False),)),
    Mutant("no snapshot for the first batch", "kill", NOTHING, (handler("assigned", _first_forgotten),)),
    Mutant("quarantine one death early", "kill", NOTHING, (_QUARANTINE_EARLY,)),
    Mutant("quarantine of more than one message", "kill", NOTHING, (_QUARANTINE_WIDE, (recovery, "CAREFUL_AT", 9))),
    Mutant("no quarantine", "kill", NOTHING, (_NO_QUARANTINE,)),
    Mutant("no careful mode", "kill", NOTHING, ((recovery, "CAREFUL_AT", 99),)),
    Mutant(
        "deaths inherited by a narrower range",
        "kill",
        NOTHING,
        (_polled_record(lambda r, t: replace(r, starts=max(r.starts, t.record.starts)) if t.record else r),),
    ),
    Mutant("attempt outside the transaction", "alone", NOTHING, (_attempt_outside(),)),
    Mutant("error besides an output", "error", NOTHING, (_ERROR_TOO,)),
    Mutant("failed step skipped", "error", NOTHING, _MISSING_STEP),
    Mutant("hash over all positions", "alts", NOTHING, (around_world("_consumed", _all_positions),)),
    Mutant("choice of alts not replayed", "alts-effects", CRASH, (_decided(_choose_anew),)),
    Mutant("what a retry puts off is forgotten", "alts-retry", NET_AND_CRASH, (_FORGOTTEN,)),
    Mutant("start=latest not recorded", "latest", CRASH, (handler("sibling_read", _unrecorded),)),
    Mutant("a second id in the backing partition, without P6a", "intruder", MOVES, (handler("flushed", anywhere),)),
    Mutant("group offsets of another program accepted", "reset", MOVES, (_OFFSETS_TRUSTED,)),
    Mutant("no snapshot before a choice of alts", "alts-effects", CRASH, (_NO_CHOICE_SNAPSHOT,)),
    Mutant("effects without step numbers", "effects", CRASH, (around_world("_applied", _effects_unguarded),)),
    Mutant("fresh transactional id", "pipe", CRASH, (_fresh_id(),)),
    Mutant("no generation check", "pipe", ZOMBIE, (_without_generation(),)),
    Mutant("no epochs", "pipe", ZOMBIE, (_without_epoch(),)),
    Mutant("revocation acknowledged early", "pipe", MOVE, (_acknowledged_early(),)),
    Mutant("neither epoch nor generation", "pipe", ZOMBIE, (_without_generation(), _without_epoch())),
    Mutant(
        "no generation check, and no return to R1 when blocked",
        "pipe",
        ZOMBIE,
        (_without_generation(), _blocked_waits()),
    ),
    Mutant("revocation acknowledged early, without epochs", "pipe", MOVE, (_acknowledged_early(), _without_epoch())),
    Mutant(
        "stale watermark trusted: neither P6a nor offsets are compared",
        "alone",
        NET_AND_CRASH,
        (handler("flushed", anywhere), _OFFSETS_TRUSTED, _EMPTY_TRUSTED),
    ),
    Mutant("nobody is alone after a death", "together", NOTHING, ((Task, "alone", property(lambda _: False)),)),
    Mutant("alone from the second death on", "together", NOTHING, ((value, "ALONE_AT", 2),)),
    Mutant("alone until the call only", "together", NOTHING, (_released_at_the_call(),)),
    Mutant("alone until the attempt's transaction only", "together", NOTHING, (_released_before_the_commit(),)),
    Mutant("alone until a failure only", "together", NET, (_released_by_a_failure(),), progress=False),
    Mutant("calls go on beside a task that is alone", "together-later", NOTHING, _calls_go_on()),
    Mutant("an input of alts is taken until it is empty", "alts-turns", NOTHING, (_greedy(),)),
    Mutant("alts forget whose turn it is", "alts-turns", NOTHING, (_turn_forgotten(),)),
    Mutant("deaths of a range count on the message that compaction left", "compacted", CRASHES, (_deaths_kept(),)),
    Mutant("a retry demands what compaction took", "compacted", CRASH, (_all_demanded(),)),
    Mutant("a retry of which nothing is left waits for it", "compacted", CRASH, (_nothing_left(),)),
    Mutant("the fingerprint depends on the order of declaration", "reordered", CRASH, _PLAN_AS_DECLARED),
    Mutant("positions in the order of an earlier declaration", "reordered", CRASH, (_old_order(),)),
    Mutant("a move over a record that the operator was not shown", "moved-snapshot", NOTHING, (_planned_over_any(),)),
    Mutant("a failed commit of a move taken for a move", "moved", NET, (_move_believed(),), progress=False),
    Mutant("step numbers begin again with a move", "moved-snapshot", NOTHING, (_moved(lambda r: replace(r, step=0)),)),
    Mutant(
        "totals begin again with a move", "moved-snapshot", NOTHING, (_moved(lambda r: replace(r, totals=Totals())),)
    ),
    Mutant("a move keeps the announced batch", "moved-snapshot", NOTHING, (_move_keeps_snapshot(),)),
    Mutant("a move leaves the group's offsets", "moved-snapshot", NOTHING, (_move_without_offsets(),)),
    Mutant("late records taken outside of a transaction", "alone", NET, _unverified()),
    Mutant("a record does not name the marks of its stores", "store", NOTHING, (_mark_of_the_batch_before(),)),
    Mutant("a snapshot forgets the marks of stores", "store-kill", CRASH, (_marks_forgotten(),)),
    Mutant("a stale end of a changelog is believed", "store", NET_AND_CRASH, (_end_believed(),), progress=False),
    Mutant("changes of a failed step are kept", "store", NOTHING, (_changes_kept("ofne"),)),
    Mutant("changes of a step with an output are dropped", "store", NOTHING, (_changes_kept("f"),)),
    Mutant("changes of a void batch stay in the process", "store", NET, (_overlay_kept(),), progress=False),
    *HANDLERS,
    *TABLES,
    *TIMERS,
    *RENAMES,
    *MIGRATIONS,
    Mutant("a migration over a record that the operator was not shown", "migrated", NOTHING, (_planned_over_any(),)),
    Mutant("a failed commit of a migration is believed", "migrated", NET, (_move_believed(),), progress=False),
    Mutant("a migration leaves the group's offsets", "migrated", NOTHING, (_move_without_offsets(),)),
    *REPLAYS,
    *DROPS,
    *FEEDS,
    *BRIDGES,
    *TAILS,
    *OUTBOX,
    *MARKERS,
    *STRATEGIES,
    *STAGED,
)

COVERED: Final[tuple[tuple[Mutant, str], ...]] = (
    (Mutant("no P6a", "pipe", NET, (handler("flushed", anywhere),)), "init before reading; offsets are compared"),
    (Mutant("last stable offset at R3", "pipe", ZOMBIE_AND_CRASH, (_last_stable(),)), "init before reading"),
    (Mutant("unstable offsets read as they are", "pipe", ZOMBIE, (_unstable_read(),)), "init before reading"),
    (Mutant("no return to R1 when blocked", "pipe", ZOMBIE, (_blocked_waits(),)), "init before reading; see tla.md"),
    (Mutant("group offsets not compared", "pipe", NET, (_OFFSETS_TRUSTED,)), "P6a"),
    *COVERED_RENAMES,
    *COVERED_TIMERS,
    *COVERED_REPLAYS,
    *COVERED_OUTBOX,
    *COVERED_BRIDGES,
    *COVERED_STAGED,
)
"""Rules that another one covers for, within these faults; together they are among the mutants."""

NO_SUBJECT: Final[tuple[tuple[str, str], ...]] = (
    ("a second input subscribed; a silent assignment callback; unassign by name; seek beside a running poll", "client"),
    (
        "EOF below the end taken as the end; drain skipped; a filtered slot not published",
        "slot's reader, not in the core",
    ),
    ("`latest` resolved beside a sibling's record", "the worlds have no added partitions"),
    ("position past the log's end accepted", "the worlds' brokers lose nothing"),
    ("SQL effects fenced by sequence alone under pipelining", "targets go by step numbers"),
    (
        "P6a counts the journal's records as another writer's; a journaled response given to another call",
        "not built yet",
    ),
    ("the guard of an upsert without its epoch", "not built yet"),
    (
        "a Spark slot calls user code that has a target before it takes the lock",
        "the slots of these worlds take it first",
    ),
    ("replay appended to the input; replays before messages", "the worlds take requests in any order"),
)
"""Mutants that cannot be made here, and why."""
