"""The records that a task commits, each made from the one before it (O6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from cues_kafka.core import events as on
from cues_kafka.core.feeds import own_end
from cues_kafka.core.records import Attempt, Kept, Record, Snapshot, Start, TargetRow, Totals
from cues_kafka.core.recover import plan_of
from cues_kafka.core.replays import begin as begin_replays
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Announce, Publish
from cues_kafka.core.task import Task, before
from cues_kafka.core.turns import drop, joined
from cues_kafka.ports.log import Positions

AnyRecord = TypeVar("AnyRecord", bound=Record)


def following(kind: type[AnyRecord], spec: Spec, newest: Record | None, **fields: Any) -> AnyRecord:
    """
    The record that follows `newest`: what a task carries on, signed by its writer.

    Args:
        kind: `Start`, `Snapshot` or `Attempt`.
        spec: the task.
        newest: the newest committed record; None before the first.
        fields: what differs from the record before.
    """
    carried: dict[str, Any] = {"sequence": 0, "step": 0, "positions": ()}
    if newest:
        carried = {"sequence": newest.sequence + 1}
        carried |= {name: getattr(newest, name) for name in _CARRIED}
    return kind(**carried | {"writer": spec.writer, "strategy": spec.strategy} | fields)


_CARRIED = ("step", "positions", "tails", "place", "ledger", "totals", "epoch", "born", "stores", "replays")


def start_of(task: Task, positions: Positions, born: int) -> Start:
    """R5: the first record of a task."""
    if task.spec.feed:
        positions = own_end(task)
    stands = begin_replays(task.spec, dict(task.tail_facts))
    return following(Start, task.spec, None, positions=positions, born=born, fingerprint=_plan(task), replays=stands)


def snapshot_of(task: Task, polled: on.Polled) -> Snapshot:
    """P2, F3, Y1: these ranges, timers or request come next."""
    newest = task.record
    assert newest
    delivered = 0 if polled.timers or polled.replay else polled.steps
    return following(
        Snapshot,
        task.spec,
        newest,
        starts=task.due.starts if task.due else 0,
        careful_until=task.careful_until,
        careful_timers=task.careful_timers,
        choice=joined(polled.choice, drop(task.choice, delivered)),  # all that remains: a death forgets nothing
        owner=owner_of(task),
        fingerprint=_plan(task),
        ends=polled.ends,
        steps=polled.steps,
        timers=polled.timers,
        replay=polled.replay,
    )


def attempt_of(task: Task, positions: Positions, batch: Totals, place: str = "") -> Attempt:
    """P5: delivered up to these positions; of a feed, up to this place (G1)."""
    newest = task.record
    assert newest
    careful = before(positions, task.careful_until)
    return following(
        Attempt,
        task.spec,
        newest,
        step=newest.step + batch.taken,
        positions=own_end(task) if task.spec.feed else positions,
        place=place or newest.place,
        totals=newest.totals.plus(batch),
        batch=batch,
        stores=_kept(task, newest, batch),
        careful_until=task.careful_until if careful else (),
        # A batch without timers shows that none is due any more: due timers come before any message (F2).
        careful_timers=max(0, task.careful_timers - batch.timers) if batch.timers else 0,
        choice=drop(task.choice, batch.taken - batch.timers - batch.replays) if careful or task.spec.effects else (),
        owner=owner_of(task),
        fingerprint=_plan(task),
    )


def take_of(task: Task, positions: Positions, steps: int = 0) -> Attempt:
    """W1: take these steps, up to these positions, and settle what is carried of the batch before."""
    assert task.carried
    return attempt_of(task, positions, task.carried.batch._replace(taken=task.carried.batch.taken + steps))


def row_of(task: Task, positions: Positions, batch: Totals, replays: Positions = ()) -> TargetRow:
    """E1: the row of a target for the attempt that commits this batch."""
    assert task.record
    made = attempt_of(task, positions, batch.settled)
    return TargetRow(
        base=task.record.step,
        step=made.step,
        owner=made.owner,
        ends=made.positions,
        batch=made.batch,
        choice=made.choice,
        replays=replays,
    )


def attempt_in(task: Task, row: TargetRow) -> Attempt:
    """E1: the attempt that the target has committed already. It may reach beyond what a snapshot announces."""
    made = attempt_of(task, row.ends, row.batch)
    return replace(made, choice=row.choice, replays=row.replays or made.replays)


def left_of(record: Snapshot) -> Snapshot:
    """Q1: the same snapshot once more, which its writer has left."""
    return replace(record, sequence=record.sequence + 1, left=True)


def announcement_of(task: Task) -> Snapshot:
    """T2: the first committed one wins; its sequence is the publication number."""
    role = task.spec.staged
    assert isinstance(role, Announce)
    numbered = replace(role.batch, number=task.next_sequence)
    return following(Snapshot, task.spec, task.record, born=role.batch.parts, staged=numbered, ends=(), steps=0)


def publication_of(task: Task, batch: Totals) -> Attempt:
    """T3: the record of a part says which publication it is of; part 0 keeps the announcement, which T2 asks for."""
    role, newest = task.spec.staged, task.record
    assert isinstance(role, Publish)
    return following(
        Attempt,
        task.spec,
        newest,
        step=(newest.step if newest else 0) + batch.taken,
        totals=(newest.totals if newest else Totals()).plus(batch),
        batch=batch,
        born=role.batch.parts,
        staged=newest.staged if newest and role.batch.part == 0 else role.batch,
    )


def _kept(task: Task, newest: Record, batch: Totals) -> Kept:
    """R4b: each attempt that delivers writes its step number into the changelogs of all stores that are declared."""
    if not batch.deliveries:
        return newest.stores
    ends = {name: newest.step + batch.taken for name, _ in task.spec.stores}
    return tuple((dict(newest.stores) | ends).items())


def owner_of(task: Task) -> int:
    """The sequence of the first record of this start, also where that record is yet to be committed (E1)."""
    return task.next_sequence if task.owner is None else task.owner


def _plan(task: Task) -> bytes:
    return plan_of(task.spec, dict(task.inputs))
