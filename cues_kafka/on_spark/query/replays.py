"""Looks for requests to replay errors, and has them delivered between the micro-batches of a query (Y1, Y3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError, CuesError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.hold import BatchHold
from cues_kafka.on_spark.query.jobs import AT_ONCE
from cues_kafka.on_spark.query.outcome import Outcome, brief
from cues_kafka.on_spark.query.slots import FENCED_S
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import newest_record
from cues_kafka.task.replaying import SHARE

log = get_logger("cues_kafka.spark")

LOOK_S: Final = 1.0
"""How often the ends of the replay topic are read."""

AFTER_FAILURE_S: Final = 5.0

AFTER_FENCE_MAX_S: Final = 60.0
"""The pause after a fence doubles up to this, so that of two drivers one gives way."""

END_S: Final = 10.0
"""How long the end of a query waits for replays under way."""

Ends: TypeAlias = dict[int, int]
"""Offsets by partition."""


class BetweenBatches:
    """
    Has requests delivered while the block of this context manager runs.

    Args:
        deliver: delivers requests of one partition up to an offset, see `Replays`.
        first: the task of partition 0.
        broker: the cluster.
        clock: time.
        hold: of the batches. While some come, requests get a tenth of the time (Y3).
        tell: gets the outcomes.
        met: gets partition and name of another driver that delivers requests.
    """

    def __init__(
        self,
        deliver: Callable[[int, int], Outcome],
        first: Spec,
        broker: Broker,
        clock: Clock,
        *,
        hold: BatchHold,
        tell: Callable[[Outcome], None],
        met: Callable[[int, str], None] = lambda _, __: None,
    ) -> None:
        self._deliver, self._first, self._broker, self._clock = deliver, first, broker, clock
        self._hold, self._tell, self._met = hold, tell, met
        self._fences = 0  # in a row
        self._theirs: dict[int, tuple[Record, float]] = {}  # what another driver has announced, and since when it stays
        self._ended = threading.Event()
        # A query that ends by itself takes turns next to the thread. Guards all that `turn` changes. Taken before the
        # locks of `hold`.
        self._turning = threading.Lock()
        self._stands: Ends = {}
        self._places: list[TopicPartition] = []
        self._topic_id = b""
        self._thread = threading.Thread(target=self._run, name=f"{first.processor}-replays", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()  # first: a turn that has not begun then delivers nothing
        self._thread.join(END_S)

    @property
    def under_way(self) -> bool:
        """Whether a replay outlasts the block: user code does not return."""
        return self._thread.is_alive()

    def turn(self) -> bool:
        """
        Have requests delivered that are there, for about a second; whether some were, and more are there.

        Raises:
            CuesError: the cluster does not answer.
        """
        with self._turning:
            fences, self._fences = self._fences, 0  # what raises here is no fence: no other driver is why it waits
            due, outcomes = self._delivered()
            self._fences = fences
            return self._taken(due, outcomes)

    def _delivered(self) -> tuple[Ends, list[Outcome]]:
        """What was due, and the outcomes; none if nothing is due, or no replay may begin now."""
        if not (due := self._free(self._due())):
            return due, []
        with self._hold.between() as free:
            if not free or self._ended.is_set():
                return due, []
            with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="replays") as pool:
                return due, list(pool.map(lambda one: self._deliver(*one), due.items()))

    def _taken(self, due: Ends, outcomes: list[Outcome]) -> bool:
        """Tell outcomes; whether some requests were delivered, and more are there."""
        if not outcomes:
            return False
        before = dict(self._stands)
        self._fences = self._fences + 1 if any(outcome.fenced for outcome in outcomes) else 0
        for outcome in outcomes:
            self._take(outcome)
        if stops := [outcome for outcome in outcomes if outcome.kind]:
            raise BrokerError("; ".join(f"{stop.task}: {stop.text}" for stop in stops))
        return any(before[p] < self._stands[p] < end for p, end in due.items())

    def _take(self, outcome: Outcome) -> None:
        if outcome.kind:
            self._stands.pop(outcome.partition, None)
        else:
            self._stands[outcome.partition] = outcome.asked
        if outcome.fenced or not outcome.kind:
            self._tell(outcome)

    def _free(self, due: Ends) -> Ends:
        """
        Leave out partitions where another driver has announced a request just now.

        To take the id would throw its work away, and count as a death of the message. A driver that has entered finds
        no announcement of a dead predecessor, so what it finds is of a driver that lives, or has died since.
        After `FENCED_S` it is taken for dead. A longer call of one that lives is then taken over, too.
        """
        found = {}
        for partition, end in due.items():
            theirs = self._announced_by_others(partition)
            if theirs is None:
                self._theirs.pop(partition, None)
                found[partition] = end
                continue
            now_s = self._clock.monotonic()
            known, since_s = self._theirs.setdefault(partition, (theirs, now_s))
            if known != theirs:
                self._theirs[partition] = (theirs, now_s)
            elif now_s - since_s >= FENCED_S:
                found[partition] = end
                continue
            self._stands.pop(partition, None)
            self._met(partition, theirs.writer.name)
        return found

    def _announced_by_others(self, partition: int) -> Snapshot | None:
        record = newest_record(replace(self._first, partition=partition), self._broker, self._clock)
        if not isinstance(record, Snapshot) or not record.replay or record.left:
            return None
        return record if record.writer.name != self._first.writer.name else None

    def _due(self) -> Ends:
        """The ends of the partitions that have requests which are not delivered."""
        if not self._places:
            facts = self._broker.facts([self._first.replay]).topics.get(self._first.replay)
            if facts is None:
                return {}
            if facts.topic_id != self._topic_id:
                self._stands = {}
            self._topic_id = facts.topic_id
            self._places = [TopicPartition(facts.name, p) for p in range(min(facts.partitions, self._first.width))]
        try:
            found = self._broker.watermarks(self._places)
        except BrokerError:
            self._places = []
            raise
        ends = {place.partition: marks.stable for place, marks in found.items()}
        if any(self._stands.get(p, 0) > end for p, end in ends.items()):  # the topic was recreated
            self._places, self._stands = [], {}
            return {}
        return {p: end for p, end in ends.items() if end > 0 and self._standing(p) < end}

    def _standing(self, partition: int) -> int:
        """Where a task stands in the replay topic, by its record if no slot of this query has told."""
        if partition not in self._stands:
            record = newest_record(replace(self._first, partition=partition), self._broker, self._clock)
            known = [p.offset for p in record.replays if p.topic_id == self._topic_id] if record else []
            self._stands[partition] = known[0] if known else 0
        return self._stands[partition]

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            began_s, batches = self._clock.monotonic(), self._hold.batches
            try:
                pause_s = 0.0 if self.turn() else LOOK_S
                self._rest((SHARE - 1) * (self._clock.monotonic() - began_s), batches)
            except (CuesError, PySparkException, Py4JError, OSError) as error:  # the last three: Spark is gone
                pause_s = self._pause_s
                log.warning("replays put off", processor=self._first.processor, why=brief(str(error)), for_s=pause_s)

    @property
    def _pause_s(self) -> float:
        """How long to wait after a failure."""
        return min(AFTER_FAILURE_S * 2.0 ** max(0, self._fences - 1), AFTER_FENCE_MAX_S)

    def _rest(self, seconds: float, batches: int) -> None:
        """Y3: leave the time to batches, as long as they come."""
        end_s = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end_s and self._hold.comes_since(batches):
            batches = self._hold.batches
            if self._ended.wait(LOOK_S):
                return
