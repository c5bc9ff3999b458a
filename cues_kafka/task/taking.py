"""At-most-once at work: a batch is taken before it is called, and its outcomes wait for the next take (W1, W2)."""

from __future__ import annotations

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Totals
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import RetriableError
from cues_kafka.ports import BatchReport, Positions
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.pairing import Buffer, Cut, behind
from cues_kafka.task.calling.turnstile import Turnstile
from cues_kafka.task.interpreter import Records
from cues_kafka.task.lane import Lane


class TakingLane(Lane):
    """
    A lane of at-most-once.

    Between the transaction that takes a batch and the next one, the interpreter keeps the records of the batch, and the
    core its counts.
    """

    _taken: tuple[Positions, Cut, Batch, Turnstile] | None = None  # where the batch begins, and what is called of it
    _begins: Positions = ()
    _owed: Batch | None = None  # whose outcomes wait
    _failed: on.Failed | None = None  # what happened during a call
    _told = -1  # sequence of the record that the observers heard of last

    @property
    def idle(self) -> bool:
        """Also, no outcome waits."""
        return not self._waits(self.task) and super().idle

    @property
    def at_rest(self) -> bool:
        """Also, no outcome waits."""
        return not self._waits(self.task) and super().at_rest

    @staticmethod
    def _waits(task: Task) -> bool:
        return task.carried is not None and task.carried.due

    def _await(self, task: Task, buffer: Buffer) -> on.Event | None:
        begins = buffer.positions
        if self._finishing:
            return on.Idle(begins) if self._waits(task) else None
        cut = self._next_cut(task, buffer, self._worth_announcing())
        if not cut.steps:
            if self._waits(task):
                return on.Idle(buffer.positions)  # W1: at once
            return self._idled(task, buffer, self._clock.monotonic())
        with self._lock:
            if self.buffer is not buffer:
                return None
            self._begins, self._cut = begins, cut
        return on.Polled(cut.ends, len(cut.steps), cut.choice)

    def _worth_announcing(self) -> int:
        """What a death may drop is no longer than one batch at the present pace."""
        return self._at_this_pace()

    def _called(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        batch, gate = self._open(task), self.interpreter.gate
        turnstile = batch.turnstile = Turnstile(lambda: gate.closed)
        with self._lock:  # at once, because a revocation takes one or the other
            if self.buffer is not buffer:
                return None
            cut, self._cut = self._cut, None
            assert cut
            self._taken = self._begins, cut, batch, turnstile
        steps, done = cut.steps, 0
        deadline = self._clock.monotonic() + self._policy.max_seconds
        while done < len(steps) and not (batch.halt or batch.closed or gate.closed):
            try:
                ended = self._call(steps[done : done + self._chunk_size(len(steps) - done)], batch, buffer)
            except RetriableError as error:  # of a codec's registry: it is heard behind what has ended
                self._failed = on.Failed(str(error), self._clock.monotonic(), remedy=error.remedy)
                batch.back_to(turnstile.ended)
                break
            done += ended
            late = batch.size >= self._policy.max_bytes or self._clock.monotonic() >= deadline
            if not ended or late:
                break
        if gate.closed:
            return None  # who gives the task up says how far the calls came
        started, _ = turnstile.close()
        if started < len(steps):
            buffer.put_back(steps[started:])
        self._closed, self._closed_s = batch, self._clock.monotonic()
        return self._report(cut, started, batch.totals, batch.halt)

    def _report(self, cut: Cut, started: int, totals: Totals, halt: on.Halt | None) -> on.Called:
        """W2: the positions are behind the last step that was started."""
        whole = started == len(cut.steps)
        ends = cut.ends if whole else behind(self.spec.pairing, self._begins, cut.steps[:started])
        return on.Called(ends, totals._replace(taken=started), halt)

    def _revoked(self) -> tuple[on.Event, Records]:
        """W2: nothing starts any more; what has ended is committed, and what was not started is given back."""
        with self._lock:
            taken, cut = self._taken, self._cut
        if self.task.state is not Doing.CALLING:
            return on.Revoked(), ()
        if taken is None:  # no call of the batch has begun
            return on.Revoked(None if cut is None else self._report(cut, 0, Totals(), None)), ()
        _, cut, batch, turnstile = taken
        started, mark = turnstile.close()
        ended = [batch.records[i] for i in range(mark.records)]
        return on.Revoked(self._report(cut, started, mark.totals, None)), (ended,)

    def _advance(self, event: on.Event) -> None:
        if isinstance(event, on.Failed) and self.task.state is Doing.CALLING:
            # It is heard behind the call, which may not have begun yet: nothing that is taken is dropped for it (I16).
            self._failed = event
            return
        super()._advance(event)
        if isinstance(event, on.Called):
            self._taken = None
        self._tell_settled()
        if self._failed is not None and isinstance(event, on.Called):
            failed, self._failed = self._failed, None
            if self.task.state is Doing.READY:
                super()._advance(failed)

    def _settle(self, batch: Batch) -> None:
        self._owed = batch

    def _tell_settled(self) -> None:
        """Tell the observers of a batch, and of drops, once the record that counts them is committed."""
        batch, record = self._owed, self.task.record
        if not isinstance(record, Attempt) or record.writer != self.spec.writer or record.sequence <= self._told:
            return
        self._told = record.sequence
        report = BatchReport(0, 0, 0, 0, 0.0, deaths=0, notes=())
        if batch is not None and record.sequence == batch.sequence:
            self._owed = None
            report = batch.report()
        report = report._replace(dropped=record.batch.dropped)
        if not (report.deliveries or report.dropped):
            return
        for observer in self.interpreter.observers:
            observer.committed(self.spec.name, report)
        if batch is not None and report.deliveries:
            self._measure(batch)
