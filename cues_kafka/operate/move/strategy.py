"""`cues-kafka strategy`: give tasks the strategy that the graph declares now, where they stand (W7)."""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core.moves import behind_both
from cues_kafka.core.records import Snapshot
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.operate.move.base import Maintenance, PlannedMove
from cues_kafka.ports.log import Position
from cues_kafka.words import count


def change_strategy(tool: Maintenance) -> list[PlannedMove]:
    """
    Plan to give tasks the strategy that the graph declares for the processor, where they stand (W7).

    Raises:
        ConfigError: the processor is staged.
        RecoveryError: the group has members, a record is not this task's, or a batch is announced.
    """
    if tool.staged or not tool.specs[0].inputs:
        raise ConfigError(f"{tool.specs[0].processor!r} is written staged, which is exactly-once always")
    tool.refuse_others()
    return [move for spec in tool.specs if (move := _changed(tool, spec)) is not None]


def _changed(tool: Maintenance, spec: Spec) -> PlannedMove | None:
    """One task; None: it has this strategy, or nothing at all."""
    record = tool.settled(spec)
    if record is None:
        return _completed(tool, spec)
    if record.strategy == spec.strategy:
        return None
    if isinstance(record, Snapshot):
        raise RecoveryError(
            f"{spec.name} has announced {count(record.steps, 'step')}, which {record.strategy} has to deliver. Run "
            "the former version until it has delivered them, and stop it"
        )
    loose = record.strategy == AT_LEAST_ONCE
    # An open transaction holds no offsets of at-least-once, which has no transactions.
    positions = behind_both(record, tool.reading.offsets(spec) or {}) if loose else record.positions
    notes = [f"{record.strategy} becomes {spec.strategy}, from the same place on"]
    if positions != record.positions:
        notes = [f"{record.strategy} becomes {spec.strategy}, at the group's offsets: an older record came last"]
    if steps := in_flight(record):
        notes.append(f"{count(steps, 'step')} that a dead process has taken and not settled count as DROPPED")
    move = Move(after=record.sequence, positions=positions, strategy=spec.strategy)
    return PlannedMove(replace(spec, move=move), tuple(notes), waits=loose)


def _completed(tool: Maintenance, spec: Spec) -> PlannedMove | None:
    """Complete a start at-least-once that has committed its offsets, and no record (W6); None: there was none."""
    offsets = tool.reading.offsets(spec) or {}
    held = {binding: offset for binding, offset in offsets.items() if offset is not None}
    if spec.strategy == AT_LEAST_ONCE or len(held) < len(spec.inputs):
        return None
    inputs = tool.reading.inputs(spec)
    begin = (Position(i.binding, i.topic, inputs[i.binding].topic_id, held[i.binding]) for i in spec.inputs)
    move = Move(after=-1, positions=tuple(begin), strategy=spec.strategy)
    return PlannedMove(replace(spec, move=move), ("begins at the group's offsets, of a start without a record",))
