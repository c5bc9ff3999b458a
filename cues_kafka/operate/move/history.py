"""Notes in the history of a task what a tool does to it, in the tool's own transaction (X6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.core.records import KEY, Record, Start
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CodecError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.records.history import HISTORY, History, Moved, encode_history, read_history
from cues_kafka.records.reading import read_record
from cues_kafka.records.scanning import read_range


def history_of(broker: Broker, spec: Spec, clock: Clock) -> History:
    """The history of a task, with the place where it began."""
    place = TopicPartition(spec.backing, spec.partition)
    low, stable, _ = broker.watermarks([place])[place]
    found = read_history(broker, place, low, stable, clock, group=spec.group)
    return found if found.began is not None else History(_began(broker, spec, place), found.moves, found.whole)


def _began(broker: Broker, spec: Spec, place: TopicPartition) -> Positions | None:
    """Where the task began, by its first record; None: compaction has taken that."""
    low, stable, _ = broker.watermarks([place])[place]
    for message in read_range(broker, place, low, stable, group=spec.group) if low < stable else ():
        if message.key() == KEY:
            try:
                record = read_record(message)
            except CodecError:
                return None
            first = isinstance(record, Start) and record.sequence == 0 and not record.moving_from
            return record.positions if first else None
    return None


def noted(spec: Spec, history: History) -> tuple[Any, ...]:
    """The message with a task's history."""
    return spec.backing, spec.partition, HISTORY, encode_history(history), None, 0


def moved_messages(
    broker: Broker, spec: Spec, record: Record | None, clock: Clock, kept: Positions | None = None
) -> Sequence[tuple[Any, ...]]:
    """
    What a tool writes besides the record with which it moves a task; nothing, if the task stays where it is.

    Args:
        broker: the cluster.
        spec: the task, with its move.
        record: its newest record; None: it has none, and begins with the move.
        clock: bounds the wait.
        kept: up to where its stores hold what it has delivered; None: up to the positions of the record.
    """
    move = spec.move
    if move is None or move.staged is not None:
        return ()
    if record is None:
        return (noted(spec, History(move.positions)),)
    kept = record.positions if kept is None else kept
    if move.positions == record.positions == kept:
        return ()
    moved = Moved(
        sequence=max(move.after, move.above) + 1,
        was=record.positions,
        kept=kept,
        now=move.positions,
        totals=record.totals,
    )
    return (noted(spec, history_of(broker, spec, clock).then(moved)),)
