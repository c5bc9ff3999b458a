"""The record of `reset`, `accept-loss` and other repairs: with it an operator moves a task that no worker runs (X2).

A tool owns the task as a worker does: it takes the transactional id, reads the newest record, and commits one record
with the offsets (R1 to R5, P5 to P8). The operator was shown a plan that was made over one record, so the tool writes
only behind that very record. A tool that finds its own record there after a commit without an answer has moved the
task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.records import Attempt, Record, Snapshot, Start, Totals
from cues_kafka.core.recover import foreign, plan_of
from cues_kafka.core.renaming import in_place, refusal, renamed
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.taking import in_flight
from cues_kafka.core.writing import following
from cues_kafka.ports.log import Position, Positions
from cues_kafka.words import count

MOVED = "moved"
"""The kind of `Halt` of a task that stopped because it stands where the operator wants it."""

To: TypeAlias = Literal["earliest", "latest"]

_AGAIN = "run the command again"


def decide(spec: Spec, move: Move, record: Record | None, inputs: Mapping[str, InputFacts]) -> Record | Halt:
    """
    Return the record that moves the task, or why the tool stops: the task stands there, or must not be moved.

    Args:
        spec: the task; its writer is the tool.
        move: what the operator wants.
        record: the newest committed record.
        inputs: what the cluster says now about the partition of each binding.
    """
    if record and _moved_by(spec, move, record):
        return moved_halt(spec)
    if record and (stranger := foreign(spec, record)):
        return stranger.halt
    if record and in_place(move, record):  # X5: by another run
        return moved_halt(spec)
    if move.renames and (refused := refusal(spec, move, record)):
        return refused
    if move.moving_from:
        return renamed(spec, move, record, inputs)
    if record and (other := _other_strategy(spec, move, record)):
        return other
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


def _other_strategy(spec: Spec, move: Move, record: Record) -> Halt | None:
    """W7: only the verb for it changes a strategy, and not over a snapshot."""
    if record.strategy == spec.strategy:
        return None
    if not move.strategy:
        text = f"the newest record of {spec.name} was written {record.strategy}; the graph says {spec.strategy}"
        return Halt("refused", text, f"`cues-kafka strategy` changes it for {spec.processor!r}; then {_AGAIN}")
    if isinstance(record, Snapshot):
        text = f"{spec.name} has announced {count(record.steps, 'step')}, which {record.strategy} has to deliver"
        return Halt("refused", text, "run the former version until it has delivered them, and stop it")
    return None


def moved_halt(spec: Spec) -> Halt:
    """The task stands where the operator wants it."""
    return Halt(MOVED, f"{spec.name} stands where it was wanted")


def _moved_by(spec: Spec, move: Move, record: Record) -> bool:
    mine = record.writer.incarnation == spec.writer.incarnation and record.sequence > move.after
    there = (record.positions, record.staged, record.strategy) == (move.positions, move.staged, spec.strategy)
    named = (record.moved_to, record.moving_from) == (move.moved_to, "" if move.complete else move.moving_from)
    return mine and there and named and not isinstance(record, Snapshot)


def moved(spec: Spec, move: Move, before: Record | None, inputs: Mapping[str, InputFacts]) -> Record:
    """The record that moves a task: sequence and totals go on, snapshots and careful mode end; see `Move.above`."""
    sequence = max(move.after, move.above) + 1
    if move.staged:
        # A part has a sequence of its own; that of slot 0 is the publication number, which never goes back.
        after = sequence if spec.partition else move.staged.number
        return following(Attempt, spec, before, sequence=after, born=move.staged.parts, staged=move.staged)
    where: dict[str, Any] = {
        "sequence": sequence,
        "positions": move.positions,
        "fingerprint": plan_of(spec, inputs),
        **_dropped(before),
        **({"stores": move.stores} if move.stores else {}),
        **({} if move.tails is None else {"tails": move.tails}),
        "moved_to": move.moved_to,
    }
    if before is None:
        return following(Start, spec, None, born=spec.width, **where)
    return following(Attempt, spec, before, owner=sequence, **where)


def _dropped(record: Record | None) -> dict[str, Totals]:
    """W4: what a process that died left in flight, which only at-most-once does."""
    if record is None or not (steps := in_flight(record)):
        return {}
    batch = Totals(dropped=steps)
    return {"batch": batch, "totals": record.totals.plus(batch)}


def behind_both(record: Record, offsets: Mapping[str, int | None]) -> Positions:
    """
    W7: up to where a task was delivered at-least-once.

    Both the record and the group's offsets stand behind what has outcomes, and a former worker may have written an
    older record behind the newest one.
    """
    return tuple(p._replace(offset=max(p.offset, offsets.get(p.binding) or 0)) for p in record.positions)


def begin(spec: Spec, inputs: Mapping[str, InputFacts], to: To) -> Positions:
    """Where a reset lets a task begin: at the first message in the log, or behind the last committed one."""
    found = {i.binding: inputs[i.binding] for i in spec.inputs}
    offsets = {binding: facts.low if to == "earliest" else facts.stable for binding, facts in found.items()}
    return tuple(Position(i.binding, i.topic, found[i.binding].topic_id, offsets[i.binding]) for i in spec.inputs)


def behind_loss(record: Record, inputs: Mapping[str, InputFacts]) -> Positions:
    """Where a task goes on after retention took its next messages: at the first ones in the log."""
    return tuple(p._replace(offset=max(p.offset, inputs[p.binding].low)) for p in record.positions)


def behind_compaction(spec: Spec, snapshot: Snapshot) -> Positions:
    """
    Where a task goes on after compaction took some messages of an announced batch.

    It delivers what is left of the batch. A join goes on behind it, because messages without partners are no steps.
    """
    return snapshot.ends if spec.pairing == "join" else snapshot.positions
