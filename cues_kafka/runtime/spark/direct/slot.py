"""The slot of a plain processor: it delivers the messages between its record's position and the end of a range.

A slot is a task of the core with a short life. It takes the transactional id, recovers (R1 to R5), delivers through the
same lane as a native worker, and releases the id. Three rules differ:

- D4: it is no member of the group. Its offsets go there from outside, and only the transactional id fences it.
- D5: after it was fenced it never takes the id again. It watches the record until the range is delivered, or gives up.
- D3: without a sign of a death (the query's first batch, a Spark task's retry) there is no snapshot.

The slot ignores Spark's start of the range: an older one repeats nothing, a newer one skips nothing.
"""

from __future__ import annotations

from cues_kafka.core import events as on
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Doing
from cues_kafka.errors import BrokerError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.log import get_logger
from cues_kafka.ports import Broker, Clock, Fetched, GroupMetadata, Positions, Reader, TopicPartition
from cues_kafka.runtime.calling.caller import Caller
from cues_kafka.runtime.calling.pairing import Buffer, OutOfOrder
from cues_kafka.runtime.spark.query.outcome import Outcome, outcome_of
from cues_kafka.runtime.spark.query.slots import POLICY, watch
from cues_kafka.runtime.task.interpreter import Hook
from cues_kafka.runtime.task.lane import Lane

log = get_logger("cues_kafka.slot")


POLL_S = 0.5
"""Time that a reader waits for messages that are known to be there."""

PATIENCE_S = 60.0
"""After this time without a message or an end, the task returns to R1, which finds out why the range cannot be read."""


class Slot:
    """Deliver one range of one partition, once."""

    def __init__(
        self,
        spec: Spec,
        caller: Caller,
        *,
        broker: Broker,
        clock: Clock,
        policy: CommitPolicy = POLICY,
        hook: Hook | None = None,
    ) -> None:
        """
        Args:
            spec: the task, with `slot=True` and an incarnation of its own.
            caller: calls the function.
            broker: the cluster.
            clock: time.
            policy: when batches of steps are committed at the latest.
            hook: crash points.
        """
        self._spec = spec
        self._broker = broker
        self._clock = clock
        self._policy = policy
        self._place = TopicPartition(spec.inputs[0].topic, spec.partition)
        self._reader: Reader | None = None
        self._read_to = -1
        self._polled = False
        self._held_bytes = 0
        group = GroupMetadata.outside(spec.group)
        self._lane = Lane(
            spec,
            caller,
            broker=broker,
            clock=clock,
            point_reader=self._point,
            membership=lambda: group,
            policy=policy,
            hook=hook,
        )

    def enter(self) -> Outcome:
        """D6: take the id, end an open transaction, commit a first record if there is none, and deliver nothing."""
        try:
            self._advance(on.Assigned())
            return self._outcome(self._totals)
        finally:
            self._close()

    def deliver(self, end: int, *, first: bool, hint: int | None = None) -> Outcome:
        """
        Deliver all messages below `end` that are not delivered yet.

        Args:
            end: at most the last stable offset of now; a retry's range may go beyond it.
            first: a predecessor may have died in user code: snapshot first (S1, D3).
            hint: where the position probably is; fetching begins there while the task recovers.
        """
        if hint is not None:
            self._read_to = hint
            self._open_reader()
        if members := self._broker.members(self._spec.group):
            return self._claimed(members)
        try:
            self._advance(on.Assigned(first))
            before = self._totals
            while not self._lane.stopped and not self._delivered(end):
                self._turn(end)
            halt = self._lane.stopped
            if halt and halt.kind == "fenced":
                return watch(self._spec, self._broker, self._clock, end, halt)
            return self._outcome(before)
        finally:
            self._close()

    def _outcome(self, before: Totals) -> Outcome:
        return outcome_of(self._lane.task, before, self._lane.stopped)

    # The loop.

    def _turn(self, end: int) -> None:
        """Read a batch, call the function, commit."""
        lane, task = self._lane, self._lane.task
        due = max((p.offset for p in task.due.ends), default=0) if task.due else 0
        bound = max(end, due)
        try:
            self._read(bound)
        except (BrokerError, OutOfOrder) as error:
            self._advance(lane.fail(f"reading: {error}"))
            return
        if event := lane.work():
            lane.advance(event)
        elif lane.wake_at_s is not None:
            self._clock.sleep(lane.wake_at_s - self._clock.monotonic())
        elif lane.buffer and not lane.buffer.ready and task.state is Doing.READY:
            self._advance(on.Idle(lane.buffer.positions))  # only markers were left below the end (P1)

    def _read(self, bound: int) -> None:
        """
        Read until a whole batch is there, or all messages below `bound`.

        An end of the log below `bound` does not count, because the leader that reported it lags. An end beyond it says
        nothing about the messages between, so the buffer hears of `bound` instead. Then positions move over markers up
        to `bound`, and no further.
        """
        buffer = self._lane.buffer
        assert buffer
        deadline = self._clock.monotonic() + PATIENCE_S
        self._held_bytes = self._held_bytes if buffer.ready else 0
        while self._read_to < bound and not self._enough(buffer):
            if self._clock.monotonic() > deadline:
                raise OutOfOrder(f"nothing new below {bound} of {self._place} for {PATIENCE_S:g} s")
            self._polled = True
            for _, messages, eof in self._open_reader().poll(POLL_S):
                last = messages[-1].offset() if messages else -1
                done = last >= bound - 1 or (eof is not None and eof >= bound)
                if last >= bound:
                    messages = [m for m in messages if m.offset() < bound]  # noqa: PLW2901
                self._held_bytes += sum(map(len, messages))
                buffer.add(Fetched(self._place, messages, bound if done else None))
                deadline = self._clock.monotonic() + PATIENCE_S
                if done:
                    self._read_to = bound
                    break
                self._read_to = max(self._read_to, last + 1)

    def _enough(self, buffer: Buffer) -> bool:
        """The limit of a batch: a due range counts as a whole, whatever its size."""
        if due := self._lane.task.due:
            return buffer.holds(due.ends)
        return buffer.ready >= self._policy.max_messages or self._held_bytes >= self._policy.max_bytes

    def _delivered(self, end: int) -> bool:
        task = self._lane.task
        return task.state is Doing.READY and task.due is None and self._position >= end

    def _point(self, _: Lane, positions: Positions) -> None:
        """After R5: a reader that was not read yet and stands at the position may stay."""
        if self._reader and (self._polled or self._read_to != positions[0].offset):
            self._reader.close()
            self._reader = None
        self._read_to = positions[0].offset
        self._polled = False

    def _open_reader(self) -> Reader:
        """Make a new reader after each recovery, because a reader that is moved waits for its old fetches first."""
        if self._reader is None:
            self._reader = self._broker.reader(self._spec.group, prompt=True)
            self._reader.assign({self._place: self._read_to})
        return self._reader

    def _advance(self, event: on.Event) -> None:
        self._lane.post()
        self._lane.advance(event)

    @property
    def _position(self) -> int:
        positions = self._lane.task.positions
        return positions[0].offset if positions else -1

    @property
    def _totals(self) -> Totals:
        record = self._lane.task.record
        return record.totals if record else Totals()

    def _close(self) -> None:
        self._lane.revoke(POLL_S)
        if self._reader:
            self._reader.close()

    # Another process has the task.

    def _claimed(self, members: list[str]) -> Outcome:
        """Check before taking the id, so that a native worker that has the task is not disturbed."""
        text = f"group {self._spec.group!r} has members {members}: native workers run this processor"
        remedy = "stop them, or leave the processor out here with only=: it runs in one runtime at a time"
        return Outcome(self._spec.name, self._spec.partition, kind="claimed", text=text, remedy=remedy)
