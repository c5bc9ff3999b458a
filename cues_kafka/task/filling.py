"""Fills the batches of a task: calls user code for what comes next, up to the policy's limits, and closes them.

All methods are the calling thread's, but for those that say that they are the advancing one's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt
from cues_kafka.core.task import Doing, Task
from cues_kafka.observe.tally import CommitMeter
from cues_kafka.ports.log import Positions
from cues_kafka.task.announcing import CHUNK_S, Announcing
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.calling.pairing import Buffer, buffer_of
from cues_kafka.task.desk import Desk
from cues_kafka.task.interpreter import Records
from cues_kafka.task.parts.source import StepSource

MAX_CHUNK = 2048


class Filling:
    """
    Fills the batches of one task.

    Attributes:
        desk: what the lane works on.
        announcing: says what comes next.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.announcing = Announcing(desk)
        self._meters = [one for one in desk.interpreter.observers if isinstance(one, CommitMeter)]

    @property
    def waits(self) -> bool:
        """Whether outcomes of what was called wait for a commit that does not come by itself. For any thread."""
        return False

    # Advancing

    def new_buffer(self, positions: Positions) -> Buffer:
        """What takes the messages from these positions on, and requests to replay behind the record's (Y1)."""
        return buffer_of(self.desk.spec, positions, self.desk.task.record)

    def advance(self, event: on.Event, go: Callable[[on.Event], None]) -> None:
        """Hand an event to the task by `go`."""
        go(event)

    def went(self, event: on.Event, go: Callable[[on.Event], None]) -> None:
        """What came of an event is over; `go` hands another one to the task."""

    def revoked(self) -> tuple[on.Event, Records]:
        """The event for a revocation in order, with what it has to commit. On the thread that serves the group."""
        return on.Revoked(), ()

    def settle(self, batch: Batch) -> None:
        """Tell participants and observers whether the batch is committed: the newest record shows it (R4)."""
        desk, record = self.desk, self.desk.task.record
        if not isinstance(record, Attempt) or (record.sequence, record.writer) != (batch.sequence, desk.spec.writer):
            self.void()
            return
        for part in desk.at.committed:
            part.committed(batch, record)
        report = batch.report()
        for observer in desk.interpreter.observers:
            observer.committed(desk.spec.name, report)
        self.measure(batch)

    def measure(self, batch: Batch) -> None:
        """Tell those that measure commits."""
        for meter in self._meters:
            meter.measured(self.desk.spec.name, self.desk.clock.monotonic() - self.desk.closed_s, batch.size)

    def void(self) -> None:
        """What was called is void. On any thread."""
        for part in self.desk.at.void:
            part.void()

    # Calling: the answers to effects

    def answer(self, task: Task, buffer: Buffer, effect: do.Await | do.Call | do.Quarantine) -> on.Event | None:
        """What the task waits for; None: it is not there yet."""
        if isinstance(effect, do.Await):
            return self.await_(task, buffer)
        if (source := self.announcing.of(effect)) is not None:
            return source.deliver(self, task, buffer, effect)
        if isinstance(effect, do.Call):
            return self.call(task, buffer, effect)
        return self._quarantine(task, buffer, effect)

    def await_(self, task: Task, buffer: Buffer) -> on.Event | None:
        """The task waits for messages: call user code for them, and close the batch when that is due."""
        desk = self.desk
        now_s = desk.clock.monotonic()
        with desk.lock:
            failed, desk.failed = desk.failed, None
        if failed is not None:
            return failed
        for part in desk.at.broken:
            if (why := part.broken()) is not None:
                return desk.fail(why)
        if (source := self.announcing.next_source(task, buffer)) is not None:
            return source.announce(desk, task, buffer)
        if task.snapshot_due:
            return self.announcing.polled(task, buffer)
        if not desk.finishing:
            self.fill(task, buffer, once=False)
            if self._keep(task, buffer):
                desk.ahead = True  # of Kafka's transaction; meanwhile more is fetched, and other tasks have their turn
                return None
        with desk.lock:
            batch, desk.batch = desk.batch, None
        if batch is None:
            return self.announcing.idled(task, buffer, now_s)
        return self.close(task, batch)

    def call(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        """Call user code under a snapshot (P4), for exactly what was polled."""
        desk = self.desk
        cut = desk.take_cut(buffer)
        if cut is None:
            return None
        batch = self.open(task, buffer, call.starts)
        batch.tail_ends = call.tail_ends
        steps, done = cut.steps, 0
        deadline = desk.clock.monotonic() + desk.policy.max_seconds
        while done < len(steps) and not (batch.halt or batch.closed or desk.interpreter.gate.closed):
            done += self.call_chunk(task, steps[done : done + self.chunk_size(len(steps))], batch, buffer)
            if batch.size >= desk.policy.max_bytes or desk.clock.monotonic() >= deadline:
                break  # what was called is committed; the rest comes with the next batch
        batch.ends = cut.ends if done == len(steps) else buffer.ends_before(steps[done:])
        return self.close(task, batch)

    def _quarantine(self, task: Task, buffer: Buffer, quarantine: do.Quarantine) -> on.Event | None:
        """End a step as an error without calling user code (Q3)."""
        cut = self.desk.take_cut(buffer)
        if cut is None:
            return None
        batch = self.open(task, buffer, quarantine.starts)
        if batch.halt is None:
            self.quarantined(lambda: self.desk.caller.quarantine(cut.steps[0], batch))
            batch.ends = cut.ends
        return self.close(task, batch)

    def quarantined(self, end: Callable[[], object]) -> None:
        """End a step between the crash points of that."""
        self.desk.interpreter.point("before", "Quarantine")
        end()
        self.desk.interpreter.point("after", "Quarantine")

    def put_off(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        """Give back what was polled for a call that does not begin."""
        source = self.announcing.of(call)
        if source is not None:
            if not self.desk.is_present(buffer):
                return None
            source.put_back(buffer)
        elif (cut := self.desk.take_cut(buffer)) is not None:
            buffer.put_back(cut.steps)
        else:
            return None
        batch = self.open(task, buffer, call.starts)
        batch.halt = on.Halt("retry", "the task is paused")
        return self.close(task, batch)

    # Calling: a batch

    def fill(self, task: Task, buffer: Buffer, *, once: bool) -> int:
        """Call user code for what is there, up to the policy's limits or for one chunk; gives how many steps ended."""
        desk = self.desk
        with desk.lock:
            if desk.buffer is not buffer:
                return 0
            batch = desk.batch
        limit = 1 if task.careful else desk.limit
        batch, fired = self._fire_due(task, buffer, batch, limit)
        batch, done = self._fill(task, buffer, batch, limit, once=once)
        with desk.lock:
            if desk.buffer is buffer:
                desk.batch = batch
        return done + fired

    def _fire_due(self, task: Task, buffer: Buffer, batch: Batch | None, limit: int) -> tuple[Batch | None, int]:
        """Call for what is due before the next message; gives how many steps ended."""
        fired = 0
        for source in self.announcing.sources:
            if not (batch and (batch.halt or batch.closed)) and source.is_due():
                batch = batch or self.open(task, buffer, most=limit)
                fired += self.fire(source, task, batch, limit - batch.deliveries, buffer)
                batch.closed = batch.closed or task.careful
        return batch, fired

    def _fill(
        self, task: Task, buffer: Buffer, batch: Batch | None, limit: int, *, once: bool
    ) -> tuple[Batch | None, int]:
        """Call for messages; gives how many of their steps ended."""
        desk = self.desk
        left = ready = min(buffer.ready, limit - (batch.deliveries - batch.kept if batch else 0))
        deadline = desk.clock.monotonic() + desk.policy.max_seconds
        while left > 0 and not (batch and (batch.halt or batch.closed or batch.size >= desk.policy.max_bytes)):
            if batch is None:
                batch = self.open(task, buffer, most=limit)
                if batch.halt:
                    break
            cut = self.announcing.next_cut(task, buffer, min(left, self.chunk_size(left)))
            if not cut.steps:
                break
            done = self.call_chunk(task, cut.steps, batch, buffer)
            if done < len(cut.steps):
                rest = cut.steps[done:] if done >= 0 else [*batch.steps[done:], *cut.steps]
                batch.ends = buffer.ends_before(rest)
            else:
                batch.ends = cut.ends
            left -= done
            if once or desk.interpreter.gate.closed or desk.clock.monotonic() >= deadline:
                break
        return batch, ready - left

    def open(self, task: Task, buffer: Buffer, starts: int = 0, *, most: int = 0) -> Batch:
        """Begin a batch. It may be halted already."""
        desk = self.desk
        topic_ids = {p.binding: p.topic_id for p in task.positions}
        clock, policy = desk.clock, desk.policy
        batch = Batch(
            *(desk.spec, task.next_sequence, topic_ids, desk.context, starts),
            most=most,
            most_bytes=policy.max_bytes,
            buffer=buffer,
            now=clock.monotonic,
            today=Now(clock.time),
        )
        batch.until_s = batch.began_s + policy.max_seconds
        for part in desk.at.begin_batch:
            part.begin_batch(batch, task)
            if batch.halt:
                break
        return batch

    def chunk_size(self, left: int) -> int:
        """How many of the steps that are left the next call gets."""
        desk = self.desk
        return left if desk.caller.processor.batch else max(desk.chunk, desk.caller.least_steps)

    def call_chunk(self, task: Task, steps: list[Any], batch: Batch, buffer: Buffer) -> int:
        """Call user code for one chunk; gives how many of its steps ended."""
        desk = self.desk
        self._before(task, batch)
        began, before = desk.clock.monotonic(), batch.deliveries
        retrying, desk.retrying = desk.retrying, None
        desk.interpreter.point("before", "Call")
        desk.calling = steps, batch, batch.begun_by_messages
        try:
            done = desk.caller.run(steps, batch, retrying)
        finally:
            desk.calling = None
        desk.interpreter.point("after", "Call")
        quick = desk.clock.monotonic() - began < CHUNK_S
        desk.chunk = min(desk.chunk * 2, MAX_CHUNK) if quick else max(1, desk.chunk // 2)
        if batch.halt and batch.halt.kind == "retry":
            self._retry_later(retrying if batch.deliveries == before else None, buffer, batch.about)
        return done

    def fire(self, source: StepSource, task: Task, batch: Batch, most: int, buffer: Buffer) -> int:
        """Call for what is due of a source; gives how many steps ended."""
        desk, retrying = self.desk, None
        if desk.retried is source:  # else it is of a message, which comes behind these steps
            retrying, desk.retrying = desk.retrying, None
        before = batch.deliveries
        self._before(task, batch)
        desk.interpreter.point("before", "Call")
        desk.calling = [], batch, 0
        try:
            source.fire(desk.caller, batch, most, retrying)
        finally:
            desk.calling = None
        desk.interpreter.point("after", "Call")
        batch.ends = batch.ends or buffer.positions
        if batch.halt and batch.halt.kind == "retry":
            self._retry_later(retrying if batch.deliveries == before else None, buffer, batch.about, of=source)
        return batch.deliveries - before

    def _before(self, task: Task, batch: Batch) -> None:
        """Wait for what the calls may not begin without; their messages are fetched by now."""
        for part in self.desk.at.before_chunk:
            part.before_chunk(batch, task, lambda: self.desk.interpreter.gate.closed)

    def _retry_later(
        self, before: Retrying | None, buffer: Buffer, about: Mapping[str, Any], *, of: StepSource | None = None
    ) -> None:
        """Remember to call the same step again after a pause that doubles, outside of any transaction."""
        desk, retry = self.desk, self.desk.caller.processor.retry
        assert retry
        now = desk.clock.monotonic()
        attempt = before.attempt if before else 0
        pause_s = min(retry.first_s * 2.0 ** min(attempt, 64), retry.max_s)
        with desk.lock:
            if desk.buffer is not buffer:
                return
            desk.retrying = Retrying(attempt + 1, before.since_s if before else now)
            desk.retried, desk.retry_at_s = of, now + pause_s
        for observer in desk.interpreter.observers:
            observer.retried(desk.spec.name, about, attempt + 1, pause_s)

    def _keep(self, task: Task, buffer: Buffer) -> bool:
        """E1: commit what was called, if more may be called before Kafka's transaction; whether that was done."""
        desk = self.desk
        if not desk.at.keep:
            return False
        with desk.lock:
            batch = desk.batch if desk.buffer is buffer else None
        if batch is None or not any(
            part.keep(batch, task, limit=desk.limit, void=desk.is_void) for part in desk.at.keep
        ):
            return False
        batch.kept = batch.deliveries
        batch.parts += 1
        desk.limit = min(desk.limit * 2, desk.policy.max_messages)  # as behind a commit of Kafka: small ones cost most
        return True

    def close(self, task: Task, batch: Batch) -> on.Event | None:
        """Make the event that commits an open batch. The commit that it was called ahead of is known by now (P7)."""
        desk = self.desk
        desk.closed, desk.closed_s = batch, desk.clock.monotonic()
        # In their order: what is added to the batch comes before a target commits all of it (E1). Each may wait, and
        # meanwhile the batch may become void. Then nothing of it is written.
        for part in desk.at.seal:
            if batch.deliveries and desk.is_void():
                return None
            part.seal(batch, task, desk.caller)
        halt = batch.halt
        if halt and halt.kind == "retry" and not batch.deliveries:
            return None if desk.task.state is Doing.READY else on.Called((), batch.totals, halt)
        return batch.called()

    def finish_ahead(self, task: Task, buffer: Buffer, effect: do.Effect) -> on.Event | None:
        """
        Commit what is held of calls ahead, while another task of the process is alone; nothing is called.

        What it has locked may be what the other one's call waits for.
        """
        desk = self.desk
        if desk.batch is None or not desk.at.free or not isinstance(effect, do.Await):
            return None
        desk.finishing = True
        try:
            return self.await_(task, buffer)
        finally:
            desk.finishing = False
