"""At-most-once: a batch is taken before it is called, and the next transaction has its outcomes (W1 to W4).

An attempt then counts two batches: the one that it takes, and the one before, which it settles. Between two records the
task holds what became of the batch that it called last, as `Unsettled`. This module says what that is after a call,
after a recovery, and in the next record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cues_kafka.core import events as on
from cues_kafka.core.records import Record, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.ports.log import Positions


@dataclass(frozen=True, slots=True)
class Unsettled:
    """
    What the next transaction of a task commits of the batch that was taken last.

    Attributes:
        over: sequence of the record that it must follow: the one that took that batch.
        ends: the positions behind the last step that was started; a step from there on may be taken again (W2).
        batch: what is settled and dropped of that batch; `taken` is minus the number of steps that were not started.
        halt: why the task stops behind it; None: it goes on.
        doubtful: a commit over that record was asked for and not answered (W3).
    """

    over: int
    ends: Positions
    batch: Totals = Totals()
    halt: on.Halt | None = None
    doubtful: bool = False

    @property
    def due(self) -> bool:
        """Whether there is anything to commit."""
        return self.batch != Totals()


class Stale(Exception):
    """R4 gave a record that is older than one that the task knows of."""


def in_flight(record: Record | None) -> int:
    """Steps that are taken, and neither settled nor dropped (I16)."""
    return record.totals.taken - record.totals.deliveries - record.totals.dropped if record else 0


def nothing_carried(record: Record) -> Unsettled:
    """A task that goes on behind a record of which nothing is in flight."""
    return Unsettled(record.sequence, record.positions)


def after_call(record: Record, steps: int, event: on.Called) -> Unsettled:
    """
    W2: what the calls of a taken batch left.

    Args:
        record: that took it.
        steps: how many the batch has.
        event: `ends` are behind the last step that was started, `batch.taken` counts those that were.

    Raises:
        IllegalEvent: the event counts more than was taken.
    """
    started = event.batch.taken
    if not event.batch.deliveries <= started <= steps:
        raise on.IllegalEvent(f"{event.batch} of {steps} steps")
    never = steps - started
    dropped = in_flight(record) - event.batch.deliveries - never
    if dropped < 0:
        raise on.IllegalEvent(f"{event.batch} of {steps} steps, {in_flight(record)} in flight")
    halt = event.halt if event.halt is not None and event.halt.kind != "retry" else None
    return Unsettled(record.sequence, event.ends, event.batch._replace(taken=-never, dropped=dropped), halt)


def resumed(spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """
    W3, W4: what a task carries whose recovery found this record.

    Raises:
        Stale: another look is needed.
    """
    if carried is not None and record.sequence < carried.over:
        raise Stale
    if carried is not None and record.sequence == carried.over:
        return carried
    mine = record.writer.incarnation == spec.writer.incarnation
    if carried is not None and carried.doubtful and mine and record.sequence == carried.over + 1:
        # What it carried is committed. The batch that this record took was never called.
        never = record.batch.taken - carried.batch.taken
        return replace(nothing_carried(record), ends=carried.ends, batch=Totals(taken=-never), halt=carried.halt)
    return replace(nothing_carried(record), batch=Totals(dropped=in_flight(record)))
