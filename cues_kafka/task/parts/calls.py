"""What a function calls by `effects=` and knows its step: answers are in a journal until the step is committed (E4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Positions
from cues_kafka.sinks.calls import Calls, Delivery, Surroundings
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.step import Received
from cues_kafka.task.parts.participant import StepParticipant
from cues_kafka.task.recalling import Recalling


class JournaledCalls(StepParticipant):
    """Gives each step calls of its own."""

    each = True  # a call must know its step

    def __init__(self, calls: Calls, spec: Spec) -> None:
        self._calls, self._spec = calls, spec

    def connect(self, around: Surroundings) -> None:
        self._recalling = Recalling(self._spec.name, self._spec.group, around)

    def restore(self, record: Record | None, positions: Positions) -> None:
        """Read the answers that steps from here on have got."""
        self._recalling.bring_up(self._calls, positions)

    def committed(self, batch: Batch, record: Record) -> None:
        self._calls.committed(record.positions)

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """Delete the answers of steps that were committed without them."""
        for row in self._calls.leftovers():
            batch.records.add(*row)

    def begin_step(self, step: Delivering, received: Mapping[str, Received]) -> None:
        consumed, replayed = step.consumed, step.batch.replayed
        delivery = self._calls.begin(consumed, partial(_hash, step), 0 if replayed is None else replayed.number)
        step.keep(self, delivery)
        step.given = {**(step.given or {}), **delivery.values}

    def failing(self, error: BaseException, step: Delivering) -> None:
        self._end_calls(step)

    def _end_calls(self, step: Delivering) -> None:
        """
        No call of the step is valid from now on.

        Raises:
            Outage: an answer was not kept. The batch is void, whatever the function has made of that.
        """
        delivery: Delivery | None = step.kept(self)
        if delivery is not None:
            delivery.over = True
            if delivery.outage is not None:
                kept = delivery.outage
                raise Outage(str(kept), code=kept.code, remedy=kept.remedy) from kept

    def end_step(self, step: Delivering) -> None:
        """The answers to its calls are deleted from the journal with it, also where it ends without a call."""
        self._end_calls(step)
        deleting, size = self._calls.ended(step.consumed)
        for row in deleting:
            step.batch.records.add(*row)
        step.batch.size += size


def _hash(step: Delivering) -> str:
    return step.hash(step.consumed).hex()
