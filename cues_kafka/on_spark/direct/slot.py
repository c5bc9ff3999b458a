"""The slot of a plain processor: it delivers the messages between its record's positions and the ends of a range.

A slot is a task of the core with a short life. It takes the transactional id, recovers (R1 to R5), delivers through the
same lane as a native worker, and releases the id. Three rules differ:

- D4: it is no member of the group. Its offsets go there from outside, and only the transactional id fences it.
- D5: after it was fenced it never takes the id again. It watches the record until the range is delivered, or gives up.
- D3: without a sign of a death (the query's first batch, a Spark task's retry) there is no snapshot.
- J8: behind each init it asks for the members of the group, and gives up if there are some. A Spark task may outlive
  its driver, and take the id after a worker has recovered the task.

The slot ignores Spark's starts of the range: an older one repeats nothing, a newer one skips nothing. In a join, a
message without a partner stays above its position. When the partner comes, the next range begins there again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from cues_kafka.core import events as on
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Doing
from cues_kafka.errors import BrokerError, CodecError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.tally import Tally
from cues_kafka.on_spark.direct.intake import POLL_S, Intake
from cues_kafka.on_spark.query.outcome import Outcome, outcome_of
from cues_kafka.on_spark.query.slots import POLICY, is_delivered, watch, with_tally
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions
from cues_kafka.ports.observer import Observer
from cues_kafka.records.reading import newest_record
from cues_kafka.records.unreadable import way_past
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.pairing import OutOfOrder
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.lane import Lane

log = get_logger("cues_kafka.slot")


class Claimed(Exception):
    """J8: native workers run the processor."""

    def __init__(self, members: list[str]) -> None:
        super().__init__()
        self.members = members


class Slot:
    """Deliver what one Spark task is given: a range of the same partition of each input, once."""

    def __init__(
        self,
        spec: Spec,
        caller: Caller,
        *,
        broker: Broker,
        clock: Clock,
        policy: CommitPolicy = POLICY,
        hook: Hook | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        """
        Args:
            spec: the task, with `slot=True` and an incarnation of its own.
            caller: calls the function.
            broker: the cluster.
            clock: time.
            policy: when batches of steps are committed at the latest.
            hook: crash points.
            observers: told what the task does, besides the log.
        """
        self._spec = spec
        self._broker = broker
        self._clock = clock
        self._hook = hook
        self._ends: Mapping[str, int] = {}
        self._tally = Tally(clock.time)
        self._intake = Intake(spec, broker=broker, clock=clock, policy=policy)
        group = GroupMetadata.outside(spec.group)
        self._lane = Lane(
            spec,
            caller,
            broker=broker,
            clock=clock,
            point_reader=lambda _, positions: self._point(positions),
            membership=lambda: group,
            policy=policy,
            hook=self._at,
            observers=(*observers, self._tally),
        )

    def enter(self) -> Outcome:
        """D6: take the id, end an open transaction, commit a first record if there is none, and deliver nothing."""
        try:
            self._advance(on.Assigned())
            return self._outcome(self._totals)
        except Claimed as claimed:
            return self._claimed(claimed.members)
        finally:
            self._close()

    def deliver(self, ends: Mapping[str, int], *, first: bool, hint: Mapping[str, int] | None = None) -> Outcome:
        """
        Deliver all steps below `ends` that are not delivered yet.

        Args:
            ends: by topic, at most the last stable offset of now; a retry's range may go beyond it. A batch that was
                planned before the inputs changed (`cues-kafka migrate`) has those of former inputs, and misses others:
                nothing is delivered of these, and Spark's next batch has them.
            first: a predecessor may have died in user code: snapshot first (S1, D3).
            hint: where the positions probably are; fetching begins there while the task recovers.
        """
        self._ends = {one.topic: ends.get(one.topic, 0) for one in self._spec.inputs}
        try:
            if hint is not None and hint.keys() == self._ends.keys():
                self._intake.begin(hint)
            self._ask_for_members()
            self._advance(on.Assigned(first))
            before, record = self._totals, self._lane.task.record
            while not self._lane.stopped and not self._delivered():
                self._turn()
            halt = self._lane.stopped
            if halt and halt.kind == "fenced":
                self._close()  # a database must not hold locks meanwhile
                outcome = with_tally(watch(self._spec, self._broker, self._clock, self._ends, halt), self._tally)
            else:
                outcome = self._outcome(before)
            if record is None or record.writer.runtime != "spark":
                return outcome
            return replace(outcome, found=record.writer.incarnation, found_name=record.writer.name)
        except Claimed as claimed:
            return self._claimed(claimed.members)
        finally:
            self._close()

    def _outcome(self, before: Totals) -> Outcome:
        return with_tally(outcome_of(self._lane.task, before, self._lane.stopped), self._tally)

    # The loop.

    def _turn(self) -> None:
        """Read a batch, call the function, commit."""
        lane, task = self._lane, self._lane.task
        assert lane.buffer
        try:
            self._intake.read(lane.buffer, task)
        except (BrokerError, OutOfOrder) as error:
            self._advance(lane.fail(f"reading: {error}", way_past(error, lane.spec.processor)))
            return
        if event := lane.work():
            lane.advance(self._or_fenced(event))
        elif lane.ahead:
            pass  # a target has committed a part of the batch, and Kafka's transaction comes behind the rest (E1)
        elif lane.wake_at_s is not None:
            self._clock.sleep(lane.wake_at_s - self._clock.monotonic())
        elif lane.buffer and not lane.buffer.ready and task.state is Doing.READY:
            self._advance(on.Idle(lane.buffer.positions))  # only markers, and messages without a partner, are left (P1)

    def _or_fenced(self, event: on.Event) -> on.Event:
        """
        The event; a failure of a task whose record another process has followed up is the news of a fence (D5).

        A database is asked before Kafka (E1), so it may be the first to say that the task has a later owner. A slot
        that recovered then would take the id back, and the two would do so in turn, again and again.
        """
        known = self._lane.task.record
        if not self._spec.target or not isinstance(event, on.Failed) or known is None:
            return event
        with suppress(BrokerError, CodecError):  # a recovery meets it, too
            newest = newest_record(self._spec, self._broker, self._clock)
            if (
                newest
                and newest.sequence > known.sequence
                and newest.writer.incarnation != self._spec.writer.incarnation
            ):
                return replace(event, fenced=True)
        return event

    def _point(self, positions: Positions) -> None:
        """
        After R5: read from the positions up to the ends of the range, or beyond them where a step is fixed already.

        A range that is due may reach beyond Spark's end, and so may what a recorded choice of alts names (I7): all that
        was there when the task recovered may be read for it.
        """
        task = self._lane.task
        bounds = dict(self._ends)
        for one in task.due.ends if task.due else ():
            bounds[one.topic] = max(one.offset, bounds.get(one.topic, 0))
        facts = dict(task.inputs) if task.choice else {}
        for binding, topic in self._spec.inputs if facts else ():
            bounds[topic] = max(facts[binding].stable, bounds.get(topic, 0))
        self._intake.point(positions, bounds)

    def _delivered(self) -> bool:
        task = self._lane.task
        return task.state is Doing.READY and task.due is None and is_delivered(self._spec, task.positions, self._ends)

    def _advance(self, event: on.Event) -> None:
        self._lane.post()
        self._lane.advance(event)

    @property
    def _totals(self) -> Totals:
        record = self._lane.task.record
        return record.totals if record else Totals()

    def _close(self) -> None:
        self._lane.revoke(POLL_S)
        self._intake.close()

    # Native workers have the task.

    def _ask_for_members(self) -> None:
        """
        Ask before taking the id, so that a native worker that has the task is not disturbed, and again behind that.

        Raises:
            Claimed: there are some.
        """
        if members := self._broker.members(self._spec.group):
            raise Claimed(members)

    def _at(self, moment: str, effect: str) -> None:
        """
        Mark a crash point; and behind an init ask for members (J8).

        If the group has none, a worker that gets the task later takes the id in its recovery. That fences this slot.
        """
        if self._hook:
            self._hook(moment, effect)
        if (moment, effect) == ("after", "Init"):
            self._ask_for_members()

    def _claimed(self, members: list[str]) -> Outcome:
        text = f"group {self._spec.group!r} has members {members}: native workers run this processor"
        remedy = "stop them, or leave the processor out here with only=: it runs in one runtime at a time"
        claimed = Outcome(self._spec.name, self._spec.partition, kind="claimed", text=text, remedy=remedy)
        return with_tally(claimed, self._tally)
