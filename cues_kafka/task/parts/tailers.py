"""The tailers and appenders of a task: what a step moves and appends is committed with it (L1, L2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Positions, WireMessage
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.imperative import Hands, Stands, ends_of
from cues_kafka.task.calling.outputs import Payload
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.calling.step import Received
from cues_kafka.task.parts.participant import StepParticipant


class Tailing(StepParticipant):
    """Has tailers and appenders follow the steps of their task."""

    each = True  # what is moved and appended belongs to one step
    apart = True  # they have one place for all steps

    def __init__(self, hands: Hands, spec: Spec, key: Callable[[WireMessage], bytes | None]) -> None:
        self._hands, self._spec, self._key = hands, spec, key

    def connect(self, around: Surroundings) -> None:
        self._broker = around.broker
        self._hands.connect(around.broker, around.clock, self._spec.group, around.given_up)

    def attach(self, buffer: Buffer, record: Record | None) -> None:
        """A call of before the recovery moves what hangs on the old buffer, and nothing else."""
        buffer.standing = Stands(record.tails if record else ())

    def close(self, *, orderly: bool = True) -> None:
        """A process that is killed closes no reader."""
        if orderly:
            self._hands.close()

    def idle(self, now_s: float) -> float | None:
        return self._hands.rest(now_s)

    def ends(self, task: Task) -> Positions:
        """S5: the ends that a snapshot holds, but for those that are handed down."""
        if not (self._spec.fixed_views and task.record) or len(task.tail_ends) == len(self._spec.tailers):
            return ()
        return ends_of(self._broker, task.record.tails, self._spec.partition)

    def before_chunk(self, batch: Batch, task: Task, given_up: Callable[[], bool]) -> None:
        assert batch.buffer
        assert batch.buffer.standing
        self._hands.follow(batch.buffer.standing, batch.tail_ends)

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """L2: a copy, because a batch that is called ahead of its commit moves them on."""
        assert batch.buffer
        assert batch.buffer.standing
        batch.tails = batch.buffer.standing.positions

    def begin_step(self, step: Delivering, received: Mapping[str, Received]) -> None:
        self._hands.begin_step(self._key(step.taken[0][1]))

    def outputs(self, payloads: list[Payload], step: Delivering) -> list[Payload]:
        """What was appended comes before what was returned."""
        return self._hands.end_step(payloads)

    def undo_step(self, error: BaseException, step: Delivering) -> None:
        if step.batch.fired is None:  # the function of a timer has none of them
            self._hands.undo_step()
            self._hands.check()
