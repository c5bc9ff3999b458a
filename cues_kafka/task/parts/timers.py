"""The timers of a task: those that are due begin steps of their own, ahead of the next message (F1 to F4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.task import Task
from cues_kafka.errors import OutputError
from cues_kafka.graph.processor import Processor
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.state.scheduled import Scheduled
from cues_kafka.state.stores import Stores
from cues_kafka.task.alone import ASK_AGAIN_S
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.inheriting import by_text
from cues_kafka.task.calling.outputs import Returned, Target
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.desk import Desk
from cues_kafka.task.filling import Filling
from cues_kafka.task.parts.participant import Moments
from cues_kafka.task.parts.source import Announced, StepSource


class Timing(StepSource):
    """
    Fires the timers of one task.

    Attributes:
        timers: those that are set.
    """

    each = True  # a timer may be due behind each step

    def __init__(
        self,
        processor: Processor,
        stores: Stores,
        targets: Mapping[str, Target],
        given: Mapping[str, Any],
    ) -> None:
        """
        Args:
            processor: the declaration, with timers.
            stores: of the task, with its timers.
            targets: the outputs, by binding.
            given: values of parameters, by name; the timers' function gets those that it names.
        """
        assert processor.timers is not None
        assert processor.timer_call is not None
        assert stores.timers is not None
        self.timers: Scheduled = stores.timers
        self._fn: Callable[..., Any] = processor.timers[1].fn
        self._call = processor.timer_call
        self._stores, self._given = stores, {name: given[name] for name in self._call.context}
        self._returned = Returned(processor.output_shape, by_text(targets), generator=processor.timer_call.is_generator)
        self._bindings = tuple(binding for binding, _ in processor.inputs)

    def connect(self, around: Surroundings) -> None:
        self._clock = around.clock

    # A source

    def is_mine(self, announced: Announced) -> bool:
        return announced.timers

    def is_due(self) -> bool:
        """F2: they come before the next message."""
        self.timers.tell(self._clock.time())
        return self.timers.due is not None

    def wake_at_s(self, task: Task) -> float | None:
        """When the one that comes first is due; None: messages decide that, or something else is announced."""
        timers = self.timers
        if task.due is not None and not task.due.timers:
            return None
        timers.tell(self._clock.time())
        if (first := timers.first) is None or (not timers.clock and first.due_ms > timers.now_ms):
            return None
        return self._clock.monotonic() + max(0.0, first.due_ms - timers.now_ms) / 1000

    def announce(self, desk: Desk, task: Task, buffer: Buffer) -> on.Event | None:
        """F3: due timers come next, and no message. Those that are announced already fire again, all of them."""
        timers = self.timers
        timers.tell(self._clock.time())
        if due := task.due:
            count = due.steps
            if timers.count_due(count) < count:
                if timers.clock:  # that of the process that announced them was ahead
                    desk.ask_at_s = self._clock.monotonic() + ASK_AGAIN_S
                    return None
                text = f"{timers.count_due(count)} of the {count} announced timers are there"
                return desk.fail(text, "find who else writes the changelog of timers")
        else:
            count = timers.count_due(1 if task.careful else desk.limit)
        return on.Polled(task.positions, count, timers=True) if desk.is_present(buffer) else None

    def deliver(self, filling: Filling, task: Task, buffer: Buffer, effect: do.Call | do.Quarantine) -> on.Event | None:
        """Fire those that were announced, or end the first one as an error (Q3)."""
        batch = filling.open(task, buffer, effect.starts)
        if isinstance(effect, do.Call):
            filling.fire(self, task, batch, effect.steps, buffer)
        else:
            filling.quarantined(lambda: self.quarantine(filling.desk.caller, batch))
        batch.ends = effect.ends
        return filling.close(task, batch)

    # Steps

    def introduce(self) -> Mapping[str, Any]:
        return {"timers": self.timers}

    def between(self, caller: Caller, batch: Batch) -> bool:
        """Fire those that the step has made due."""
        return self.fire(caller, batch, batch.most - batch.deliveries)

    def fire(self, caller: Caller, batch: Batch, most: int, retrying: Retrying | None = None) -> bool:
        """
        Call the timers' function for the timers that are due, the one that comes first first (F2).

        Args:
            caller: calls the function.
            batch: gets the results, as with `run`. It is `closed` where timers that are due must wait for the next one.
            most: how many may fire.
            retrying: earlier calls for the first one.

        Returns:
            Whether a message may be delivered next.
        """
        timers = self.timers
        at: Moments = batch.context.at
        if timers.clock:
            timers.tell(batch.today() / 1000)
        while not (batch.halt or batch.closed) and (due := timers.due) is not None:
            if most <= 0 or (batch.deliveries and batch.is_full):
                batch.closed = True
                break
            batch.fired = Fired(batch.spec, due)
            try:
                self._fire(caller, Delivering(batch.fired.taken(self._bindings), batch, retrying, "raised"), due)
            finally:
                batch.fired = None
                for part in at.rest:
                    part.rest()
            most, retrying = most - 1, None
        return not (batch.halt or batch.closed)

    def _fire(self, caller: Caller, step: Delivering, due: Any) -> None:
        at: Moments = step.batch.context.at
        for part in at.enter_step:
            part.enter_step(step)
        try:
            self._deliver(caller, step, due)
        finally:
            for part in at.leave_step:
                part.leave_step(step)

    def _deliver(self, caller: Caller, step: Delivering, due: Any) -> None:
        """F4: the timer is removed with its step, however that ends; only a step that did not end keeps it."""
        batch, timers = step.batch, self.timers
        at: Moments = batch.context.at
        step.fn = self._fn
        self._stores.begin_step()
        for part in at.mark:
            part.mark()
        if not timers.end(due):
            batch.closed = True  # it is void: the task recovers, or leaves
            return
        given = self._given
        if self._call.wants_step:
            caller.one.introduce(step, {})
            given = {**given, "step": step.step}
        try:
            self._settle(caller, step, self._fn(batch.fired.timer, **given))  # type: ignore[union-attr]
        except BaseException as error:
            if not caller.ending.fail(error, step):
                return
            timers.end(due)  # the failure has taken back what the step did
        batch.timers += 1
        if (step.step is not None and step.step.commit_requested) or any(part.alone for part in at.alone):
            batch.closed = True

    def _settle(self, caller: Caller, step: Delivering, result: Any) -> None:
        batch = step.batch
        at: Moments = batch.context.at
        step.kind = "raised" if self._call.is_generator else "output"
        payloads = self._returned.read(result, due_key(batch))
        step.kind, before = "output", batch.mark()
        if payloads:
            caller.adding.add_step(step, payloads)
            batch.outputs += 1
        if why := next((why for part in at.mark if (why := part.check())), ""):
            batch.back_to(before)
            raise OutputError(why)
        step.outcome, step.messages = "outputs" if payloads else "nil", len(payloads)
        for part in at.end_step:
            part.end_step(step)
        batch.deliveries += 1

    def quarantine(self, caller: Caller, batch: Batch) -> None:
        """End the step of the timer that comes first as an error, without calling user code (Q3, F3)."""
        first = self.timers.first
        assert first is not None
        batch.fired = Fired(batch.spec, first)
        try:
            self._stores.begin_step()
            step = Delivering(batch.fired.taken(self._bindings), batch, None, "quarantine", fn=self._fn)
            if caller.give_up(step):
                self.timers.end(first)
                batch.timers += 1
        finally:
            batch.fired = None


def due_key(batch: Batch) -> bytes:
    """The key of the timer that is fired, which outputs inherit."""
    assert batch.fired is not None
    return batch.fired.set.key.encode()
