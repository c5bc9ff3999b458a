"""`reset` and `accept-loss`: what an operator wants of a task that stands still, as its next record (X2). Pure.

A tool owns the task like any worker: it takes the transactional id, reads the newest record, and commits one record
with the offsets (R1 to R5, P5 to P8). What it wants was planned over a record that the operator was shown. So it writes
only behind that very record. A tool that finds its own record there, after a commit without an answer, has moved the
task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.records import Attempt, Record, Snapshot, Start, Totals
from cues_kafka.core.recover import foreign, plan_of
from cues_kafka.core.spec import Move, Spec
from cues_kafka.ports import Position, Positions

MOVED = "moved"
"""The kind of `Halt` with which a task stops that stands where the operator wants it."""

To: TypeAlias = Literal["earliest", "latest"]

_AGAIN = "run the command again"


def decide(spec: Spec, move: Move, record: Record | None, inputs: Mapping[str, InputFacts]) -> Record | Halt:
    """
    The record that moves the task; or why it stops: it stands there, or it must not be moved.

    Args:
        spec: the task; its writer is the tool.
        move: what the operator wants.
        record: the newest committed record.
        inputs: what the cluster says now of each binding's partition.
    """
    if record and _moved_by(spec, move, record):
        return moved_halt(spec)
    if record and (refusal := foreign(spec, record)):
        return refusal.halt
    if (record.sequence if record else -1) != move.after:
        return Halt("refused", f"{spec.name} has moved since", _AGAIN)
    for position in move.positions:
        facts = inputs.get(position.binding)
        if facts is None or facts.topic_id != position.topic_id:
            return Halt("refused", f"{spec.name}: topic {position.topic!r} was deleted or recreated since", _AGAIN)
        if not facts.low <= position.offset <= facts.high:
            text = f"{spec.name}: {position.topic!r} now has offsets [{facts.low}, {facts.high}), not {position.offset}"
            return Halt("refused", text, _AGAIN)
    return moved(spec, move, record, inputs)


def moved_halt(spec: Spec) -> Halt:
    """The task stands where the operator wants it."""
    return Halt(MOVED, f"{spec.name} stands where it was wanted")


def _moved_by(spec: Spec, move: Move, record: Record) -> bool:
    mine = record.writer.incarnation == spec.writer.incarnation and record.sequence > move.after
    there = record.positions == move.positions and record.staged == move.staged
    return mine and there and not isinstance(record, Snapshot)


def moved(spec: Spec, move: Move, before: Record | None, inputs: Mapping[str, InputFacts]) -> Record:
    """The record of a task that is moved: sequence and totals go on; snapshots and careful mode are over."""
    sequence = move.after + 1
    if move.staged:
        return Attempt(
            # A part has a sequence of its own; that of slot 0 is the publication number, which never goes back.
            sequence=sequence if spec.partition else move.staged.number,
            step=before.step if before else 0,
            positions=(),
            totals=before.totals if before else Totals(),
            born=move.staged.parts,
            writer=spec.writer,
            strategy=spec.strategy,
            staged=move.staged,
        )
    common: dict[str, Any] = {
        "positions": move.positions,
        "writer": spec.writer,
        "strategy": spec.strategy,
        "fingerprint": plan_of(spec, inputs),
    }
    if before is None:
        return Start(sequence=0, step=0, born=spec.width, **common)
    return Attempt(
        sequence=sequence, step=before.step, totals=before.totals, owner=sequence, born=before.born, **common
    )


def begin(spec: Spec, inputs: Mapping[str, InputFacts], to: To) -> Positions:
    """Where a reset lets a task begin: at the first message that is there, or behind the last one that is committed."""
    found = {i.binding: inputs[i.binding] for i in spec.inputs}
    offsets = {binding: facts.low if to == "earliest" else facts.stable for binding, facts in found.items()}
    return tuple(Position(i.binding, i.topic, found[i.binding].topic_id, offsets[i.binding]) for i in spec.inputs)


def behind_loss(record: Record, inputs: Mapping[str, InputFacts]) -> Positions:
    """Where a task goes on whose next messages retention took: at the first ones that are there."""
    return tuple(p._replace(offset=max(p.offset, inputs[p.binding].low)) for p in record.positions)


def behind_compaction(spec: Spec, snapshot: Snapshot) -> Positions:
    """
    Where a task goes on when compaction took some messages of an announced batch.

    Over what is left of it; a join goes on behind the batch, because what is left are no pairs.
    """
    return snapshot.ends if spec.pairing == "join" else snapshot.positions
