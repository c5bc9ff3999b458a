"""The trail of a processor: one record for each step that ends, in the transaction of the step's outcome."""

from __future__ import annotations

from typing import Any

from cues_kafka.core.task import Task
from cues_kafka.graph.message import Message
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.outputs import Payload, Target, payload
from cues_kafka.task.parts.participant import StepParticipant


class Trailing(StepParticipant):
    """
    Writes down how each step of a task ended.

    A record is made when its step ends, and belongs to its place in the batch: where steps are taken back and called
    again, the one of the new call takes the place of the old one.
    """

    each = True  # a loop for a whole chunk does not say how each of its steps ended

    def __init__(self, target: Target) -> None:
        self._target = target
        self._made: list[Payload] = []  # by the number of the step in the open batch

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """What was called before, and is not committed, is void."""
        self._made, batch.more = [], True

    def end_step(self, step: Delivering) -> None:
        batch = step.batch
        del self._made[batch.deliveries :]
        value = {
            "processor": batch.spec.processor,
            "task": batch.spec.name,
            "consumed": [
                {"topic": message.topic(), "partition": place.partition, "offset": place.offset}
                for (_, message), place in zip(step.taken, step.consumed, strict=False)
            ],
            "hash": step.hash(step.consumed).hex(),
            "begun_by": "messages" if batch.begun_by is None else batch.begun_by.place,
            "outcome": "nothing" if step.outcome == "nil" else step.outcome,
            "outputs": step.messages,
            "time_ms": batch.today(),
        }
        # In the task's own partition, so that the records of a task are in the order of its steps.
        partition = batch.spec.partition % self._target.partitions
        key = value["hash"]
        self._made.append(payload(self._target, Message(value, key=key, partition=partition), None))

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """Add them with the batch, before a target commits it."""
        caller.adding.add_drained(self._made[: batch.deliveries], batch)
