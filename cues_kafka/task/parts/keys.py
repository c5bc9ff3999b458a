"""Stops before a message that is not in its key's partition, where the processor counts on that.

It takes part for processors with stores, tables, timers or upserts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.brokers.placement import Misplaced
from cues_kafka.core.events import Halt
from cues_kafka.core.records import Record
from cues_kafka.ports.log import Positions
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.placements import Placements
from cues_kafka.task.following import Tables
from cues_kafka.task.parts.participant import Run, StepParticipant


class Keys(StepParticipant):
    """Calls up to a step whose key shows that its topic is partitioned by another rule."""

    def __init__(self, placements: Placements, tables: Tables | None) -> None:
        self._placements, self._tables = placements, tables

    def restore(self, record: Record | None, positions: Positions) -> None:
        """How many partitions there were when the processor began decides which keys are explained."""
        self._placements.began(record.born if record else None)

    def run(self, inner: Run, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
        """The steps before a misplaced one are called; the task then stops with the remedy."""
        at, wrong = self._first(steps, batch)
        if wrong is None:
            return inner(steps, batch, retrying)
        done = inner(steps[:at], batch, retrying) if at else 0
        if done == at and batch.halt is None:
            batch.halt = Halt("refused", wrong.text, wrong.remedy)
        return done

    def _first(self, steps: Sequence[Any], batch: Batch) -> tuple[int, Misplaced | None]:
        tables = self._tables
        if tables is not None and (wrong := tables.misplaced(batch.spec.partition)) is not None:
            return 0, wrong
        return self._placements.first(steps) or (len(steps), None)
