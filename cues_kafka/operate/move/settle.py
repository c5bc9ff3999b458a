"""`reset --to database` and `--to here`: bring tasks and targets together that do not fit each other (E1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cues_kafka.core.events import InputFacts
from cues_kafka.core.moves import begin
from cues_kafka.core.records import Record, Snapshot, TargetRow, Totals
from cues_kafka.core.spec import Move, Spec
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.move.base import Maintenance, PlannedMove, sequence_of
from cues_kafka.operate.move.notes import notes_of, refuse_stores
from cues_kafka.ports.log import Positions
from cues_kafka.ports.target import HeldAttempt, TransactionalSink
from cues_kafka.records.held import held_of, row_of
from cues_kafka.words import count

DATABASE: Final = "database"
HERE: Final = "here"


@dataclass(frozen=True, slots=True)
class Settling:
    """
    How a task and its target come together.

    Attributes:
        was: what the target holds.
        positions: where the task shall stand.
        stays: the task stands there already; only the target changes.
        tails: where its tailers shall stand (L2); None: where they stood.
        notes: what will be lost or repeated, in words.
    """

    was: HeldAttempt | None
    positions: Positions
    stays: bool
    notes: tuple[str, ...]
    tails: Positions | None = None


def settle(tool: Maintenance, to: str, specs: Sequence[Spec]) -> list[PlannedMove]:
    """
    Plan to bring tasks and their targets together again; those that fit are left out.

    Args:
        tool: what moves the tasks.
        to: `database`: a task goes to where its target stands; `here`: the target is right as it is.
        specs: the tasks.

    Raises:
        ConfigError: the processor has no target, `here` would hide a difference, or the target has no row, or does not
            say where it stands.
        RecoveryError: the group has members, or the target stands in a topic that is gone.
    """
    if not isinstance(tool.declared, Processor) or tool.declared.target is None:
        raise ConfigError(f"--to {to}: {tool.specs[0].processor!r} has no database or store in its effects=")
    tool.refuse_others()
    return [move for spec in specs if (move := _settling(tool, spec, to, tool.declared.target[1].holder)) is not None]


def _settling(tool: Maintenance, spec: Spec, to: str, it: str) -> PlannedMove | None:
    """Bring a task and its target together; None: they are."""
    target, record = tool.target_of(spec), tool.settled(spec)
    held = target.newest()
    here = to == HERE
    found = _here(spec, record, held, it) if here else _to_target(spec, record, held, tool.reading.inputs(spec), it)
    if found is None and record is not None and target.torn:
        found = Settling(held, record.positions, True, ("the log of the store lacks entries, but no attempt",))
    if found is None:
        return None
    refuse_stores(spec, record, found.positions)
    # The core must not ask the target: it does not fit, which is why the operator is here.
    above = held.owner if held else -1
    move = Move(after=sequence_of(record), above=above, positions=found.positions, tails=found.tails)
    stays = found.stays and above <= sequence_of(record)
    moved = replace(spec, target=False, move=None if stays else move)
    notes = () if found.stays else notes_of(spec, record, found.positions)
    was = found.was
    return PlannedMove(moved, (*found.notes, *notes), settle=lambda: _settle(tool, moved, target, was))


def _settle(tool: Maintenance, spec: Spec, target: TransactionalSink, was: HeldAttempt | None) -> None:
    """Have a target stand where the newest record of its task does."""
    record = tool.settled(spec)
    if record is None:
        raise RecoveryError(
            f"{spec.name} was moved, and its record is gone from {spec.backing!r}: what its target has was left as it "
            "is. Find who deletes records there, then run the same command again"
        )
    if not target.settle(stands_at(record), was):
        raise RecoveryError(f"{spec.name}: its target has changed since. Run the command again")


def _to_target(
    spec: Spec, record: Record | None, held: HeldAttempt | None, inputs: Mapping[str, InputFacts], it: str
) -> Settling | None:
    """The task goes to where the target stands, by its row there; None: they fit."""
    step = record.step if record else 0
    if held is None:
        if step == 0:
            return None
        raise ConfigError(
            f"--to database: the {it} has no row of {spec.name}, so it does not say where to go. If it is right "
            "as it is: `--to here`. If it was recreated, and is to be filled again: `--to here`, then `--to earliest`"
        )
    row = row_of(held)
    if row.step == step:
        return _same_step(record, held, it)
    if record is not None and row.base == step < row.step and row.batch.taken == row.step - step:
        raise ConfigError(
            f"--to database: the {it} of {spec.name} is one attempt ahead of Kafka, and has all of it. "
            "Start the workers: they publish it, and go on"
        )
    if not row.ends and (row.step or spec.start != "earliest"):
        raise ConfigError(
            f"--to database: the {it} is at step {row.step} of {spec.name}, and does not say at which offset. "
            "Restore a newer backup. Or, in a database, delete the row of this task from cues_task, and run "
            f"`--to here`; then go with `--to FILE` to the offsets up to which the {it} has the effects"
        )
    positions = row.ends or begin(spec, inputs, "earliest")
    for position in positions:
        facts = inputs.get(position.binding)
        if facts is None or facts.topic_id != position.topic_id:
            raise RecoveryError(
                f"{spec.name}: the {it} has a position in {position.topic!r}, which was deleted and recreated since"
            )
        if not facts.low <= position.offset <= facts.high:
            raise RecoveryError(
                f"{spec.name}: the {it} is at {position.topic}/{spec.partition} at {position.offset}, and the "
                f"log has [{facts.low}, {facts.high})"
            )
    there = record is not None and record.positions == positions and record.tails == (row.tails or record.tails)
    stays = there and not isinstance(record, Snapshot)
    return Settling(held, positions, stays, (_note(spec, row.step, step, it),), row.tails or None)


def _same_step(record: Record | None, held: HeldAttempt, it: str) -> Settling | None:
    """Kafka may lack the records of starts that took no step. Those to come would be former owners for the target."""
    if record is None or held.owner <= record.sequence + 1:  # a start asks with this number before its first record
        return None
    return Settling(held, record.positions, True, (f"the {it} has seen later starts than Kafka has; no step is lost",))


def stands_at(record: Record) -> HeldAttempt:
    """What a target holds that stands where this record does, so that a backup of it tells where to go."""
    return held_of(
        TargetRow(
            base=record.step,
            step=record.step,
            owner=record.sequence,
            ends=record.positions,
            batch=Totals(),
            tails=record.tails,
        )
    )


def _here(spec: Spec, record: Record | None, held: HeldAttempt | None, it: str) -> Settling | None:
    """The target is right as it is, and stands where the task does from now on; None: they fit."""
    step = record.step if record else 0
    if record is None or (held is not None and held.step == step):
        return None
    if held is not None:
        raise ConfigError(
            f"--to here: the {it} is at step {held.step} of {spec.name}, Kafka at step {step}. The steps "
            "between would be lost or doubled. Use `--to database`"
        )
    note = f"the {it} gets a row at step {step}; what it lacks of the steps before stays missing"
    return Settling(None, record.positions, True, (note,))


def _note(spec: Spec, there: int, step: int, it: str) -> str:
    if there < step:
        return f"the {it} lacks {count(step - there, 'step')} that Kafka has: their messages to Kafka REPEAT"
    ahead = count(there - step, "step")
    return f"the {it} is {ahead} ahead of {spec.backing!r}: their messages to Kafka are LOST where none were sent"
