"""At-most-once at work: a batch is taken before it is called, and its outcomes wait for the next take (W1, W2)."""

from __future__ import annotations

from collections.abc import Callable

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Totals
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import RetriableError
from cues_kafka.ports.log import Positions
from cues_kafka.ports.observer import BatchReport
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.pairing import Buffer, Cut, behind
from cues_kafka.task.calling.turnstile import Turnstile
from cues_kafka.task.filling import Filling
from cues_kafka.task.interpreter import Records


class Taking(Filling):
    """
    Fills the batches of a task of at-most-once.

    Between the transaction that takes a batch and the next one, the interpreter keeps the records of the batch, and the
    core its counts.
    """

    _taken: tuple[Positions, Cut, Batch, Turnstile] | None = None  # where the batch begins, and what is called of it
    _begins: Positions = ()
    _owed: Batch | None = None  # whose outcomes wait
    _failed: on.Event | None = None  # what happened during a call
    _told = -1  # sequence of the record that the observers heard of last

    @property
    def waits(self) -> bool:
        """Whether an outcome waits."""
        carried = self.desk.task.carried
        return carried is not None and carried.due

    # Calling

    def await_(self, task: Task, buffer: Buffer) -> on.Event | None:
        """The task waits for messages: announce what it takes next, or that nothing more is there (W1)."""
        desk, begins = self.desk, buffer.positions
        if desk.finishing:
            return on.Idle(begins) if self.waits else None
        # What a death may drop is no longer than one batch at the present pace.
        cut = self.announcing.next_cut(task, buffer, self.announcing.at_this_pace())
        if not cut.steps:
            if self.waits:
                return on.Idle(buffer.positions)  # W1: at once
            return self.announcing.idled(task, buffer, desk.clock.monotonic())
        with desk.lock:
            if desk.buffer is not buffer:
                return None
            self._begins, desk.cut = begins, cut
        return on.Polled(cut.ends, len(cut.steps), cut.choice)

    def call(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        """Call user code for what was taken, each step once (W2)."""
        desk, gate = self.desk, self.desk.interpreter.gate
        batch = self.open(task, buffer)
        turnstile = batch.turnstile = Turnstile(lambda: gate.closed)
        with desk.lock:  # at once, because a revocation takes one or the other
            if desk.buffer is not buffer:
                return None
            cut, desk.cut = desk.cut, None
            assert cut
            self._taken = self._begins, cut, batch, turnstile
        self._call_all(task, cut, batch, turnstile, buffer)
        if gate.closed:
            return None  # who gives the task up says how far the calls came
        started, _ = turnstile.close()
        if started < len(cut.steps):
            buffer.put_back(cut.steps[started:])
        desk.closed, desk.closed_s = batch, desk.clock.monotonic()
        return self.report(cut, started, batch.totals, batch.halt)

    def _call_all(self, task: Task, cut: Cut, batch: Batch, turnstile: Turnstile, buffer: Buffer) -> None:
        desk, steps, done = self.desk, cut.steps, 0
        deadline = desk.clock.monotonic() + desk.policy.max_seconds
        while done < len(steps) and not (batch.halt or batch.closed or desk.interpreter.gate.closed):
            chunk = steps[done : done + self.chunk_size(len(steps) - done)]
            try:
                ended = self.call_chunk(task, chunk, batch, buffer)
            except RetriableError as error:  # of a codec's registry: it is heard behind what has ended
                self._failed = desk.fail(str(error), error.remedy)
                batch.back_to(turnstile.ended)
                return
            done += ended
            late = batch.size >= desk.policy.max_bytes or desk.clock.monotonic() >= deadline
            if not ended or late:
                return

    def report(self, cut: Cut, started: int, totals: Totals, halt: on.Halt | None) -> on.Called:
        """W2: the positions are behind the last step that was started."""
        whole = started == len(cut.steps)
        ends = cut.ends if whole else behind(self.desk.spec.pairing, self._begins, cut.steps[:started])
        return on.Called(ends, totals._replace(taken=started), halt)

    # Serving the group

    def revoked(self) -> tuple[on.Event, Records]:
        """W2: nothing starts any more; what has ended is committed, and what was not started is given back."""
        with self.desk.lock:
            taken, cut = self._taken, self.desk.cut
        if self.desk.task.state is not Doing.CALLING:
            return on.Revoked(), ()
        if taken is None:  # no call of the batch has begun
            return on.Revoked(None if cut is None else self.report(cut, 0, Totals(), None)), ()
        _, cut, batch, turnstile = taken
        started, mark = turnstile.close()
        ended = [batch.records[i] for i in range(mark.records)]
        return on.Revoked(self.report(cut, started, mark.totals, None)), (ended,)

    # Advancing

    def advance(self, event: on.Event, go: Callable[[on.Event], None]) -> None:
        """Hand an event to the task; a failure is heard behind the call that is under way."""
        if isinstance(event, on.Failed) and self.desk.task.state is Doing.CALLING:
            # The call may not have begun yet: nothing that is taken is dropped for it (I16).
            self._failed = event
            return
        go(event)

    def went(self, event: on.Event, go: Callable[[on.Event], None]) -> None:
        """Forget what was taken, tell what is settled, and hear of a failure that waited for the call."""
        if isinstance(event, on.Called):
            self._taken = None
        self._tell_settled()
        if self._failed is not None and isinstance(event, on.Called):
            failed, self._failed = self._failed, None
            if self.desk.task.state is Doing.READY:
                go(failed)

    def settle(self, batch: Batch) -> None:
        """Its outcomes are committed with the next take."""
        self._owed = batch

    def _tell_settled(self) -> None:
        """Tell the observers of a batch, and of drops, once the record that counts them is committed."""
        spec, batch, record = self.desk.spec, self._owed, self.desk.task.record
        if not isinstance(record, Attempt) or record.writer != spec.writer or record.sequence <= self._told:
            return
        self._told = record.sequence
        report = BatchReport(0, 0, 0, 0, 0.0, deaths=0, notes=())
        if batch is not None and record.sequence == batch.sequence:
            self._owed = None
            report = batch.report()
        report = report._replace(dropped=record.batch.dropped)
        if not (report.deliveries or report.dropped):
            return
        for observer in self.desk.interpreter.observers:
            observer.committed(spec.name, report)
        if batch is not None and report.deliveries:
            self.measure(batch)
