"""One task in a process: its interpreter, what was fetched for it, and the batch that its user code fills.

A worker, a Spark slot or a `Tester` calls `work`, which calls user code and returns the next event. It hands that event
to `advance`, on the same thread or on another one. In a recovery the interpreter calls `assign`, which voids everything
that was fetched and called before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt
from cues_kafka.core.spec import Spec
from cues_kafka.core.tails import behind
from cues_kafka.core.task import Doing, Task
from cues_kafka.core.writing import owner_of, row_of
from cues_kafka.errors import RetriableError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.tally import CommitMeter
from cues_kafka.ports import Broker, Clock, GroupMetadata, Inlet, Observer, Positions, TransactionalSink
from cues_kafka.records.held import held_of
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.state.scheduled import Scheduled
from cues_kafka.state.stores import Stores
from cues_kafka.task import handling
from cues_kafka.task.ahead import COMMITTING, CallsAhead, OpenBatch, check_follows
from cues_kafka.task.alone import ASK_AGAIN_S, Alone
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.imperative import Stands, ends_of
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.calling.pairing import Buffer, Cut, OutOfOrder
from cues_kafka.task.calling.replayed import Replayed
from cues_kafka.task.interpreter import CommitOffsets, Hook, Interpreter, Records, World
from cues_kafka.task.parts import is_part
from cues_kafka.task.recalling import Recalling
from cues_kafka.task.replaying import PresentRequest, Replaying
from cues_kafka.task.restoring import Restoring

log = get_logger("cues_kafka.task")

FIRST_BATCH = 500
"""Steps of the first batch after a start. Each commit doubles the number, up to the policy's limit. The first batch is
delivered under a snapshot, so after two deaths in it each step is a transaction of its own (Q2). 500 take seconds."""

_AT_WORK = COMMITTING | {Doing.READY, Doing.CALLING}
"""States of a task that has recovered."""

CHUNK_S = 0.01
"""How long a chunk of calls takes, about. Between chunks the lane checks the clock and the gate; other tasks work."""

MAX_CHUNK = 2048

COMMIT_TARGET = "CommitTarget"
"""The crash point before and after the commit of the target (E1)."""

RECOVERY_PATIENCE_S = 0.5
"""How long a revocation waits for a task in R1 to R5: one answer of a healthy cluster."""

RESTART_FIRST_S = 1.0
RESTART_MAX_S = 60.0


class Calling(NamedTuple):
    """
    A call of user code that is under way.

    Attributes:
        steps: the chunk that it belongs to.
        at: the index of its step there.
    """

    steps: list[Any]
    at: int


class Lane:
    """
    One task at work: what was fetched for it, its calls and its batches.

    Attributes:
        spec: the task's.
        interpreter: does what the core decides.
        buffer: what was fetched and not yet taken; None before the first recovery.
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
        point_reader: Callable[[Lane, Positions], None],
        membership: Callable[[], GroupMetadata],
        policy: CommitPolicy,
        hook: Hook | None = None,
        alone: Alone | None = None,
        inlet: Inlet | None = None,
        observers: Sequence[Observer] = (),
        commit_offsets: CommitOffsets = lambda _, __: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self._alone = alone or Alone()
        self._ask_at_s: float | None = None
        self.buffer: Buffer | None = None
        self.ahead = False
        self._pending = 0
        self._worked_on: Buffer | None = None
        self.stopped: on.Halt | None = None
        self.stopped_at: Mapping[str, str] = {}
        self.cause: BaseException | None = None
        self._caller = caller
        self._context = caller.context_of(spec)
        self._broker = broker
        self._clock = clock
        self._restoring = Restoring(
            broker, clock, spec.name, spec.partition, spec.group, lambda: self.interpreter.gate.closed
        )
        self._policy = policy
        self._point_reader = point_reader
        self._lock = threading.Lock()
        self._batch: Batch | None = None
        self._closed: Batch | None = None
        self._closed_s = 0.0  # when its last call had ended (monotonic)
        self._meters = [one for one in observers if isinstance(one, CommitMeter)]
        self._working = False
        self._cut: Cut | None = None
        self._replaying = Replaying(spec, broker, clock, caller.error_topics)
        self._present: PresentRequest | None = None  # the request that was announced
        self._retrying: Retrying | None = None
        self._retries_timer = False
        self._retry_at_s = 0.0
        self._restart_s = RESTART_FIRST_S
        self._restart_at_s = 0.0
        self._limit = min(FIRST_BATCH, policy.max_messages)
        self._chunk = 1
        self._fire_at_s: float | None = None
        self._calling: tuple[list[Any], Batch, int] | None = None
        self._finishing = False  # user code is not called
        self._committed_at_s = clock.monotonic()
        self.calls_ahead = CallsAhead(
            self._context,
            clock,
            self._lock,
            OpenBatch(
                lambda task, buffer: self._fill(task, buffer, once=True),
                self._drop_batch,
                lambda: self.task.state,
                lambda buffer: self.buffer is buffer,
            ),
        )
        world = World(
            *(broker, clock, self.assign, membership, hook, caller.batch_bytes, inlet, observers),
            target=self._context.target,
            commit_offsets=commit_offsets,
            waits=lambda: wake() if self._context.target is not None and self.calls_ahead.held_alone else None,
        )
        self.interpreter = Interpreter(spec, world)
        if (hands := self._context.hands) is not None:
            hands.connect(broker, clock, spec.group, lambda: self.interpreter.gate.closed)

    # What others see.

    @property
    def busy(self) -> bool:
        """Whether an event is on its way to the task."""
        return self._pending > 0

    @property
    def task(self) -> Task:
        """The task as it is now."""
        return self.interpreter.task

    @property
    def stores(self) -> Stores | None:
        """The task's stores; None: it has none."""
        return self._context.stores

    @property
    def missed(self) -> int:
        """How often what calls wait for was not there in time."""
        return sum(one.missed for one in self._context.awaited)

    @property
    def target(self) -> TransactionalSink | None:
        """What commits the task's effects together with its attempts (E1); None: it has none."""
        return self._context.target

    @property
    def ready(self) -> bool:
        """Whether the task has a record and waits for messages, or works on them."""
        return self.task.record is not None and self.buffer is not None

    @property
    def restored(self) -> bool:
        """Whether it is ready, and is not reading its stores and tables. It stays so while the task commits."""
        return self.ready and self.task.state is not Doing.ASSIGNING

    @property
    def delivers(self) -> bool:
        """Whether the recovery is over, with all that it reads, and the task is not stopped."""
        return self.ready and isinstance(self.interpreter.effect, do.Await | do.Call | do.Quarantine)

    @property
    def short(self) -> bool:
        """Whether a range is due that is not yet fetched to its end. Until then nothing is taken from the buffer."""
        due, buffer = self.task.due, self.buffer
        return due is not None and buffer is not None and not buffer.holds(due.ends)

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched, called or on its way."""
        # In the order opposite to that in which a message passes, so that none is missed.
        buffer = self.buffer
        if buffer is None or buffer.ready or buffer.asked or self._working or self.busy:
            return False
        if self._fire_at_s is not None and self._fire_at_s <= self._clock.monotonic():
            return False
        waits = self._batch is None and self._retrying is None and self.calls_ahead.failed is None
        return waits and isinstance(self.interpreter.effect, do.Await)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was called is committed, so that `finish` has nothing to do."""
        return self._batch is None and not self._working and not self.busy

    @property
    def in_parts(self) -> bool:
        """Whether the target has committed a part of the open batch (E1)."""
        batch = self._batch
        return batch is not None and batch.kept > 0

    @property
    def calling(self) -> Calling | None:
        """The call of user code that is under way, for other threads; None: there is none."""
        if (now := self._calling) is None:
            return None
        steps, batch, before = now
        if (fired := batch.fired) is not None:
            return Calling([fired], 0)
        return Calling(steps, self._caller.under_way(steps, batch.begun_by_messages - before)) if steps else None

    def place(self, calling: Calling) -> str:
        """Where the messages of a call stand."""
        return self._caller.place(*calling)

    @property
    def reached(self) -> Positions:
        """The positions. Where everything is delivered, they include the markers behind the last message."""
        buffer = self.buffer
        return buffer.positions if buffer is not None and self.idle else self.task.positions

    @property
    def seen(self) -> dict[str, int]:
        """The offset up to which everything was fetched, by topic."""
        return self.buffer.seen if self.buffer is not None else {}

    @property
    def oldest_s(self) -> float | None:
        """The timestamp of the oldest message that was fetched and not yet called; None: there is none."""
        oldest_ms = self.buffer.oldest_ms if self.buffer is not None else None
        return oldest_ms / 1_000 if oldest_ms is not None else None

    @property
    def wake_at_s(self) -> float | None:
        """When to call `work` again although nothing arrives; None: no need."""
        if self.busy:
            return None
        if isinstance(self.interpreter.effect, do.Stop):
            return self._restart_at_s
        if self._ask_at_s is not None:
            return self._ask_at_s
        return self._retry_at_s if self._retrying else self._fire_at_s

    @property
    def waits_for_timer(self) -> bool:
        """Whether `wake_at_s` is when a timer will be due by the clock."""
        wake, fire = self.wake_at_s, self._fire_at_s
        return wake is not None and wake == fire and fire > self._clock.monotonic()

    def assign(self, positions: Positions) -> None:
        """Void everything that was fetched and called, and point the reader: positions come from recoveries (R6)."""
        with self._lock:
            self.buffer = self._new_buffer(positions)
            if self._context.hands is not None:
                self.buffer.standing = Stands(self.task.record.tails if self.task.record else ())
            self._batch = self._cut = self._retrying = self._present = self.calls_ahead.failed = None
            self._limit = min(FIRST_BATCH, self._policy.max_messages) if self.task.first else self._policy.max_messages
        self._discard_effects()
        self._replaying.void()
        record = self.task.record
        if (stores := self._context.stores) is not None:
            stores.stand_at(None)
            self._restoring.bring_up(stores, record.stores if record else ())
            stores.stand_at(positions)
            self._fire_at_s = self._next_fire_s()
        if (handlers := self._context.handlers) is not None:
            handlers.void(initial=not (record and record.stores))
        if (tables := self._context.tables) is not None:
            spec, gate = self.spec, self.interpreter.gate
            tables.bring_up(
                *(spec.partition, self._broker, self._clock),
                group=spec.group,
                task=spec.name,
                given_up=lambda: gate.closed,
            )
        if (calls := self._context.calls) is not None:
            Recalling(self.spec.name, self.spec.group, self._surroundings()).bring_up(calls, positions)
        self._point_reader(self, positions + self._asked_from())

    def _new_buffer(self, positions: Positions) -> Buffer:
        return Buffer(self.spec.pairing, positions, self._asked_from())

    def _asked_from(self) -> Positions:
        """Where the replay topic is read; empty: it is not."""
        return self.task.record.replays if self.spec.replays and self.task.record else ()

    def _surroundings(self) -> Surroundings:
        """What calls of user code need of the process."""
        interpreter = self.interpreter
        return Surroundings(
            *(self._broker, self._clock),
            interpreter.gate.wait,
            lambda: interpreter.gate.closed,
            interpreter.point,
        )

    # What the shell does.

    def post(self) -> None:
        """Announce an event for `advance`. Until `advance` is through with it, user code is at most called ahead."""
        with self._lock:
            self._pending += 1

    def work(self) -> on.Event | None:
        """
        Call user code where that is due, and return what happened.

        Returns:
            An event for `advance`, already posted; None: nothing to do now, or see `ahead`.
        """
        self._working = True
        self.ahead = False
        self._ask_at_s = None
        self.interpreter.log.catch_up()
        try:
            event = self._work()
            if event is not None:
                self.post()
            return event
        finally:
            self._fire_at_s = self._next_fire_s()
            self._working = False

    def finish(self) -> on.Event | None:
        """Like `work`, for a task that is held back: what was called is committed, and nothing more is called."""
        if self.busy:
            self.calls_ahead.hold_briefly(self.buffer, self._batch)
        if self.busy or (self.at_rest and not self._keeps_others_out):
            return None
        self._finishing = True
        try:
            return self.work()
        finally:
            self._finishing = False

    @property
    def _keeps_others_out(self) -> bool:
        """Whether the task is alone in its process, or asks to be (Q2a), for a step that is not called yet."""
        return self.task.alone and isinstance(self.interpreter.effect, do.Await | do.Call)

    def _next_fire_s(self) -> float | None:
        """When to call `work` for the timer that comes first."""
        timers, due = self._timers, self.task.due
        if (
            timers is None
            or self.buffer is None
            or (due is not None and not due.timers)
            or self.interpreter.gate.closed
        ):
            return None
        timers.tell(self._clock.time())
        if (first := timers.first) is None or (not timers.clock and first.due_ms > timers.now_ms):
            return None
        return self._clock.monotonic() + max(0.0, first.due_ms - timers.now_ms) / 1000

    @property
    def _timers(self) -> Scheduled | None:
        return None if self._context.stores is None else self._context.stores.timers

    def _work(self) -> on.Event | None:
        if self.interpreter.gate.closed:
            return None
        if self.busy:
            self.calls_ahead.hold_briefly(self.buffer, self._batch)
            if self._alone.enter(self, self._clock.monotonic()):
                try:
                    self._call_ahead()
                finally:
                    self._alone.leave(self)
            return None
        # The three are read together. A failed read, another topic id or a revocation may void them at any moment from
        # now on; then the event that comes of them is late when it arrives at `advance`.
        if not self.interpreter.lock.acquire(blocking=False):
            return None
        try:
            task, effect, buffer = self.task, self.interpreter.effect, self.buffer
            self._worked_on = buffer
        finally:
            self.interpreter.lock.release()
        if isinstance(effect, do.Stop):
            return self._restart()
        if buffer is None or not isinstance(effect, do.Await | do.Call | do.Quarantine):
            return None
        if self._retrying and self._batch is None and self._clock.monotonic() < self._retry_at_s:
            return None
        return self._in_turn(task, buffer, effect)

    def _in_turn(self, task: Task, buffer: Buffer, effect: do.Await | do.Call | do.Quarantine) -> on.Event | None:
        """
        Answer the effect, unless another task of the process is alone now, or this one must be and cannot (Q2a).

        A task that has nothing to do yet lets the others run, but not above its own snapshot: a death would count.
        """
        if self._finishing and task.alone:
            return self._heard(self._let_others_run, task, buffer, effect)
        now = self._clock.monotonic()
        takes = task.alone and isinstance(effect, do.Await)
        alone = takes and self._alone.take(self, now)
        if takes and self.interpreter.gate.closed:  # it may have been released already, for the last time
            self._alone.release(self)
            return None
        if (takes and not alone) or not self._alone.enter(self, now):
            self._ask_at_s = now + ASK_AGAIN_S
            return self._heard(self._close_ahead, task, buffer, effect)  # and goes on to wish to be alone
        event = None
        try:
            event = self._heard(self._do, task, buffer, effect)
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
            return self._put_off(task, buffer, effect)
        if task.settled:
            self._alone.release(self)
            return None
        return self._polled(task, buffer)

    def _put_off(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        """Give back what was polled for a call that does not begin."""
        with self._lock:
            if self.buffer is not buffer:
                return None
            cut, self._cut = self._cut, None
            present, self._present = self._present, None
        if cut is not None:
            buffer.put_back(cut.steps)
        if call.replay:
            assert present
            buffer.put_request_back(present.request)
        batch = self._open(task, call.starts)
        batch.halt = on.Halt("retry", "the task is held back")
        return self._close(task, batch)

    def _heard(self, work: Callable[..., on.Event | None], *given: Any) -> on.Event | None:
        try:
            return work(*given)
        except RetriableError as error:  # of a sink or of a codec's registry
            return self.fail(str(error), error.remedy)

    def _do(self, task: Task, buffer: Buffer, effect: do.Await | do.Call | do.Quarantine) -> on.Event | None:
        match effect:
            case do.Await():
                return self._await(task, buffer)
            case do.Call():
                return self._called(task, buffer, effect)
            case do.Quarantine():
                return self._quarantined(task, buffer, effect)

    def advance(self, event: on.Event) -> None:
        """Hand a posted event to the task, unless it comes too late."""
        try:
            with self.interpreter.lock:
                if not self._is_late(event):
                    self._advance(event)
                if self.task.settled and not self.task.left_due:  # an outage may stop it before it has said `left`
                    self._alone.release(self)
        finally:
            with self._lock:
                self._pending -= 1

    def _is_late(self, event: on.Event) -> bool:
        """Whether the task was given up, or a recovery has voided what the event reports."""
        state = self.task.state
        if self.interpreter.gate.closed or state is Doing.RELEASED:
            return True
        if isinstance(event, on.Polled | on.Called | on.Idle):
            return self._worked_on is not self.buffer or state not in (Doing.READY, Doing.CALLING)
        if isinstance(event, on.Failed):
            return state in (Doing.NEW, Doing.STOPPED)
        return state not in (Doing.NEW, Doing.STOPPED)

    def _advance(self, event: on.Event) -> None:
        batch = None
        if isinstance(event, on.Called):
            batch = self._closed
            assert batch is not None
            check_follows(self.task, batch)
            if event.halt and event.halt.kind != "retry":
                self.cause = batch.cause
                self.interpreter.about = {key: batch.about[key] for key in ("at", "hash") if key in batch.about}
        effect = self.interpreter.advance(event, () if batch is None else (batch.records,))
        if batch is not None:
            self._closed = None
            self._settle(batch)
        if isinstance(effect, do.Stop):
            self.stopped, self.stopped_at, self.interpreter.about = effect.halt, self.interpreter.about, {}
            self._restart_at_s = self._clock.monotonic() + self._restart_s
            self._restart_s = min(self._restart_s * 2, RESTART_MAX_S)
        elif isinstance(event, on.Called | on.Idle) and isinstance(effect, do.Await):
            self._committed_at_s = self._clock.monotonic()
            self._limit = min(self._limit * 2, self._policy.max_messages)
            self._restart_s = RESTART_FIRST_S
            if isinstance(event, on.Idle) and self._context.stores is not None:
                self._context.stores.stand_at(self.task.positions)

    def _settle(self, batch: Batch) -> None:
        """Tell the sink and the observers whether the batch is committed: the newest record shows it (R4)."""
        record = self.task.record
        if not isinstance(record, Attempt) or (record.sequence, record.writer) != (batch.sequence, self.spec.writer):
            self._discard_effects()
            return
        if self._context.stores is not None:
            self._context.stores.will_stand_at(batch.sequence, record.positions, record.step, self._clock.time())
        if self._context.handlers is not None:
            self._context.handlers.committed(batch.sequence)
        if self._context.sink is not None:
            self._context.sink.after_commit(batch.sequence)
        if self._context.calls is not None:
            self._context.calls.committed(record.positions)
        if batch.replays and self._present is not None:
            self._replaying.committed(self._present)
        report = batch.report()
        for observer in self.interpreter.observers:
            observer.committed(self.spec.name, report)
        self._measure(batch)

    def _measure(self, batch: Batch) -> None:
        for meter in self._meters:
            meter.measured(self.spec.name, self._clock.monotonic() - self._closed_s, batch.size)

    def _discard_effects(self) -> None:
        if self._context.sink is not None:
            self._context.sink.discard()
        if self._context.target is not None:
            self._context.target.discard()

    def fail(self, text: str, remedy: str = "") -> on.Event:
        """The event for an input that cannot be read on (A2, R6), or a sink that does not answer."""
        return on.Failed(text, self._clock.monotonic(), remedy=remedy)

    def hurry(self) -> None:
        """If the task is stopped, recover it at once: what it lacked is there now."""
        self._restart_s = RESTART_FIRST_S
        self._restart_at_s = self._clock.monotonic()

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
        interpreter.gate.close()
        interpreter.log.catch_up(at_once=True)
        task = self.task
        recovering = task.state not in _AT_WORK and not (task.owes and in_group)
        if not interpreter.lock.acquire(timeout=max(0.0, min(timeout_s, patience_s) if recovering else timeout_s)):
            interpreter.gate.close(lost=True)
            self._let_go()
            return False
        try:
            task = self.task
            if task.state is not Doing.RELEASED:
                late = timeout_s < 0 and task.owes
                lost = task.state not in _AT_WORK and (late or not in_group)
                interpreter.advance(*((on.Lost(), ()) if lost else self._revoked()))
        finally:
            self._let_go()
            interpreter.lock.release()
        return True

    def _revoked(self) -> tuple[on.Event, Records]:
        """The event for a revocation in order, with what it has to commit."""
        return on.Revoked(), ()

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
        self._discard_effects()
        self._replaying.rest(always=True)
        if self._context.stores is not None:
            self._context.stores.close()
        if self._context.target is not None:
            self._context.target.close()
        if self._context.tables is not None:
            self._context.tables.leave(self.spec.partition)
        if self._context.hands is not None:
            self._context.hands.close()

    def give_up(self) -> None:
        """Have other tasks no longer wait for user code of this lost task that does not return (Q2a)."""
        self._alone.forget(self)

    # Waiting for messages

    def _await(self, task: Task, buffer: Buffer) -> on.Event | None:
        now = self._clock.monotonic()
        with self._lock:
            failed, self.calls_ahead.failed = self.calls_ahead.failed, None
        if failed is not None:
            return failed
        if self._context.stores is not None and (why := self._context.stores.failed) is not None:
            return self.fail(why)
        if self._replay_comes_next(task, buffer):
            return self._announce_replay(task, buffer)
        if task.snapshot_due:
            return self._polled(task, buffer)
        if not self._finishing:
            self._fill(task, buffer, once=False)
            if self._keep_part(task, buffer):
                self.ahead = True  # of Kafka's transaction; meanwhile more is fetched, and other tasks have their turn
                return None
        with self._lock:
            batch, self._batch = self._batch, None
        if batch is None:
            return self._idled(task, buffer, now)
        return self._close(task, batch)

    def _polled(self, task: Task, buffer: Buffer) -> on.Event | None:
        """Announce steps (P2): none is decoded, filtered or shown to user code before its snapshot is committed."""
        timers = self._timers
        if timers is not None:
            timers.tell(self._clock.time())
        if timers is not None and (task.due.timers if task.due else timers.due is not None):
            return self._announce_timers(task, buffer, timers)
        if task.due and task.due.replay:
            return self._announce_replay(task, buffer)
        if due := task.due:
            if not buffer.holds(due.ends):
                return None
            try:
                cut = buffer.cut_exactly(due.ends, due.choice)
            except OutOfOrder as error:
                return self._announced_gone(str(error))
            gone = due.steps - len(cut.steps)
            if gone < 0 or (gone and not self.spec.compacted):
                # A snapshot named messages that are not there: read again, and then stop.
                ends = ", ".join(f"{p.topic}/{self.spec.partition} at {p.offset}" for p in due.ends)
                return self._announced_gone(
                    f"{len(cut.steps)} of the {due.steps} steps up to {ends} are there; compaction may have taken the "
                    "other messages"
                )
            if gone:
                log.warning("superseded", task=self.spec.name, steps=gone, left=len(cut.steps))
            if not cut.steps:
                return on.Idle(due.ends)
        else:
            cut = self._next_cut(task, buffer, 1 if task.step_by_step else self._worth_announcing())
        if not cut.steps:
            return self._idled(task, buffer, self._clock.monotonic())
        with self._lock:
            if self.buffer is not buffer:
                return None
            self._cut = cut
        return on.Polled(cut.ends, len(cut.steps), cut.choice, tail_ends=self._tail_ends(task))

    def _replay_comes_next(self, task: Task, buffer: Buffer) -> bool:
        """Y3: requests come where nothing else waits, or in their share; timers that are due come first (F2)."""
        if not buffer.asked or not task.takes_replays or self._batch is not None or self._retrying is not None:
            return False
        if task.messages_first and (buffer.ready or not buffer.at_end):
            return False
        if (timers := self._timers) is not None:
            timers.tell(self._clock.time())
            if timers.due is not None:
                return False
        return self._replaying.is_due(self._clock.monotonic(), messages=buffer.ready > 0)

    def _announce_replay(self, task: Task, buffer: Buffer) -> on.Event | None:
        """Y1: the next request, whose messages are read before a snapshot says that they are being delivered."""
        assert task.record
        message = buffer.take_request()
        if message is None:
            behind = buffer.without_requests(task.record.replays[0])
            return on.Idle(task.positions, behind) if behind else None
        present = self._replaying.prepare(message, task)
        with self._lock:
            if self.buffer is not buffer:
                return None
            self._present = present
        return on.Polled(task.positions, 1, tail_ends=self._tail_ends(task), replay=True)

    def _tail_ends(self, task: Task) -> Positions:
        """S5: the ends that a snapshot holds, but for those that are handed down."""
        if not (self.spec.fixed_views and task.record) or len(task.tail_ends) == len(self.spec.tailers):
            return ()
        return ends_of(self._broker, task.record.tails, self.spec.partition)

    def _announce_timers(self, task: Task, buffer: Buffer, timers: Scheduled) -> on.Event | None:
        """F3: due timers come next, and no message. Those that are announced already fire again, all of them."""
        if due := task.due:
            count = due.steps
            if timers.count_due(count) < count:
                if timers.clock:  # that of the process that announced them was ahead
                    self._ask_at_s = self._clock.monotonic() + ASK_AGAIN_S
                    return None
                text = f"{timers.count_due(count)} of the {count} announced timers are there"
                return on.Failed(text, self._clock.monotonic(), remedy="find who else writes the changelog of timers")
        else:
            count = timers.count_due(1 if task.careful else self._limit)
        with self._lock:
            if self.buffer is not buffer:
                return None
        return on.Polled(task.positions, count, timers=True)

    def _worth_announcing(self) -> int:
        """
        The number of steps that a snapshot announces.

        The order of alts with effects is fixed until all of it is delivered. So it is no longer than one batch at the
        present pace: else an input would wait behind all of another one's messages.
        """
        return self._limit if self.spec.pairing != "alts" else self._at_this_pace()

    def _at_this_pace(self) -> int:
        return min(self._limit, max(1, int(self._chunk * self._policy.max_seconds / CHUNK_S)))

    def _announced_gone(self, text: str) -> on.Event:
        """The event for announced messages that are gone, although the topic is not declared compacted."""
        remedy = (
            "stop the workers, and go on without what is gone: "
            f"`cues-kafka accept-loss MODULE:GRAPH {self.spec.processor}`"
        )
        return on.Failed(text, self._clock.monotonic(), remedy=remedy)

    def _idled(self, task: Task, buffer: Buffer, now: float) -> on.Event | None:
        """The event for a position that has moved over markers only for so long that it is committed (P1)."""
        self._replaying.rest()
        if self._context.hands is not None:
            self._ask_at_s = self._context.hands.rest(now)
        if now - self._committed_at_s < self._policy.idle_seconds or buffer.ready or not buffer.at_end:
            return None
        self._committed_at_s = now
        positions = buffer.positions
        return on.Idle(positions) if positions != task.positions else None

    def _restart(self) -> on.Event | None:
        if self._clock.monotonic() < self._restart_at_s:
            return None
        self.stopped = self.cause = None
        return on.Assigned()

    # Calling

    def _call_ahead(self) -> None:
        """Call user code while a commit is under way (P7), unless something else comes next."""
        if self._finishing or self.calls_ahead.barred:
            return
        # In this order: what is taken from an old buffer is void. An old task with a new buffer would skip messages.
        buffer = self.buffer
        task = self.task
        if buffer and self._replay_comes_next(task, buffer):
            return  # what is called ahead would be committed first
        if buffer and self._retrying is None:
            self.ahead = self.calls_ahead.call(task, buffer)

    def _keep_part(self, task: Task, buffer: Buffer) -> bool:
        """Have the target commit what was called, if more may be called before Kafka's transaction; whether it has."""
        with self._lock:
            batch = self._batch if self.buffer is buffer else None
        target = self._context.target
        if (
            batch is None
            or target is None
            or not is_part(task, batch, limit=self._limit, now_s=self._clock.monotonic())
            or not self._committed(task, target, batch)
        ):
            return False
        batch.kept = batch.deliveries
        batch.parts += 1
        return True

    def _begin_part(self, task: Task, batch: Batch) -> None:
        """If the target has committed all that was called, begin its next transaction."""
        if batch.kept and batch.kept == batch.deliveries:
            assert self._context.target
            self._context.target.begin_batch(owner_of(task), task.next_base + batch.kept)

    def _drop_batch(self, buffer: Buffer) -> bool:
        if self.buffer is not buffer:
            return False
        self._batch = None
        return True

    def _close_ahead(self, task: Task, buffer: Buffer, effect: do.Effect) -> on.Event | None:
        """
        Commit what a target holds of calls ahead, while another task of the process is alone; nothing is called.

        Its transaction may have locked what the other one's call waits for.
        """
        if self._batch is None or self._context.target is None or not isinstance(effect, do.Await):
            return None
        self._finishing = True
        try:
            return self._await(task, buffer)
        finally:
            self._finishing = False

    def _fill(self, task: Task, buffer: Buffer, *, once: bool) -> int:
        """Call user code for what is there, up to the policy's limits or for one chunk; gives how many steps ended."""
        with self._lock:
            if self.buffer is not buffer:
                return 0
            batch = self._batch
        limit = 1 if task.careful else self._limit
        fired = 0
        if (timers := self._timers) is not None and not (batch and (batch.halt or batch.closed)):
            timers.tell(self._clock.time())
            if timers.due is not None:
                batch = batch or self._open(task, most=limit)
                fired = self._fire(batch, limit - batch.deliveries, buffer)
                batch.closed = batch.closed or task.careful
        left = ready = min(buffer.ready, limit - (batch.deliveries - batch.kept if batch else 0))
        deadline = self._clock.monotonic() + self._policy.max_seconds
        while left > 0 and not (batch and (batch.halt or batch.closed or batch.size >= self._policy.max_bytes)):
            if batch is None:
                batch = self._open(task, most=limit)
                if batch.halt:
                    break
            cut = self._next_cut(task, buffer, min(left, self._chunk_size(left)))
            if not cut.steps:
                break
            self._begin_part(task, batch)
            done = self._call(cut.steps, batch, buffer)
            if done < len(cut.steps):
                rest = cut.steps[done:] if done >= 0 else [*batch.steps[done:], *cut.steps]
                batch.ends = buffer.ends_before(rest)
            else:
                batch.ends = cut.ends
            left -= done
            if once or self.interpreter.gate.closed or self._clock.monotonic() >= deadline:
                break
        with self._lock:
            if self.buffer is buffer:
                self._batch = batch
        return ready - left + fired

    def _fire(self, batch: Batch, most: int, buffer: Buffer) -> int:
        """Fire timers that are due, ahead of the next message (F2); gives how many steps ended."""
        retrying = None
        if self._retries_timer:  # else it is of a message, which comes behind these timers
            retrying, self._retrying = self._retrying, None
        before = batch.deliveries
        self._await_all()
        self.interpreter.point("before", "Call")
        self._calling = [], batch, 0
        try:
            self._caller.fire(batch, most, retrying)
        finally:
            self._calling = None
        self.interpreter.point("after", "Call")
        batch.ends = batch.ends or buffer.positions
        if batch.halt and batch.halt.kind == "retry":
            self._retry_later(retrying if batch.deliveries == before else None, buffer, batch.about, timer=True)
        return batch.deliveries - before

    def _chunk_size(self, left: int) -> int:
        return left if self._caller.processor.batch else max(self._chunk, self._caller.least_steps)

    def _next_cut(self, task: Task, buffer: Buffer, limit: int) -> Cut:
        if task.choice:
            return buffer.cut_chosen(limit, task.choice, task.careful_until)
        return buffer.cut(limit)

    def _open(self, task: Task, starts: int = 0, *, most: int = 0) -> Batch:
        topic_ids = {p.binding: p.topic_id for p in task.positions}
        clock, today = self._clock, Now(self._clock.time)
        if self._context.tables is not None:
            self._context.tables.refresh(self.spec.partition)
        if self._context.sink is not None:
            self._context.sink.begin_batch(task.next_sequence)
        batch = Batch(
            self.spec, task.next_sequence, topic_ids, self._context, starts=starts, now=clock.monotonic, today=today
        )
        if self._context.target is not None:
            self._context.target.begin_batch(owner_of(task), task.next_base)
        if self._context.calls is not None:
            for row in self._context.calls.leftovers():
                batch.records.add(*row)
        batch.most, batch.until_s = most, batch.began_s + self._policy.max_seconds
        batch.most_bytes = self._policy.max_bytes
        if self._context.handlers is not None:
            handling.begin(batch)
        return batch

    def _call(self, steps: list[Any], batch: Batch, buffer: Buffer, tail_ends: Positions = ()) -> int:
        """Call user code for one chunk; gives how many of its steps ended."""
        self._await_all()
        if (hands := self._context.hands) is not None:
            assert buffer.standing
            hands.follow(buffer.standing, tail_ends)
        began, before = self._clock.monotonic(), batch.deliveries
        retrying, self._retrying = self._retrying, None
        self.interpreter.point("before", "Call")
        self._calling = steps, batch, batch.begun_by_messages
        try:
            if self._context.handlers is None:
                done = self._caller.run(steps, batch, retrying)
            else:
                done = handling.call(self._caller, steps, batch, retrying)
        finally:
            self._calling = None
        self.interpreter.point("after", "Call")
        quick = self._clock.monotonic() - began < CHUNK_S
        self._chunk = min(self._chunk * 2, MAX_CHUNK) if quick else max(1, self._chunk // 2)
        if batch.halt and batch.halt.kind == "retry":
            self._retry_later(retrying if batch.deliveries == before else None, buffer, batch.about)
        return done

    def _await_all(self) -> None:
        """Wait for what the calls may not begin without; their messages are fetched by now."""
        for one in self._context.awaited:
            one.wait(lambda: self.interpreter.gate.closed)

    def _retry_later(
        self, before: Retrying | None, buffer: Buffer, about: Mapping[str, Any], *, timer: bool = False
    ) -> None:
        """Remember to call the same step again after a pause that doubles, outside of any transaction."""
        retry = self._caller.processor.retry
        assert retry
        now = self._clock.monotonic()
        attempt = before.attempt if before else 0
        pause_s = min(retry.first_s * 2.0 ** min(attempt, 64), retry.max_s)
        with self._lock:
            if self.buffer is not buffer:
                return
            self._retrying = Retrying(attempt + 1, before.since_s if before else now)
            self._retries_timer = timer
            self._retry_at_s = now + pause_s
        for observer in self.interpreter.observers:
            observer.retried(self.spec.name, about, attempt + 1, pause_s)

    def _close(self, task: Task, batch: Batch) -> on.Event | None:
        """Make the event that commits an open batch. The commit that it was called ahead of is known by now (P7)."""
        halt, sink = batch.halt, self._context.sink
        if self._context.hands is not None:
            assert self._worked_on
            assert self._worked_on.standing
            batch.tails = self._worked_on.standing.positions
        self._closed, self._closed_s = batch, self._clock.monotonic()
        if sink is not None and batch.deliveries:
            if self.buffer is not self._worked_on or self.interpreter.gate.closed:
                return None  # the batch is void, and the sink has heard so
            if self._context.handlers is not None:
                handling.seal(self._caller, batch)
                halt = batch.halt
            if batch.deliveries:
                sink.before_commit(batch.sequence, batch.records)
        if (target := self._context.target) is not None and not self._committed(task, target, batch):
            return None
        if halt and halt.kind == "retry" and not batch.deliveries:
            return None if self.task.state is Doing.READY else on.Called((), batch.totals, halt)
        return on.Called(batch.ends, batch.totals, halt, tails=batch.tails, replays=batch.behind)

    def _committed(self, task: Task, target: TransactionalSink, batch: Batch) -> bool:
        """E1: commit what the steps wrote, with their outcomes. Kafka's transaction comes behind; False: it is void."""
        if batch.deliveries == batch.kept:  # a transaction may have begun, for a step that did not end
            target.discard()
            return True
        if self.buffer is not self._worked_on or self.interpreter.gate.closed:
            return False
        check_follows(task, batch)
        self.interpreter.point("before", COMMIT_TARGET)
        row = row_of(task, batch.ends, batch.totals, batch.behind)
        row = behind(task, row, batch.tails, put_off=batch.halt is not None)
        target.commit(held_of(row), batch.records)
        self.interpreter.point("after", COMMIT_TARGET)
        return True

    def _called(self, task: Task, buffer: Buffer, call: do.Call) -> on.Event | None:
        """Call user code under a snapshot (P4), for exactly what was polled."""
        if call.timers:
            batch = self._open(task, call.starts)
            self._fire(batch, call.steps, buffer)
            batch.ends = call.ends
            return self._close(task, batch)
        if call.replay:
            return self._replay(task, buffer, call)
        cut = self._take_cut(buffer)
        if cut is None:
            return None
        batch = self._open(task, call.starts)
        steps, done = cut.steps, 0
        deadline = self._clock.monotonic() + self._policy.max_seconds
        while done < len(steps) and not (batch.halt or batch.closed or self.interpreter.gate.closed):
            chunk = steps[done : done + self._chunk_size(len(steps))]
            done += self._call(chunk, batch, buffer, call.tail_ends)
            if batch.size >= self._policy.max_bytes or self._clock.monotonic() >= deadline:
                break  # what was called is committed; the rest comes with the next batch
        batch.ends = cut.ends if done == len(steps) else buffer.ends_before(steps[done:])
        return self._close(task, batch)

    def _replay(self, task: Task, buffer: Buffer, effect: do.Call | do.Quarantine) -> on.Event | None:
        """Y1, Y2: deliver what was announced, with the record that settles its error message."""
        with self._lock:
            if self.buffer is not buffer:
                return None
            present = self._present
        assert present
        assert task.record
        batch = self._open(task, effect.starts)
        if batch.halt is None and present.settled is None and present.replayed is not None:
            batch.replayed = present.replayed
            try:
                self._deliver_replay(present.replayed, batch, buffer, effect)
            finally:
                batch.replayed = None
        elif batch.halt is None:
            batch.deliveries += 1
        if batch.deliveries:
            self._replaying.settle(present, batch)
            batch.ends = effect.ends
            batch.behind = (task.record.replays[0]._replace(offset=present.behind),)
        return self._close(task, batch)

    def _deliver_replay(
        self, replayed: Replayed, batch: Batch, buffer: Buffer, effect: do.Call | do.Quarantine
    ) -> None:
        if replayed.gone:
            self._caller.lose(replayed, batch)
        elif isinstance(effect, do.Call):
            self._call([self._caller.replay(replayed)], batch, buffer, effect.tail_ends)
        else:
            self.interpreter.point("before", "Quarantine")
            self._caller.quarantine(self._caller.replay(replayed), batch)
            self.interpreter.point("after", "Quarantine")

    def _take_cut(self, buffer: Buffer) -> Cut | None:
        """What was polled for the present effect; None: it is void."""
        with self._lock:
            if self.buffer is not buffer:
                return None
            cut, self._cut = self._cut, None
        assert cut
        return cut

    def _quarantined(self, task: Task, buffer: Buffer, quarantine: do.Quarantine) -> on.Event | None:
        """End a step as an error without calling user code (Q3, F3)."""
        if quarantine.timers:
            batch = self._open(task, quarantine.starts)
            self.interpreter.point("before", "Quarantine")
            self._caller.quarantine_timer(batch)
            self.interpreter.point("after", "Quarantine")
            batch.ends = quarantine.ends
            return self._close(task, batch)
        if quarantine.replay:
            return self._replay(task, buffer, quarantine)
        cut = self._take_cut(buffer)
        if cut is None:
            return None
        batch = self._open(task, quarantine.starts)
        if batch.halt is None:
            self.interpreter.point("before", "Quarantine")
            self._caller.quarantine(cut.steps[0], batch)
            self.interpreter.point("after", "Quarantine")
            batch.ends = cut.ends
        return self._close(task, batch)
