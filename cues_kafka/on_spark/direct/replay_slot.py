"""The slot that delivers requests to replay errors, between two micro-batches of a plain processor (Y1 to Y3).

A batch of Spark takes no requests, and none comes while no message comes. So the driver looks at the replay topic, and
has a Spark task deliver what is asked for while no batch runs. To the core it is a native task with a short life: it
announces each request, and its deaths are counted. Two rules are those of a slot: it is no member of the group (D4),
and after it was fenced it never takes the id again (D5).

It delivers messages only where they must come first: those of a range that is due, and with effects all that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import events as on
from cues_kafka.core.records import Record
from cues_kafka.core.spec import REPLAY, Spec
from cues_kafka.core.task import Doing
from cues_kafka.errors import BrokerError, CodecError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.intake import PATIENCE_S, POLL_S
from cues_kafka.on_spark.direct.slot import Claimed, Slot
from cues_kafka.on_spark.query.outcome import Outcome, fenced_outcome
from cues_kafka.on_spark.query.slots import POLICY, with_tally
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.ports.observer import BatchReport
from cues_kafka.records.reading import newest_record
from cues_kafka.records.unreadable import way_past
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.pairing import Buffer, OutOfOrder
from cues_kafka.task.interpreter import Hook

TURN_S: Final = 1.0
"""How long a slot takes requests, about: batches wait meanwhile."""


class ReplaySlot(Slot):
    """Deliver requests of one partition of the replay topic, each once."""

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
            spec: the task, without `slot`, and with an incarnation of its own.
            caller: calls the function.
            broker: the cluster.
            clock: time.
            policy: when batches of steps are committed at the latest.
            hook: crash points.
        """
        hears = _HearsFailures(self._give_up)
        super().__init__(spec, caller, broker=broker, clock=clock, policy=policy, hook=hook, observers=(hears,))
        self._until = 0
        self._requests: Reader | None = None
        self._fenced = ""

    def replay(self, until: int) -> Outcome:
        """
        Deliver requests, for about `TURN_S`, and one at least.

        Args:
            until: the offset of the replay topic up to which there may be some.

        Returns:
            Where the task stands; `asked` is the next offset of the replay topic.
        """
        self._until = until
        if self._spec.effects:
            places = [TopicPartition(one.topic, self._spec.partition) for one in self._spec.inputs]
            self._ends = {place.topic: marks.stable for place, marks in self._broker.watermarks(places).items()}
        try:
            self._ask_for_members()
            self._advance(on.Assigned())
            before, end_s = self._totals, self._clock.monotonic() + TURN_S
            while not (self._lane.stopped or self._fenced) and self._take():
                delivered = self._lane.task.due is None and self._totals.replays > before.replays
                if delivered and self._clock.monotonic() >= end_s:
                    break
            if self._fenced:
                text = f"{self._spec.name} was fenced by another process: {self._fenced}"
                remedy = "see the newest record of the task: its writer runs it"
                outcome = Outcome(self._spec.name, self._spec.partition, kind="fenced", text=text, remedy=remedy)
                return with_tally(fenced_outcome(outcome, self._newest(), self._spec), self._tally)
            return replace(self._outcome(before), asked=self._stands)
        except Claimed as claimed:
            return self._claimed(claimed.members)
        finally:
            self._close()

    # The loop.

    def _take(self) -> bool:
        """Do what comes next; False: nothing can be done now."""
        lane = self._lane
        assert lane.buffer
        try:
            self._intake.read(lane.buffer, lane.task)
            self._read(lane.buffer)
        except (BrokerError, OutOfOrder) as error:
            self._advance(lane.fail(f"reading: {error}", way_past(error, lane.spec.processor)))
            return True
        if event := lane.work():
            lane.advance(self._or_fenced(event))
            return True
        if lane.wake_at_s is None:
            return lane.ahead  # a target has committed a part of a batch, whose rest comes next (E1)
        self._clock.sleep(lane.wake_at_s - self._clock.monotonic())
        return True

    def _read(self, buffer: Buffer) -> None:
        """Read until a request is there, or none can be."""
        heard_s, record = self._clock.monotonic(), self._lane.task.record
        while buffer.requests is not None and record and not (buffer.asked or buffer.requests.covers(self._until)):
            if self._clock.monotonic() - heard_s > PATIENCE_S:
                raise OutOfOrder(f"nothing new below {self._until} of {self._spec.replay} for {PATIENCE_S:g} s")
            if self._requests is None:
                self._requests = self._broker.reader(self._spec.group, prompt=True)
                place = TopicPartition(self._spec.replay, self._spec.partition)
                self._requests.assign({place: buffer.requests.next_offset})
            for fetched in self._requests.poll(POLL_S):
                heard_s = self._clock.monotonic()
                buffer.add(fetched)

    def _point(self, positions: Positions) -> None:
        self._close_requests()
        own = tuple(p for p in positions if p.binding != REPLAY)
        self._ends = {p.topic: max(p.offset, self._ends.get(p.topic, 0)) for p in own}
        super()._point(own)

    @property
    def _stands(self) -> int:
        """The next offset of the replay topic; behind the last request the end that was seen."""
        task, buffer = self._lane.task, self._lane.buffer
        if task.record is None or not task.record.replays:
            return 0
        at_rest = task.state is Doing.READY and task.due is None and buffer is not None
        if at_rest and buffer is not None and buffer.requests is not None:
            return buffer.requests.behind().offset
        return task.record.replays[0].offset

    # The end.

    def _give_up(self, why: str) -> None:
        """D5: a fence is not answered with another one."""
        if self._lane.task.fenced_at_s is not None:
            self._fenced = why
            self._lane.interpreter.gate.close(lost=True)

    def _newest(self) -> Record | None:
        """
        The newest record, for the name of the other process alone; None if it cannot be read now.

        To raise would have Spark run the replay again, which takes the id from the other process (D5).
        """
        with suppress(BrokerError, CodecError):
            return newest_record(self._spec, self._broker, self._clock)
        return None

    def _close(self) -> None:
        self._close_requests()
        if self._fenced:
            self._lane.lose()
        super()._close()

    def _close_requests(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._requests = None


class _HearsFailures:
    """An observer that hears of failures alone."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed

    def failed(self, task: str, why: str, round_: int) -> None:
        """The task would recover."""
        del task, round_
        self._failed(why)

    def committed(self, task: str, batch: BatchReport) -> None:
        """Do nothing: only failures are reported."""

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Do nothing: only failures are reported."""

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Not needed: the lane tells it."""

    def recovered(self, task: str, after_s: float) -> None:
        """Do nothing: only failures are reported."""
