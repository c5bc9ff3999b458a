"""One task in a process: its interpreter, what was fetched for it, and the batch that its user code fills.

A worker, a Spark slot or a `Tester` calls `work`, which calls user code and returns the next event. It hands that event
to `advance`, on the same thread or on another one. In a recovery the interpreter calls `assign`, which voids everything
that was fetched and called before.

Three threads meet here. The *calling* one is in `work` and `finish`, the *advancing* one in `advance`, and the thread
that *serves the group* in `revoke` and `lose`. What they share is on the `Desk`, whose lock says what it guards. The
interpreter's lock is held while an event is handled. A thread that takes both takes the interpreter's first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Doing, Task
from cues_kafka.errors import RetriableError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.ports.broker import Broker, Inlet
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions
from cues_kafka.ports.observer import Observer
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.ahead import COMMITTING, CallsAhead, check_follows
from cues_kafka.task.alone import ASK_AGAIN_S, Alone
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.desk import Desk
from cues_kafka.task.filling import Filling
from cues_kafka.task.interpreter import CommitOffsets, Hook, Interpreter, World
from cues_kafka.task.lookups import Lookups
from cues_kafka.task.seen import Calling, Seen
from cues_kafka.task.session_of import TaskSession

__all__ = ["RECOVERY_PATIENCE_S", "RESTART_FIRST_S", "RESTART_MAX_S", "Calling", "Lane"]

RECOVERED = COMMITTING | {Doing.READY, Doing.CALLING}
"""States of a task that has recovered."""

RECOVERY_PATIENCE_S = 0.5
"""How long a revocation waits for a task in R1 to R5: one answer of a healthy cluster."""

RESTART_FIRST_S = 1.0
RESTART_MAX_S = 60.0


class Lane(Seen):
    """
    One task at work: effects and events.

    Attributes:
        spec: the task's.
        interpreter: does what the core decides.
        ahead: whether the last `work` called user code ahead of a commit under way, or committed a part of a batch.
            Then call it again soon.
        calls_ahead: calls user code while a commit is under way.
        stopped: why the task stopped; None while it works.
        stopped_at: `at` and `hash` of the message that it stopped at, if there was one.
        cause: the user's exception behind the stop.
    """

    def __init__(
        self,
        spec: Spec,
        caller: Caller,
        *,
        broker: Broker,
        clock: Clock,
        point_reader: Callable[[Any, Positions], None],
        membership: Callable[[], GroupMetadata],
        policy: CommitPolicy,
        hook: Hook | None = None,
        alone: Alone | None = None,
        inlet: Inlet | None = None,
        observers: Sequence[Observer] = (),
        commit_offsets: CommitOffsets = lambda _, __: None,
        wake: Callable[[], None] = lambda: None,
        fills: Callable[[Desk], Filling] = Filling,
        session_of: Callable[[Interpreter], TaskSession] | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        self.spec = spec
        self._alone, self._point_reader = alone or Alone(), point_reader
        self._pending = 0
        self._under_way: tuple[on.Event, Batch | None] | None = None
        self._deferred: list[on.Event] = []
        self.stopped: on.Halt | None = None
        self.stopped_at: Mapping[str, str] = {}
        self.cause: BaseException | None = None
        self._working, self._restart_s, self._restart_at_s = False, RESTART_FIRST_S, 0.0
        context = caller.context_of(spec)
        world = World(
            *(broker, clock, self.assign, membership, hook, caller.batch_bytes, inlet, observers),
            asked=next(iter(context.at.ask), None),
            commit_offsets=commit_offsets,
            waits=lambda: wake() if self.wakes_to_call_ahead else None,
            session_of=session_of,
            lookups=lookups,
        )
        self.interpreter = interpreter = Interpreter(spec, world)
        self._desk = Desk(spec, caller, context, interpreter, clock=clock, policy=policy)
        self._filling = fills(self._desk)
        self.calls_ahead = CallsAhead(self._desk, self._filling.fill)
        around = Surroundings(
            *(broker, clock),
            lambda seconds: interpreter.gate.wait(seconds),  # noqa: PLW0108  a `Tester` changes the gate
            lambda: interpreter.gate.closed,
            interpreter.point,
        )
        for part in context.at.connect:
            part.connect(around)

    @property
    def ahead(self) -> bool:
        return self._desk.ahead

    @property
    def wakes_to_call_ahead(self) -> bool:
        """Whether the caller is woken when a commit begins to wait (P7); else what is fetched wakes it."""
        return bool(self._desk.at.free) and self.calls_ahead.held_alone

    # Advancing

    def assign(self, positions: Positions) -> None:
        """Void everything that was fetched and called, and point the reader: positions come from recoveries (R6)."""
        desk, record = self._desk, self.task.record
        buffer = self._filling.new_buffer(positions)
        # The buffer first: from then on the calling thread leaves nothing, whatever it still calls. Then what it has
        # left is void. Then the participants read what is committed. The reader comes last: messages wait for them.
        desk.renew(buffer)
        self._filling.void()
        for part in desk.at.restore:
            part.restore(record, positions)
        desk.due_at_s = self._filling.announcing.wake_at_s()
        self._point_reader(self, buffer.starts)

    def post(self) -> None:
        """Announce an event for `advance`. Until `advance` is through with it, user code is at most called ahead."""
        with self._desk.lock:
            self._pending += 1

    def advance(self, event: on.Event) -> None:
        """Hand a posted event to the task, unless it comes too late."""
        with self.interpreter.lock:
            if self.interpreter.awaits_session:  # it is heard behind what is under way
                self._deferred.append(event)
                return
            try:
                if not self._is_late(event):
                    self._filling.advance(event, self._advance)
            finally:
                self._end()

    def resume(self, answer: on.Event) -> None:
        """
        Hand the answer of its session to a task that waits for it (`Interpreter.awaits_session`).

        The event that it went out from is over when the task waits for its session no more.
        """
        with self.interpreter.lock:
            interpreter = self.interpreter
            if interpreter.gate.lost or not interpreter.awaits_session:
                return
            try:
                effect = interpreter.resume(answer)
                if self._under_way is not None and not interpreter.awaits_session:
                    (event, batch), self._under_way = self._under_way, None
                    self._went(event, batch, effect)
            finally:
                self._end()
                interpreter.over.notify_all()

    def _end(self) -> None:
        """An event is through, unless the task waits for its session."""
        if self.interpreter.awaits_session:
            return
        if self.task.settled and not self.task.left_due:  # an outage may stop it before it has said `left`
            self._alone.release(self)
        deferred, self._deferred = self._deferred, []
        with self._desk.lock:
            self._pending = max(0, self._pending - 1)
        for event in deferred:
            self.advance(event)

    def _is_late(self, event: on.Event) -> bool:
        """Whether the task was given up, or a recovery has voided what the event reports."""
        state = self.task.state
        if self.interpreter.gate.closed or state is Doing.RELEASED:
            return True
        if isinstance(event, on.Polled | on.Called | on.Idle):
            return self._desk.worked_on is not self.buffer or state not in (Doing.READY, Doing.CALLING)
        if isinstance(event, on.Failed):
            return state in (Doing.NEW, Doing.STOPPED)
        return state not in (Doing.NEW, Doing.STOPPED)

    def _advance(self, event: on.Event) -> None:
        desk, batch = self._desk, None
        if isinstance(event, on.Called):
            batch = desk.closed
            assert batch is not None
            check_follows(self.task, batch)
            if event.halt and event.halt.kind != "retry":
                self.cause = batch.cause
                self.interpreter.about = {key: batch.about[key] for key in ("at", "hash") if key in batch.about}
        effect = self.interpreter.advance(event, () if batch is None else (batch.records,))
        if self.interpreter.awaits_session:
            self._under_way = event, batch
        else:
            self._went(event, batch, effect)

    def _went(self, event: on.Event, batch: Batch | None, effect: do.Effect | None) -> None:
        """What an event led to is over."""
        desk = self._desk
        if batch is not None:
            desk.closed = None
            self._filling.settle(batch)
        if isinstance(effect, do.Stop):
            self.stopped, self.stopped_at, self.interpreter.about = effect.halt, self.interpreter.about, {}
            self._restart_at_s = desk.clock.monotonic() + self._restart_s
            self._restart_s = min(self._restart_s * 2, RESTART_MAX_S)
        elif isinstance(event, on.Called | on.Idle) and isinstance(effect, do.Await):
            desk.committed_at_s = desk.clock.monotonic()
            desk.limit = min(desk.limit * 2, desk.policy.max_messages)
            self._restart_s = RESTART_FIRST_S
            if isinstance(event, on.Idle):
                for part in desk.at.moved:
                    part.moved(self.task.positions)
        self._filling.went(event, self._advance)

    def fail(self, text: str, remedy: str = "") -> on.Event:
        """The event for an input that cannot be read on (A2, R6)."""
        return self._desk.fail(text, remedy)

    def hurry(self) -> None:
        """If the task is stopped, recover it at once: what it lacked is there now."""
        self._restart_s = RESTART_FIRST_S
        self._restart_at_s = self._desk.clock.monotonic()

    # Serving the group

    def revoke(self, timeout_s: float, *, in_group: bool = True, patience_s: float = RECOVERY_PATIENCE_S) -> bool:
        """
        Leave in order (A3): wait for a transaction past P5, commit `left` where it is due, release.

        The task does not wait for user code, whose result is thrown away, and only briefly for a recovery, which has
        written nothing. With no time left, a task that would have to recover in order to commit what it owes goes
        without.

        Args:
            timeout_s: how long it may wait.
            in_group: whether the worker is still a member of its group. If not, the group refuses what it owes, and a
                task that recovered in order to commit it would only fence its successor. So it goes without.
            patience_s: how long it waits for a recovery; the tasks of a worker share it.

        Returns:
            Whether the task was released; else it was abandoned in the middle of what it did.
        """
        interpreter = self.interpreter
        # The gate first: from then on no transaction begins, while this thread waits for the one that has.
        interpreter.gate.close()
        interpreter.log.catch_up(at_once=True)
        task = self.task
        recovering = task.state not in RECOVERED and not (task.owes and in_group)
        deadline = self._desk.clock.monotonic() + timeout_s
        patience_s = max(0.0, min(timeout_s, patience_s) if recovering else timeout_s)
        if not (interpreter.leave(patience_s) and interpreter.lock.acquire(timeout=patience_s)):
            interpreter.gate.close(lost=True)
            self._let_go()
            return False
        try:
            task = self.task
            if task.state is not Doing.RELEASED:
                late = timeout_s < 0 and task.owes
                lost = task.state not in RECOVERED and (late or not in_group)
                interpreter.advance(*((on.Lost(), ()) if lost else self._filling.revoked()))
            return self._released(deadline)
        finally:
            self._let_go()
            interpreter.lock.release()

    def _released(self, deadline: float) -> bool:
        """Wait for what the task still commits through its session; whether it has."""
        interpreter = self.interpreter
        left_s = max(0.0, deadline - self._desk.clock.monotonic())
        if interpreter.over.wait_for(lambda: not interpreter.awaits_session, left_s):
            return True
        interpreter.gate.close(lost=True)
        interpreter.advance(on.Lost())
        return False

    def lose(self) -> None:
        """Give the task up without waiting or writing: another worker has its partition (A3)."""
        interpreter = self.interpreter
        interpreter.gate.close(lost=True)
        self._let_go()
        if interpreter.lock.acquire(blocking=False):
            try:
                if self.task.state is not Doing.RELEASED:
                    interpreter.advance(on.Lost())
            finally:
                interpreter.lock.release()

    def _let_go(self) -> None:
        self._alone.release(self)
        self._filling.void()
        for part in self._desk.at.close:
            part.close()

    def give_up(self) -> None:
        """Have other tasks no longer wait for user code of this lost task that does not return (Q2a)."""
        self._alone.forget(self)

    # Calling

    def work(self) -> on.Event | None:
        """
        Call user code where that is due, and return what happened.

        Returns:
            An event for `advance`, already posted; None: nothing to do now, or see `ahead`.
        """
        desk = self._desk
        self._working = True
        desk.ahead, desk.ask_at_s = False, None
        self.interpreter.log.catch_up()
        try:
            event = self._work()
            if event is not None:
                self.post()
            return event
        finally:
            desk.due_at_s = self._filling.announcing.wake_at_s()
            self._working = False

    def finish(self) -> on.Event | None:
        """Like `work`, for a task that is held back: what was called is committed, and nothing more is called."""
        desk = self._desk
        if self.busy:
            self.calls_ahead.hold_briefly()
        must_be_alone = self.task.alone and isinstance(
            self.interpreter.effect, do.Await | do.Call
        )  # Q2a: not called yet
        if self.busy or (self.at_rest and not must_be_alone):
            return None
        desk.finishing = True
        try:
            return self.work()
        finally:
            desk.finishing = False

    def _work(self) -> on.Event | None:
        desk, interpreter = self._desk, self.interpreter
        if interpreter.gate.closed:
            return None
        if self.busy:
            self.calls_ahead.hold_briefly()
            if self._alone.enter(self, desk.clock.monotonic()):
                try:
                    self._call_ahead()
                finally:
                    self._alone.leave(self)
            return None
        # The three are read together. A failed read, another topic id or a revocation may void them at any moment from
        # now on; then the event that comes of them is late when it arrives at `advance`.
        if not interpreter.lock.acquire(blocking=False):
            return None
        try:
            task, effect, buffer = self.task, interpreter.effect, desk.buffer
            desk.worked_on = buffer
        finally:
            interpreter.lock.release()
        if isinstance(effect, do.Stop):
            return self._restart()
        if buffer is None or not isinstance(effect, do.Await | do.Call | do.Quarantine):
            return None
        if desk.retrying and desk.batch is None and desk.clock.monotonic() < desk.retry_at_s:
            return None
        return self._answer_exclusively(task, buffer, effect)

    def _restart(self) -> on.Event | None:
        if self._desk.clock.monotonic() < self._restart_at_s:
            return None
        self.stopped = self.cause = None
        return on.Assigned()

    def _call_ahead(self) -> None:
        """Call user code while a commit is under way (P7), unless something else comes next."""
        desk = self._desk
        if desk.finishing or desk.failed is not None:
            return
        # In this order: what is taken from an old buffer is void. An old task with a new buffer would skip messages.
        buffer = desk.buffer
        task = self.task
        if buffer and self._filling.announcing.next_source(task, buffer) is not None:
            return  # what is called ahead would be committed first
        if buffer and desk.retrying is None:
            desk.ahead = self.calls_ahead.call(task, buffer)

    def _answer_exclusively(
        self, task: Task, buffer: Buffer, effect: do.Await | do.Call | do.Quarantine
    ) -> on.Event | None:
        """
        Answer the effect, unless another task of the process is alone now, or this one must be and cannot (Q2a).

        A task that has nothing to do yet lets the others run, but not above its own snapshot: a death would count.
        """
        desk = self._desk
        if desk.finishing and task.alone:
            return self._retriable_as_failed(self._let_others_run, task, buffer, effect)
        now = desk.clock.monotonic()
        takes = task.alone and isinstance(effect, do.Await)
        alone = takes and self._alone.take(self, now)
        if takes and self.interpreter.gate.closed:  # it may have been released already, for the last time
            self._alone.release(self)
            return None
        if (takes and not alone) or not self._alone.enter(self, now):
            desk.ask_at_s = now + ASK_AGAIN_S  # and goes on to wish to be alone
            return self._retriable_as_failed(self._filling.finish_ahead, task, buffer, effect)
        event = None
        try:
            event = self._retriable_as_failed(self._filling.answer, task, buffer, effect)
            return event
        finally:
            self._alone.leave(self)
            if takes and event is None and task.settled:
                self._alone.release(self)

    def _let_others_run(self, task: Task, buffer: Buffer, effect: do.Effect) -> on.Event | None:
        """
        A task that is held back is not alone meanwhile (Q2a).

        Above its own snapshot a death would count. So there it goes on to the call, and says `left` in its place, like
        a step that is to be called again later.
        """
        if isinstance(effect, do.Call):
            return self._filling.put_off(task, buffer, effect)
        if task.settled:
            self._alone.release(self)
            return None
        return self._filling.announcing.polled(task, buffer)

    def _retriable_as_failed(self, work: Callable[..., on.Event | None], *given: Any) -> on.Event | None:
        try:
            return work(*given)
        except RetriableError as error:  # of a participant, or of a codec's registry
            return self.fail(str(error), error.remedy)
