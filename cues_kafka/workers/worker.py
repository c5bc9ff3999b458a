"""One processor in one process (A1 to A4): membership, fetching, calling and committing side by side.

There are three kinds of threads, and each owns what it touches::

    poller   the member and the reader (A2): serves the group, fetches, points and pauses the reader
    caller   user code: calls it for one task after the other, and hands events to the pool
    pool     effects of tasks: recoveries and commits run side by side, one at a time for each task

The poller tells the caller that something arrived. Recoveries tell the poller where to read. No other thread calls the
member or the reader.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from cues_kafka.core import events as on
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.errors import Fenced
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.failures import ended_by
from cues_kafka.task.filling import Filling
from cues_kafka.task.heart import Loop
from cues_kafka.task.lane import RECOVERY_PATIENCE_S, Lane
from cues_kafka.task.status import TaskStatus, task_status
from cues_kafka.task.taking import Taking
from cues_kafka.task.workers import Stopped, Worker
from cues_kafka.workers.fetching import POLL_S, Fetching
from cues_kafka.workers.joint.choice import Sessions
from cues_kafka.workers.long_calls import LongCalls
from cues_kafka.workers.lookups_together import LookupsTogether
from cues_kafka.workers.membership import WorkerMembership
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.pool import TaskPool
from cues_kafka.workers.questions import Questions

log = get_logger("cues_kafka.worker")

PARTS_END_S = 1.0
"""How long a stop waits for the caller of tasks with a target: for a call that is under way no longer than this."""

SHOWN_TASKS = 5
"""How many tasks a line about several of them names."""


class ProcessorWorker(Worker):
    """
    The tasks of one processor that the group gives to this process.

    Attributes:
        name, clock, first, lanes, failed: see `Worker`.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: Broker,
        clock: Clock,
        caller: Caller,
        spec_of: Callable[[int], Spec],
        options: WorkerOptions,
        changed: Callable[[], None],
        executor: Executor | None = None,
    ) -> None:
        """
        Args:
            name: the processor's.
            broker: the cluster.
            clock: time.
            caller: calls the function.
            spec_of: makes the spec of a partition's task.
            options: see `WorkerOptions`.
            changed: called whenever a task's state may have changed; must not block.
            executor: does effects; None: threads, one for each task. A worker with another executor is not started:
                its owner calls `open`, `poll_once`, `call_once` and `close`, and nothing waits.
        """
        self.name, self.clock = name, clock
        self.lanes: dict[int, Lane] = {}
        self.failed: BaseException | None = None
        self._broker, self._inlet = broker, options.inlet or broker
        self._caller, self._spec_of = caller, spec_of
        self._options, self._changed = options, changed
        self.first = spec_of(0)
        submit = lambda *given: self._pool.submit(*given)  # noqa: E731, PLW0108  the pool comes later
        self._sessions = Sessions(options.sessions, self.first, broker, clock, caller.batch_bytes, submit=submit)
        self._pool: Executor = executor or TaskPool(self._sessions.threads, name=f"{name}-task")
        self._lookups = LookupsTogether(broker, clock, self.first.group) if executor is None else None
        self._membership = WorkerMembership(name, self.first.group, clock, waits=executor is None, changed=changed)
        self._fetching = Fetching(name, poll_s=0.0 if executor else POLL_S, submit=self._submit, arrived=self._notify)
        self._long_calls = LongCalls(clock, options.calls)
        self._questions = Questions(
            name,
            broker=broker,
            inlet=self._inlet,
            clock=clock,
            first=lambda: self.first,
            lanes=self.lanes,
            recover=lambda lane, why: self._submit(lane, lane.fail(why)),
            grow=self._grow,
            rejoin=self._membership.join_again,
            needed=options.needed,
        )
        self._assigned: deque[Lane] = deque()
        self._news, self._stopping = threading.Event(), threading.Event()
        self._leave = True
        self._moved_s = clock.monotonic()  # when the poller began its newest round
        self._unready_since_s: float | None = None  # since tasks were assigned of which some do not work yet
        self._holding = False  # the caller calls nothing, but commits what was called
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._poll_loop,), name=f"{name}-poller", daemon=True),
            threading.Thread(target=self._guarded, args=(self._call_loop,), name=f"{name}-caller", daemon=True),
        ]

    def start(self) -> None:
        """Join the group and work."""
        self._sessions.start(self._guarded)
        for thread in self._threads:
            thread.start()

    def look(self) -> None:
        """Look again whether the tasks are held back."""
        self._notify()

    def stop(self, *, leave: bool) -> None:
        """
        Ask to stop; `join` waits for it.

        Args:
            leave: leave the group for good; else keep a static member's place for a successor (A4).
        """
        self._leave = leave
        self._stopping.set()
        self._fetching.wake()
        self._notify()

    def join(self) -> None:
        """Wait until everything is released, but not for user code that still runs."""
        self._threads[0].join()
        self._threads[1].join(timeout=1.0)
        self._pool.shutdown(wait=False)

    def status(self) -> list[TaskStatus]:
        """The tasks that the group gave to this process."""
        silent_s = self.unreachable_s
        held, resting = self._options.held(self.name), self._holding
        found = [
            task_status(lane, **self._long_calls.shown(lane), unreachable_s=silent_s, held=held, resting=resting)
            for _, lane in sorted(self.lanes.copy().items())
        ]
        found = [self._questions.with_what_is_lost(one) for one in found]
        if (away := self._options.away(self.name)) is not None:
            found = [replace(one, stopped=away.what, remedy=away.remedy, held="") for one in found]
        if (halt := self._membership.halt) is not None:  # its tasks went with its membership
            found.append(TaskStatus(self.name, "stopped", (), Totals(), halt.text, halt.remedy))
        return found

    @property
    def stands_for_s(self) -> float:
        """For how long the thread that serves the group and fetches has not come round."""
        return self.clock.monotonic() - self._moved_s

    def stopped(self) -> list[Stopped]:
        """The tasks that stopped; the processor itself, while its group does not let this worker in again."""
        lanes = self.lanes.copy().values()
        found = [Stopped(lane.spec.name, halt, lane.cause) for lane in lanes if (halt := lane.stopped)]
        if (halt := self._membership.halt) is not None:
            found.append(Stopped(self.name, halt, self._membership.barred))
        return found

    @property
    def unreachable_s(self) -> float:
        """How long the cluster has not answered."""
        return self._questions.unreachable_s

    @property
    def generation(self) -> int:
        """The group's generation, as last published; negative until it is known which partitions the worker has."""
        return self._membership.generation

    @property
    def loop(self) -> Loop | None:
        """The poller. The caller may stand still for long, because a function may take long, see `CallPolicy`."""
        poller = self._threads[0]
        return Loop(poller.name, poller.ident, self._moved_s) if poller.ident and poller.is_alive() else None

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # a worker that lost one of its threads must not look alive
            self.failed = error
            log.error("worker failed", processor=self.name, error=ended_by(error))
            self._stopping.set()
            self._notify()
            for lane in list(self.lanes.values()):
                lane.lose()
        finally:
            self._changed()

    def _notify(self) -> None:
        self._news.set()

    # The poller's thread.

    def _poll_loop(self) -> None:
        self.open()
        try:
            while not self._stopping.is_set():
                self.poll_once()
        finally:
            self.close()

    def open(self) -> None:
        """Join the group; nothing is assigned yet."""
        self._fetching.reader = self._open_reader()
        lead = self.first.inputs[0].topic
        self._membership.join(self._broker.member(self.first.group, lead, self, instance=self._options.instance))

    def _open_reader(self) -> Reader:
        return self._inlet.reader(self.first.group)

    def poll_once(self) -> None:
        """
        Point the reader, fetch, serve the group.

        Raises:
            TimeoutError: a call takes longer than `end_seconds`. The other tasks leave in order. This one does not
                say `left`, so its successor counts a death (Q1).
        """
        self._moved_s = self.clock.monotonic()
        if (overdue := self._long_calls.look(list(self.lanes.values()))) is not None:
            self.on_lost([overdue.lane.spec.partition])
            overdue.lane.give_up()
            raise TimeoutError(overdue.text)
        self._fetching.once()
        self._membership.serve()
        while self._assigned:  # after the proof of this assignment was published: recovery may commit a `Start`
            self._submit(self._assigned.popleft(), on.Assigned())

    def close(self) -> None:
        """Release everything in order and leave."""
        try:
            self._let_parts_end()
            self.on_revoke(list(self.lanes))
            self._membership.member.close(leave=self._leave)
        finally:
            self._sessions.close()
            self._fetching.reader.close()
            self._caller.close()

    def _let_parts_end(self) -> None:
        """At a stop, let the caller have Kafka follow what targets have committed: tools want both at one step (E1)."""
        caller = self._threads[1]
        if self._stopping.is_set() and caller.is_alive() and any(lane.commits_first for lane in self.lanes.values()):
            caller.join(timeout=PARTS_END_S)

    # Group events, on the poller's thread, from inside `member.poll` (A3).

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Make a lane for each new task; after its recovery (R5) the reader is pointed to its positions."""
        self._membership.placed = True
        if partitions:
            log.info("assigned", processor=self.name, partitions=list(partitions))
            if self._unready_since_s is None:
                self._unready_since_s = self.clock.monotonic()
        for partition in partitions:
            lane = self._make_lane(
                replace(self._spec_of(partition), width=self.first.width),
                broker=self._broker,
                clock=self.clock,
                point_reader=self._fetching.point,
                membership=lambda: self._membership.published,
                policy=self._options.policy,
                hook=self._options.hook,
                alone=self._options.alone,
                inlet=self._inlet,
                observers=self._options.observers,
            )
            self.lanes[partition] = lane
            self._assigned.append(lane)

    def _make_lane(self, spec: Spec, **world: Any) -> Lane:
        fills = Taking if spec.rules.takes else Filling
        lane = Lane(
            *(spec, self._caller),
            commit_offsets=self._membership.offsets.commit,
            wake=self._notify,
            fills=fills,
            session_of=self._sessions.session_of,
            lookups=self._lookups,
            **world,
        )
        self._sessions.serve(spec.partition, partial(self._advance, lane, go=lane.resume))
        return lane

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Close the gates, then wait for transactions past P5. Returning acknowledges the revocation."""
        lanes = _taken(self.lanes, self._sessions.order(list(partitions)))
        if lanes:
            log.info("revoked", processor=self.name, partitions=list(partitions))
        for lane in lanes:
            lane.interpreter.gate.close()
        self._membership.offsets.refuse("the partition is taken away")
        # A cooperative rebalance revokes after the next generation has begun. A `left` (Q1) of the former is refused.
        self._membership.publish()
        deadline = self.clock.monotonic() + self._options.revoke_timeout_s
        in_group = self._membership.published.generation >= 0
        patient_until = self.clock.monotonic() + RECOVERY_PATIENCE_S
        abandoned = []
        for lane in lanes:
            now = self.clock.monotonic()
            if not lane.revoke(deadline - now, in_group=in_group, patience_s=max(0.0, patient_until - now)):
                abandoned.append(lane.spec.name)
            self._fetching.drop(lane)
            self._sessions.gone(lane.spec.partition)
        if abandoned:
            log.warning("abandoned", processor=self.name, count=len(abandoned), tasks=abandoned[:SHOWN_TASKS])
        self._membership.offsets.send()
        self._changed()

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Abandon tasks that another worker already has."""
        lanes = _taken(self.lanes, partitions)
        log.warning("lost", processor=self.name, partitions=list(partitions))
        self._membership.offsets.refuse("the partition is lost")
        for lane in lanes:
            lane.lose()
            self._fetching.drop(lane)
            self._sessions.gone(lane.spec.partition)
        self._changed()

    # The caller's thread.

    def _call_loop(self) -> None:
        while not self._stopping.is_set():
            if not self.call_once():
                self._sleep()
        for lane in list(self.lanes.values()):
            if lane.in_parts and (event := lane.finish()) is not None:
                self._advance(lane, event)

    def call_once(self) -> bool:
        """Call user code for each task that has messages; whether any had."""
        self._questions.ask_what_is_due(self.generation, self._pool)
        self._tell_progress()
        self._holding = False  # before the question: once a hold is there and this is true, no call begins
        self._holding = holding = bool(self._options.held(self.name))
        worked = False
        lanes = list(self.lanes.values())
        for lane in lanes:
            lane.calls_ahead.sole = len(lanes) == 1
            event = lane.finish() if holding else lane.work()
            if self._stopping.is_set():  # the gates are closing, and the pool may be gone
                if event is not None and lane.commits_first:
                    self._advance(lane, event)  # see `_let_parts_end`
                return worked
            worked = worked or lane.ahead
            if event is not None:
                worked = True
                self._pool.submit(self._advance, lane, event)
        self._fetching.made_room()
        return worked

    def _sleep(self) -> None:
        """Wait until something arrives, a commit ends, or a retry is due; while tasks are held back none is."""
        now, lanes = self.clock.monotonic(), [] if self._holding else list(self.lanes.values())
        wakes = [wake - now for lane in lanes if (wake := lane.wake_at_s) is not None]
        self._news.wait(max(0.0, min([*wakes, 1.0])))
        self._news.clear()

    def _submit(self, lane: Lane, event: on.Event) -> None:
        lane.post()
        self._pool.submit(self._advance, lane, event)

    def _advance(self, lane: Lane, event: on.Event, go: Callable[[on.Event], None] | None = None) -> None:
        try:
            (go or lane.advance)(event)
        except Fenced:
            lane.lose()
        except BaseException as error:
            self.failed = error
            log.error("task failed", task=lane.spec.name, error=ended_by(error))
            self._stopping.set()
            raise
        finally:
            self._notify()
            self._changed()

    def _tell_progress(self) -> None:
        """Log what a start waits for, and when all tasks work."""
        self._membership.tell_waiting(static=bool(self._options.instance))
        lanes = list(self.lanes.values())
        if self._unready_since_s is not None and lanes and all(lane.delivers for lane in lanes):
            after_s = round(self.clock.monotonic() - self._unready_since_s, 3)
            self._unready_since_s = None
            log.info("all tasks ready", processor=self.name, tasks=len(lanes), after_s=after_s)

    def _grow(self, width: int) -> None:
        """The processor has this number of tasks now; those of new partitions that wait for that begin."""
        before, self.first = self.first.width, replace(self.first, width=width)
        for partition, lane in list(self.lanes.items()):
            if partition >= before:
                lane.hurry()
        self._notify()


def _taken(lanes: dict[int, Lane], partitions: Sequence[int]) -> list[Lane]:
    """Take the tasks of these partitions away from the others."""
    return [lane for partition in partitions if (lane := lanes.pop(partition, None)) is not None]
