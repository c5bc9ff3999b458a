"""Requests to replay error messages: each is a batch of its own, with the record that settles it (Y1 to Y3)."""

from __future__ import annotations

from collections.abc import Collection

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Positions
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.calling.replayed import MessageGone, Replayed
from cues_kafka.task.desk import Desk
from cues_kafka.task.filling import Filling
from cues_kafka.task.parts.source import Announced, StepSource
from cues_kafka.task.replaying import Moved, PresentRequest, Replaying


class ReplayRequests(StepSource):
    """Delivers the requests of one task."""

    def __init__(self, spec: Spec, error_topics: Collection[str], moved: Moved = lambda *_: "") -> None:
        """
        Args:
            spec: the task, which has a replay topic.
            error_topics: those of the graph.
            moved: see `Moved`.
        """
        self._spec, self._error_topics, self._moved = spec, error_topics, moved
        self._bindings = [one.binding for one in spec.inputs]
        self._present: tuple[Buffer, PresentRequest] | None = None  # the request that was announced

    def connect(self, around: Surroundings) -> None:
        self._clock = around.clock
        self._replaying = Replaying(self._spec, around.broker, around.clock, self._error_topics, self._moved)

    def restore(self, record: Record | None, positions: Positions) -> None:
        """What another worker has settled is to be read."""
        self._replaying.void()

    def committed(self, batch: Batch, record: Record) -> None:
        if batch.replays and self._present is not None:
            self._replaying.committed(self._present[1])

    def idle(self, now_s: float) -> float | None:
        """Close a reader that was not used for a while."""
        self._replaying.rest()
        return None

    def close(self, *, orderly: bool = True) -> None:
        """A process that is killed closes no reader."""
        if orderly:
            self._replaying.rest(always=True)

    # A source

    def is_mine(self, announced: Announced) -> bool:
        return announced.replay

    def comes_next(self, task: Task, buffer: Buffer) -> bool:
        """Y3: requests come where nothing else waits, or in their share."""
        if not buffer.asked or not task.takes_replays:
            return False
        if task.messages_first and (buffer.ready or not buffer.at_end):
            return False
        return self._replaying.is_due(self._clock.monotonic(), messages=buffer.ready > 0)

    def announce(self, desk: Desk, task: Task, buffer: Buffer) -> on.Event | None:
        """Y1: the next request, whose messages are read before a snapshot says that they are being delivered."""
        assert task.record
        message = buffer.take_request()
        if message is None:
            behind = buffer.without_requests(task.record.replays[0])
            return on.Idle(task.positions, behind) if behind else None
        self._present = buffer, self._replaying.prepare(message, task)
        if not desk.is_present(buffer):
            return None
        return on.Polled(task.positions, 1, tail_ends=desk.ends(task), replay=True)

    def put_back(self, buffer: Buffer) -> None:
        assert self._present
        buffer.put_request_back(self._present[1].request)

    def deliver(self, filling: Filling, task: Task, buffer: Buffer, effect: do.Call | do.Quarantine) -> on.Event | None:
        """Y1, Y2: deliver what was announced, with the record that settles its error message."""
        if not filling.desk.is_present(buffer):
            return None
        assert self._present
        assert task.record
        of, present = self._present
        assert of is buffer
        batch = filling.open(task, buffer, effect.starts)
        if batch.halt is None and present.settled is None and present.replayed is not None:
            batch.replayed = present.replayed
            try:
                self._call(filling, task, present.replayed, batch, effect)
            finally:
                batch.replayed = None
        elif batch.halt is None:
            batch.deliveries += 1
        if batch.deliveries:
            self._replaying.settle(present, batch)
            batch.ends = effect.ends
            batch.behind = (task.record.replays[0]._replace(offset=present.behind),)
        return filling.close(task, batch)

    def _call(
        self, filling: Filling, task: Task, replayed: Replayed, batch: Batch, effect: do.Call | do.Quarantine
    ) -> None:
        caller, step = filling.desk.caller, replayed.step(self._bindings)
        if replayed.gone:
            gone = Delivering(replayed.taken(self._bindings), batch, None)
            caller.ending.fail(MessageGone(replayed.gone), gone)
        elif isinstance(effect, do.Call):
            assert batch.buffer
            batch.tail_ends = effect.tail_ends
            filling.call_chunk(task, [step], batch, batch.buffer)
        else:
            filling.quarantined(lambda: caller.quarantine(step, batch))
