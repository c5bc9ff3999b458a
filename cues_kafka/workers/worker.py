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
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from cues_kafka.core import events as on
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError, Fenced, UnreadableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import CLUSTER
from cues_kafka.ports.broker import Broker, Inlet
from cues_kafka.ports.clients import GroupMetadata, Member, Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.records.unreadable import way_past
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.failures import ended_by
from cues_kafka.task.calling.pairing import Buffer, OutOfOrder
from cues_kafka.task.filling import Filling
from cues_kafka.task.heart import Loop
from cues_kafka.task.lane import RECOVERY_PATIENCE_S, Calling, Lane
from cues_kafka.task.parts.stores import Storing
from cues_kafka.task.status import TaskStatus, task_status
from cues_kafka.task.taking import Taking
from cues_kafka.task.workers import Stopped, Worker
from cues_kafka.workers.member_offsets import MemberOffsets
from cues_kafka.workers.options import WorkerOptions

log = get_logger("cues_kafka.worker")

POLL_S = 0.05
"""A2. How long one fetch waits. Commands to the reader and the group are served in between."""

BUFFER_MESSAGES = 12_000
"""All inputs of all tasks of a processor share this: a full batch, and what a fetch brings meanwhile. The client keeps
more behind it. With 20,000 for each task, a worker with 4 tasks took 174 MiB instead of 140 and was not faster."""

LEAST_BUFFER = 1_000
"""The share of one input of one task is not smaller, however many there are."""

BUFFER_BYTES = 16 * 1024 * 1024
"""All inputs of all tasks of a processor share this, counting values only: about 12,000 messages of 1.4 kB. While an
input is below its share, a fetch takes all that the client has ready. So a processor holds at most this and once more
the client's own queue, `queued.max.messages.kbytes`."""

LEAST_BYTES = 1024 * 1024
"""The share of one input of one task is not smaller, however many there are."""

AHEAD_MESSAGES = 10_000
AHEAD_BYTES = 4 * 1024 * 1024
"""An input that holds more than twice this and twice its share is paused while other inputs have room."""

REQUESTS = 1_000
"""Requests to replay an error message that one task holds at most, about."""

CHECK_TOPICS_S = 10.0
"""How often the worker compares topic ids (R6)."""

CHECK_CLUSTER_S = 5.0
"""How often a worker asks for the partitions of its topics. So it notices new partitions, and a cluster that does not
answer: a task without messages asks the cluster nothing and would look healthy."""

UNREACHABLE_S = 10.0
"""The worker logs that the cluster does not answer when it has been silent for this long."""

CHECK_GROUP_S = 5.0
"""How often a worker looks for tasks without an owner. A static member may be killed between the two rounds of a
cooperative rebalance. It has given tasks back then, and no member was told to take them: its successor gets what
remains, and the group is stable. A worker that sees this twice in a row joins the group again."""

LOOKS = 4
"""Answers that a worker gets in each generation: ownership changes only with the next generation."""

JOINING_S = 3.0
"""The worker logs that the group has not taken it in yet when it has waited for so long."""

PLACED_S = 1.0
"""After this time in the group a worker counts as placed, although it was given no partition."""

PARTS_END_S = 1.0
"""How long a stop waits for the caller of tasks with a target: for a call that is under way no longer than this."""

SHOWN_TASKS = 5
"""How many tasks a line about several of them names."""

LONG_S = 1.0
"""The status shows calls that take longer."""

_WAITS = "grant the permission again; the worker rejoins its group by itself, and its tasks resume"
"""What helps a worker that has lost a right."""


@dataclass(slots=True)
class _Call:
    """A call that is under way, since when, and whether it was logged as long."""

    lane: Lane
    calling: Calling
    since_s: float
    logged: bool = False

    def is_same(self, lane: Lane, calling: Calling) -> bool:
        """Whether the same call is still under way."""
        return self.lane is lane and self.calling.steps is calling.steps and self.calling.at == calling.at


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
        self.name = name
        self.lanes: dict[int, Lane] = {}
        self.failed: BaseException | None = None
        self._broker = broker
        self._inlet: Inlet = options.inlet or broker
        self.clock = clock
        self._caller = caller
        self._spec_of = spec_of
        self._options = options
        self._changed = changed
        self.first = spec_of(0)
        self._offsets = MemberOffsets(waits=executor is None)
        self._pool = executor or ThreadPoolExecutor(max(4, self.first.width), thread_name_prefix=f"{name}-task")
        self._poll_s = 0.0 if executor else POLL_S
        self._assigned: deque[Lane] = deque()
        self._commands: deque[tuple[Lane, Positions, Buffer]] = deque()
        self._routes: dict[TopicPartition, tuple[Lane, Buffer]] = {}
        self._refused: dict[TopicPartition, UnreadableError] = {}  # what the client refuses behind what it gave
        self._paused: set[TopicPartition] = set()
        self._published = GroupMetadata(self.first.group, -1)
        self._work = threading.Condition()
        now_s = clock.monotonic()
        self._moved_s = now_s  # when the poller began its newest round
        self._news = True
        self._room = threading.Event()
        self._stopping = threading.Event()
        self._leave = True
        self._asked_at_s = dict.fromkeys((self._compare_topic_ids, self._ask_cluster, self._look_for_unowned), now_s)
        self._asking = False
        self._unowned: set[int] = set()
        self._looks = (-1, 0)  # generation, answers in it
        self._call: _Call | None = None
        self._silent_since_s: float | None = None
        self._silence_told = False
        self._grown = (0, 0)
        self._joining_since_s: float | None = now_s  # None: the group has taken it in, or the log says that it waits
        self._unready_since_s: float | None = None  # since tasks were assigned of which some do not work yet
        self._rejoin = threading.Event()
        self._placed = False  # it was given its first partitions, or there are none for it
        self._joined_s: float | None = None
        self._barred: BrokerError | None = None  # why the group does not let it in again
        self._holding = False  # the caller calls nothing, but commits what was called
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._poll_loop,), name=f"{name}-poller", daemon=True),
            threading.Thread(target=self._guarded, args=(self._call_loop,), name=f"{name}-caller", daemon=True),
        ]

    def start(self) -> None:
        """Join the group and work."""
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
        self._room.set()
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
            task_status(lane, **self._long_call(lane), unreachable_s=silent_s, held=held, resting=resting)
            for _, lane in sorted(self.lanes.copy().items())
        ]
        if (away := self._options.away(self.name)) is not None:
            found = [replace(one, stopped=away.what, remedy=away.remedy, held="") for one in found]
        if (barred := self._barred) is not None:  # its tasks went with its membership
            found.append(TaskStatus(self.name, "stopped", (), Totals(), str(barred), _WAITS))
        return found

    def _long_call(self, lane: Lane) -> dict[str, Any]:
        call, now = self._call, lane.calling
        if call is None or now is None or not call.is_same(lane, now):
            return {}
        took_s = self.clock.monotonic() - call.since_s
        if took_s < LONG_S:
            return {}
        return {"calling": f"calling for {took_s:.0f} s: {lane.place(call.calling)}", "calling_s": took_s}

    @property
    def stands_for_s(self) -> float:
        """For how long the thread that serves the group and fetches has not come round."""
        return self.clock.monotonic() - self._moved_s

    def stopped(self) -> list[Stopped]:
        """The tasks that stopped; the processor itself, while its group does not let this worker in again."""
        lanes = self.lanes.copy().values()
        found = [Stopped(lane.spec.name, halt, lane.cause) for lane in lanes if (halt := lane.stopped)]
        if (barred := self._barred) is not None:
            found.append(Stopped(self.name, on.Halt("refused", str(barred), _WAITS), barred))
        return found

    @property
    def unreachable_s(self) -> float:
        """How long the cluster has not answered."""
        silent = self._silent_since_s
        return 0.0 if silent is None else self.clock.monotonic() - silent

    @property
    def generation(self) -> int:
        """The group's generation, as last published; negative until it is known which partitions the worker has."""
        return self._published.generation if self._placed else -1

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
        with self._work:
            self._news = True
            self._work.notify_all()

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
        self._reader = self._inlet.reader(self.first.group)
        lead = self.first.inputs[0].topic
        self._member = self._broker.member(self.first.group, lead, self, instance=self._options.instance)
        self._offsets.member = self._member

    def poll_once(self) -> None:
        """Point the reader, fetch, serve the group."""
        self._moved_s = self.clock.monotonic()
        self._watch_call()
        self._obey(self._reader)
        self._fetch(self._reader)
        self._stop_at_refused()
        self._serve(self._member)

    def _watch_call(self) -> None:
        """
        Measure how long the present call takes.

        Raises:
            TimeoutError: the call takes longer than `end_seconds`. The other tasks leave in order. This one does not
                say `left`, so its successor counts a death (Q1).
        """
        found = next(((lane, now) for lane in list(self.lanes.values()) if (now := lane.calling)), None)
        call = self._call
        if found is None or call is None or not call.is_same(*found):
            self._call = _Call(*found, self.clock.monotonic()) if found else None
            return
        took_s, policy = self.clock.monotonic() - call.since_s, self._options.calls
        if took_s >= policy.warn_seconds and not call.logged:
            call.logged = True
            log.warning(
                "call takes long", task=call.lane.spec.name, at=call.lane.place(call.calling), for_s=round(took_s)
            )
        if policy.end_seconds is not None and took_s >= policy.end_seconds:
            self.on_lost([call.lane.spec.partition])
            call.lane.give_up()
            raise TimeoutError(
                f"task {call.lane.spec.name} has been calling the function for {took_s:.0f} s with "
                f"{call.lane.place(call.calling)}, longer than calls.end_seconds={policy.end_seconds:g}. Find what it "
                "waits for, and give that a time-out"
            )

    def close(self) -> None:
        """Release everything in order and leave."""
        try:
            self._let_parts_end()
            self.on_revoke(list(self.lanes))
            self._member.close(leave=self._leave)
        finally:
            self._reader.close()
            self._caller.close()

    def _let_parts_end(self) -> None:
        """At a stop, let the caller have Kafka follow what targets have committed: tools want both at one step (E1)."""
        caller = self._threads[1]
        if self._stopping.is_set() and caller.is_alive() and any(lane.commits_first for lane in self.lanes.values()):
            caller.join(timeout=PARTS_END_S)

    def _serve(self, member: Member) -> None:
        if self._rejoin.is_set():
            self._rejoin.clear()
            member.rejoin()
        try:
            member.poll()
        except BrokerError as error:
            if not error.forbidden or (self._barred is None and not self._placed):
                raise  # at the start it is a wrong setting
            self._bar(error)
        self._published = member.metadata()
        if not self._placed and self._published.generation >= 0:
            # The partitions come a moment after the generation. Without them a start would look complete.
            now_s = self.clock.monotonic()
            self._joined_s = now_s if self._joined_s is None else self._joined_s
            self._placed = now_s - self._joined_s >= PLACED_S
        if self._placed and self._barred is not None:
            self._barred = None
            log.warning("the group accepts this worker again", processor=self.name, group=self.first.group)
            self._changed()
        self._offsets.send()
        while self._assigned:  # after the proof of this assignment was published: recovery may commit a `Start`
            lane = self._assigned.popleft()
            self._submit(lane, on.Assigned())

    def _bar(self, error: BrokerError) -> None:
        """Wait: a right of this user was taken away, and the member asks again until it is given back."""
        told, self._barred = self._barred, error
        self._placed, self._joined_s = False, None
        if told is None or str(told) != str(error):
            log.error("the group refuses this worker", processor=self.name, why=str(error), remedy=_WAITS)
            self._changed()

    def _obey(self, reader: Reader) -> None:
        """Point the reader where a recovery said (R5). What was fetched before went with its buffer."""
        while self._commands:
            lane, positions, buffer = self._commands.popleft()
            if lane.buffer is not buffer or lane.interpreter.gate.closed:
                continue
            starts = {TopicPartition(p.topic, lane.spec.partition): p.offset for p in positions}
            reader.unassign(list(starts))
            self._paused -= starts.keys()
            reader.assign(starts)
            self._routes |= dict.fromkeys(starts, (lane, buffer))

    def _fetch(self, reader: Reader) -> None:
        if not self._balance(reader):
            self._room.wait(self._poll_s)
            self._room.clear()
            return
        try:
            fetched = reader.poll(self._poll_s)
        except BrokerError as error:
            self._broken(error)
            return
        for part in fetched:
            route = self._routes.get(part.partition)
            if route is None:
                continue
            lane, buffer = route
            try:
                buffer.add(part)
            except OutOfOrder as error:
                self._drop(lane)
                self._submit(lane, lane.fail(str(error)))
        if fetched:
            self._notify()

    def _balance(self, reader: Reader) -> bool:
        """
        Apply backpressure.

        While every buffer is full, the worker does not poll, and the client's bounded queue fills up: that costs
        nothing. Pausing a partition costs a fetch, because the client drops what it has fetched. So the worker pauses
        only a partition that runs far ahead of the others.

        Returns:
            Whether any buffer has room.
        """
        room, ahead, behind = False, [], []
        routes = max(1, sum(not buffer.is_replay(place.topic) for place, (_, buffer) in self._routes.items()))
        share, share_bytes = max(LEAST_BUFFER, BUFFER_MESSAGES // routes), max(LEAST_BYTES, BUFFER_BYTES // routes)
        far, far_bytes = 2 * max(share, AHEAD_MESSAGES), 2 * max(share_bytes, AHEAD_BYTES)
        for place, (lane, buffer) in self._routes.items():
            size, held = buffer.size_of(place.topic), buffer.bytes_of(place.topic)
            if buffer.is_replay(place.topic):  # read only while something else is
                if place in self._paused:
                    behind += [place] if size < REQUESTS // 2 else []
                elif size >= REQUESTS:
                    ahead.append(place)
                continue
            short = lane.short
            room = room or short or (size < share and held < share_bytes)
            if place in self._paused:
                behind += [place] if short or (size < share // 2 and held < share_bytes // 2) else []
            elif (size >= far or held >= far_bytes) and not short:
                ahead.append(place)
        if ahead and room:
            reader.pause(ahead)
            self._paused.update(ahead)
        if behind:
            reader.resume(behind)
            self._paused.difference_update(behind)
        return room

    def _broken(self, error: BrokerError) -> None:
        """Send the tasks whose partitions cannot be read back to R1, which compares record and log again."""
        at: TopicPartition | None = getattr(error, "at", None)
        if at is not None and at in self._routes and self._routes[at][1].is_replay(at.topic):
            self._without_replays(at, error)
            return
        if isinstance(error, UnreadableError) and at in self._routes:
            self._refused[at] = error
            self._reader.unassign([at])  # else the client asks for it again and again
            return
        log.warning("reader failed", processor=self.name, error=str(error))
        lanes = {lane.spec.partition: lane for lane, _ in self._routes.values()}
        for partition, lane in lanes.items():
            if at is None or at.partition == partition:
                self._drop(lane)
                self._submit(lane, lane.fail(f"reading: {error}", way_past(error, self.name)))

    def _stop_at_refused(self) -> None:
        """Stop the tasks that have delivered what stands before a batch that the client refuses."""
        for at, error in list(self._refused.items()):
            lane, buffer = self._routes.get(at, (None, None))
            if lane is None or buffer is None:
                del self._refused[at]
            elif _has_come_to(lane, buffer, at.topic):
                log.warning("reader failed", processor=self.name, error=str(error))
                self._drop(lane)
                self._submit(lane, lane.fail(f"reading: {error}", way_past(error, self.name)))

    def _without_replays(self, at: TopicPartition, error: BrokerError) -> None:
        """Messages are delivered as before; the task looks for its replay topic again when it recovers (Y1)."""
        log.warning(
            "replay topic cannot be read", processor=self.name, topic=at.topic, error=str(error), remedy=error.remedy
        )
        _, buffer = self._routes.pop(at)
        self._paused.discard(at)
        self._reader.unassign([at])
        buffer.requests = None

    def _drop(self, lane: Lane) -> None:
        places = [place for place, (owner, _) in self._routes.items() if owner is lane]
        for place in places:
            del self._routes[place]
            self._paused.discard(place)
            self._refused.pop(place, None)
        self._reader.unassign(places)

    # Group events, on the poller's thread, from inside `member.poll` (A3).

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Make a lane for each new task; after its recovery (R5) the reader is pointed to its positions."""
        self._placed = True
        if partitions:
            log.info("assigned", processor=self.name, partitions=list(partitions))
            if self._unready_since_s is None:
                self._unready_since_s = self.clock.monotonic()
        for partition in partitions:
            lane = self._make_lane(
                replace(self._spec_of(partition), width=self.first.width),
                broker=self._broker,
                clock=self.clock,
                point_reader=self._point,
                membership=lambda: self._published,
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
        return Lane(spec, self._caller, commit_offsets=self._offsets.commit, wake=self._notify, fills=fills, **world)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Close the gates, then wait for transactions past P5. Returning acknowledges the revocation."""
        lanes = self._forget(partitions)
        if lanes:
            log.info("revoked", processor=self.name, partitions=list(partitions))
        for lane in lanes:
            lane.interpreter.gate.close()
        self._offsets.refuse("the partition is taken away")
        # A cooperative rebalance revokes after the next generation has begun. A `left` (Q1) of the former is refused.
        self._published = self._member.metadata()
        deadline = self.clock.monotonic() + self._options.revoke_timeout_s
        in_group = self._published.generation >= 0
        patient_until = self.clock.monotonic() + RECOVERY_PATIENCE_S
        abandoned = []
        for lane in lanes:
            now = self.clock.monotonic()
            if not lane.revoke(deadline - now, in_group=in_group, patience_s=max(0.0, patient_until - now)):
                abandoned.append(lane.spec.name)
            self._drop(lane)
        if abandoned:
            log.warning("abandoned", processor=self.name, count=len(abandoned), tasks=abandoned[:SHOWN_TASKS])
        self._offsets.send()
        self._changed()

    def on_lost(self, partitions: Sequence[int]) -> None:
        """Abandon tasks that another worker already has."""
        lanes = self._forget(partitions)
        log.warning("lost", processor=self.name, partitions=list(partitions))
        self._offsets.refuse("the partition is lost")
        for lane in lanes:
            lane.lose()
            self._drop(lane)
        self._changed()

    def _forget(self, partitions: Sequence[int]) -> list[Lane]:
        return [lane for p in partitions if (lane := self.lanes.pop(p, None)) is not None]

    def _point(self, lane: Lane, positions: Positions) -> None:
        assert lane.buffer
        self._commands.append((lane, positions, lane.buffer))
        self._room.set()

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
        self._ask_what_is_due()
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
        self._room.set()
        return worked

    def _sleep(self) -> None:
        """Wait until something arrives, a commit ends, or a retry is due; while tasks are held back none is."""
        now, lanes = self.clock.monotonic(), [] if self._holding else list(self.lanes.values())
        wakes = [wake - now for lane in lanes if (wake := lane.wake_at_s) is not None]
        with self._work:
            if not self._news:
                self._work.wait(max(0.0, min([*wakes, 1.0])))
            self._news = False

    def _submit(self, lane: Lane, event: on.Event) -> None:
        lane.post()
        self._pool.submit(self._advance, lane, event)

    def _advance(self, lane: Lane, event: on.Event) -> None:
        try:
            lane.advance(event)
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

    def _ask_what_is_due(self) -> None:
        """Ask the cluster on threads of the pool, each question in its own interval."""
        now = self.clock.monotonic()
        answers = self._looks[1] if self._looks[0] == self.generation else 0
        for ask, every_s, wanted in (
            (self._compare_topic_ids, CHECK_TOPICS_S, True),
            (self._ask_cluster, CHECK_CLUSTER_S, not self._asking),
            (self._look_for_unowned, CHECK_GROUP_S, answers < LOOKS),
        ):
            if wanted and now - self._asked_at_s[ask] >= every_s:
                self._asked_at_s[ask] = now
                self._pool.submit(ask)

    def _tell_progress(self) -> None:
        """Log what a start waits for, and when all tasks work."""
        now = self.clock.monotonic()
        if self.generation >= 0:
            self._joining_since_s = None
        elif self._joining_since_s is not None and now - self._joining_since_s >= JOINING_S:
            self._joining_since_s = None
            named = (
                "" if self._options.instance else "; with --instance NAME a restarted worker takes them over at once"
            )
            log.info(
                "waiting for the group",
                processor=self.name,
                group=self.first.group,
                why=f"its other workers have not given up tasks yet, or one was killed and keeps its tasks until its "
                f"session has timed out{named}",
            )
        lanes = list(self.lanes.values())
        if self._unready_since_s is not None and lanes and all(lane.delivers for lane in lanes):
            after_s = round(now - self._unready_since_s, 3)
            self._unready_since_s = None
            log.info("all tasks ready", processor=self.name, tasks=len(lanes), after_s=after_s)

    def _ask_cluster(self) -> None:
        self._asking, began_s = True, self.clock.monotonic()
        lead, backing = self.first.inputs[0].topic, self.first.backing
        try:
            found = self._broker.partitions([lead, backing])
        except BrokerError as error:
            self._unanswered(began_s, error)
        else:
            self._answered()
            if lead in found and backing in found:
                self._compare_partitions(lead, found[lead], found[backing])
        finally:
            self._asking = False

    def _unanswered(self, began_s: float, error: BrokerError) -> None:
        self._silent_since_s = began_s if self._silent_since_s is None else self._silent_since_s
        silent_s = self.clock.monotonic() - self._silent_since_s
        if silent_s >= UNREACHABLE_S and not self._silence_told:
            self._silence_told = True
            log.error("cluster unreachable", processor=self.name, for_s=round(silent_s), why=str(error))

    def _answered(self) -> None:
        if self._silence_told and self._silent_since_s is not None:
            silent_s = self.clock.monotonic() - self._silent_since_s
            log.warning("cluster reachable again", processor=self.name, after_s=round(silent_s))
        self._silent_since_s, self._silence_told = None, False

    def _compare_partitions(self, lead: str, partitions: int, backing: int) -> None:
        """Start the tasks of new partitions of the lead input, once they have backing partitions."""
        if partitions > backing and self._grown != (partitions, backing):
            log.warning(
                "partitions without tasks",
                processor=self.name,
                topic=lead,
                partitions=partitions,
                tasks=backing,
                remedy="cues-kafka plan MODULE:GRAPH --apply adds what they need; then their tasks start by themselves",
            )
        width = min(partitions, backing)
        if width > self.first.width:
            log.info("partitions added", processor=self.name, topic=lead, tasks=width)
            before, self.first = self.first.width, replace(self.first, width=width)
            for partition, lane in list(self.lanes.items()):
                if partition >= before:
                    lane.hurry()
            self._notify()
        self._grown = partitions, backing

    def _look_for_unowned(self) -> None:
        generation = self.generation
        try:
            found = self._broker.unowned(self.first.group, self.first.inputs[0].topic, self.first.width)
        except BrokerError as error:
            why = "could not read the group's state; asking again later"
            CLUSTER.info(log, why, cause=why, processor=self.name, error=str(error))
            return
        self._looks = (generation, self._looks[1] + 1 if self._looks[0] == generation else 1)
        if found and found == self._unowned:
            log.warning(
                "partitions without an owner; joining the group again", processor=self.name, unowned=sorted(found)
            )
            self._rejoin.set()
            found = set()
        self._unowned = found

    def _compare_topic_ids(self) -> None:
        """R6, R4b, L2: a topic that was recreated must not be read or written on as if it were the old one."""
        try:
            facts = self._inlet.facts([i.topic for i in self.first.inputs]).topics
            tailed = [i.topic for i in self.first.tailers] + ([self.first.replay] if self.first.replay else [])
            facts = {**(self._broker.facts(tailed).topics if tailed else {}), **facts}
            kept = [topic for _, topic in self.first.stores]
            changelogs = self._broker.facts(kept).topics if kept else {}
        except BrokerError as error:
            why = "could not check whether topics were recreated; asking again later"
            CLUSTER.warning(log, why, cause=why, processor=self.name, error=str(error))
            return
        for lane in list(self.lanes.values()):
            record = lane.task.record
            for position in (*lane.task.positions, *(record.tails if record else ())):
                found = facts.get(position.topic)
                if found is None or found.topic_id != position.topic_id:
                    self._submit(lane, lane.fail(f"topic {position.topic!r} was deleted or recreated"))
                    break
            for asked in record.replays if record else ():
                found = facts.get(asked.topic)
                if found is not None and found.topic_id != asked.topic_id:
                    self._submit(lane, lane.fail(f"topic {asked.topic!r} was recreated"))
            storing = lane.part(Storing)
            for one in storing.stores.caches if storing and lane.ready else ():
                topic, there = one.spec.changelog, changelogs.get(one.spec.changelog)
                if one.place.topic_id and (there is None or there.topic_id != one.place.topic_id):
                    self._submit(lane, lane.fail(f"topic {topic!r} was deleted or recreated"))
                    break


def _has_come_to(lane: Lane, buffer: Buffer, topic: str) -> bool:
    """Whether a task has delivered all that it can before a batch that cannot be read."""
    due = lane.task.due
    return (not buffer.size_of(topic) and lane.idle) or (due is not None and not buffer.holds(due.ends))
