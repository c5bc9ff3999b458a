"""What the steps of a task write besides Kafka, in a sink that is told of batches and steps (`ports.target.Sink`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.core.records import Record
from cues_kafka.core.task import Task
from cues_kafka.ports.target import Sink
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.parts.participant import Run, StepParticipant


class SinkBatches(StepParticipant):
    """Tells a sink how the batches of its task go."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def committed(self, batch: Batch, record: Record) -> None:
        self._sink.after_commit(batch.sequence)

    def void(self) -> None:
        self._sink.discard()

    def begin_batch(self, batch: Batch, task: Task) -> None:
        self._sink.begin_batch(batch.sequence)

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        if batch.deliveries:
            self._sink.before_commit(batch.sequence, batch.records)

    def run(self, inner: Run, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
        """Call for one step at a time, so that the sink can take back what a failed step wrote."""
        before = batch.begun_by_messages
        for taken in caller.through(steps):
            errors = batch.errors
            self._sink.begin_step()
            ended = caller.one.deliver(taken, batch, retrying)
            if not ended or batch.errors > errors:
                self._sink.undo_step()
            if not ended or batch.closed:
                break
            retrying = None
        return batch.begun_by_messages - before
