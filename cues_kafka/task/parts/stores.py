"""The stores of a task: their changes are committed with its steps, and read from changelogs in a recovery (R4b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Positions
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.step import Received
from cues_kafka.task.parts.participant import CallContext, StepParticipant
from cues_kafka.task.restoring import Restoring


class Storing(StepParticipant):
    """
    Has the stores follow the batches and steps of their task.

    Attributes:
        stores: the stores.
    """

    apart = True  # a change belongs to the step that began last

    def __init__(self, stores: Stores, spec: Spec) -> None:
        self.stores = stores
        self._spec = spec

    def connect(self, around: Surroundings) -> None:
        spec, self._clock = self._spec, around.clock
        self._restoring = Restoring(around.broker, around.clock, spec.name, spec.partition, spec.group, around.given_up)

    def restore(self, record: Record | None, positions: Positions) -> None:
        """Read the changelogs. Meanwhile no reader of another thread is told of entries."""
        self.stores.stand_at(None)
        self._restoring.bring_up(self.stores, record.stores if record else ())
        self.stores.stand_at(positions)

    def committed(self, batch: Batch, record: Record) -> None:
        """Say what the commit makes true before the entries show it, so that no reader sees one without the other."""
        self.stores.will_stand_at(batch.sequence, record.positions, record.step, self._clock.time())
        self.stores.after_commit(batch.sequence)

    def moved(self, positions: Positions) -> None:
        self.stores.stand_at(positions)

    def void(self) -> None:
        self.stores.discard()

    def close(self, *, orderly: bool = True) -> None:
        self.stores.close(orderly=orderly)

    def broken(self) -> str | None:
        """Why committed changes are not in the entries."""
        return self.stores.failed

    def begin_batch(self, batch: Batch, task: Task) -> None:
        self.stores.begin_batch(batch.sequence)

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """Add the changes behind the outputs."""
        if batch.deliveries:
            self.stores.before_commit(batch.sequence, batch.records)

    def following(self, call: Callable[[Any], Any], time: Callable[[], Callable[[], int]]) -> Callable[[Any], Any]:
        return self.stores.following(call, time() if self.stores.timed else None)

    def begin_step(self, step: Delivering, received: Mapping[str, Received]) -> None:
        self.stores.begin_step()
        if self.stores.timed:
            self.stores.advance(one.timestamp_ms for one in received.values())

    def begin_list(self, steps: Sequence[Delivering], received: Sequence[Mapping[str, Received]]) -> None:
        """One step for all: which of the changes is whose is not known."""
        self.stores.begin_step()
        if self.stores.timed:
            self.stores.advance(one.timestamp_ms for came in received for one in came.values())

    def undo_step(self, error: BaseException, step: Delivering) -> None:
        self.stores.undo_step()


def stores_of(context: CallContext) -> Stores:
    """The stores of a task that has some."""
    storing = context.part(Storing)
    assert storing is not None
    return storing.stores
