"""A `Caller` that stops before a message which is not in its key's partition, where the processor counts on that.

It is made instead of a `Caller` for processors with stores, tables, timers or upserts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.brokers.placement import Misplaced
from cues_kafka.core.events import Halt
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.caller import Caller


class PlacedCaller(Caller):
    """Calls a processor's function up to a step whose key shows that its topic is partitioned by another rule."""

    def run(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None = None) -> int:
        """See `Caller.run`. The steps before a misplaced one are called; the task then stops with the remedy."""
        at, wrong = self._first(steps, batch)
        if wrong is None:
            return super().run(steps, batch, retrying)
        done = super().run(steps[:at], batch, retrying) if at else 0
        if done == at and batch.halt is None:
            batch.halt = Halt("refused", wrong.text, wrong.remedy)
        return done

    @staticmethod
    def _first(steps: Sequence[Any], batch: Batch) -> tuple[int, Misplaced | None]:
        tables, placements = batch.context.tables, batch.context.placements
        if tables is not None and (wrong := tables.misplaced(batch.spec.partition)) is not None:
            return 0, wrong
        if placements is not None and (found := placements.first(steps)) is not None:
            return found
        return len(steps), None
