"""What a worker asks the cluster from time to time: does it answer, have topics changed, has each task an owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import CLUSTER
from cues_kafka.ports.broker import Broker, Inlet
from cues_kafka.ports.clock import Clock
from cues_kafka.state.stores import Cache
from cues_kafka.task.following import Tables
from cues_kafka.task.lane import Lane
from cues_kafka.task.parts.stores import Storing
from cues_kafka.task.parts.tables import Following
from cues_kafka.task.status import TaskStatus
from cues_kafka.workers.needed import LostTopic, Needed, lost_of, partitions_there, places_of, trimmed

log = get_logger("cues_kafka.worker")

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


class Questions:
    """
    Each question has an interval of its own, and is asked on a thread of the pool.

    Attributes:
        name: the processor's.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: Broker,
        inlet: Inlet,
        clock: Clock,
        first: Callable[[], Spec],
        lanes: Mapping[int, Lane],
        recover: Callable[[Lane, str], None],
        grow: Callable[[int], None],
        rejoin: Callable[[], None],
        needed: Sequence[Needed] = (),
    ) -> None:
        """
        Args:
            name: the processor's.
            broker: the cluster.
            inlet: where the inputs are.
            clock: time.
            first: gives the spec of partition 0, with the number of tasks.
            lanes: the tasks of this process, by partition.
            recover: sends a task back to R1, with the reason.
            grow: starts tasks of new partitions, up to this number.
            rejoin: has the member join its group again.
            needed: topics that the tasks need beside their inputs.
        """
        self.name = name
        self._broker, self._inlet, self._clock = broker, inlet, clock
        self._first = first
        self._lanes = lanes
        self._recover = recover
        self._grow = grow
        self._rejoin = rejoin
        self._needed = needed
        self._lost: Mapping[int, LostTopic] = {}
        now_s = clock.monotonic()
        asking = (self.compare_topic_ids, self.look_for_lost, self._ask_cluster, self._look_for_unowned)
        self._asked_at_s = dict.fromkeys(asking, now_s)
        self._asking = False
        self._generation = -1  # of the last question
        self._unowned: set[int] = set()
        self._looks = (-1, 0)  # generation, answers in it
        self._silent_since_s: float | None = None
        self._silence_told = False
        self._grown = (0, 0)

    @property
    def unreachable_s(self) -> float:
        """How long the cluster has not answered."""
        silent = self._silent_since_s
        return 0.0 if silent is None else self._clock.monotonic() - silent

    def ask_what_is_due(self, generation: int, pool: Executor) -> None:
        """Ask on threads of the pool. `generation` is that of the group."""
        self._generation, now = generation, self._clock.monotonic()
        answers = self._looks[1] if self._looks[0] == generation else 0
        for ask, every_s, wanted in (
            (self.compare_topic_ids, CHECK_TOPICS_S, True),
            (self.look_for_lost, CHECK_TOPICS_S, True),
            (self._ask_cluster, CHECK_CLUSTER_S, not self._asking),
            (self._look_for_unowned, CHECK_GROUP_S, answers < LOOKS),
        ):
            if wanted and now - self._asked_at_s[ask] >= every_s:
                self._asked_at_s[ask] = now
                pool.submit(ask)

    def _ask_cluster(self) -> None:
        self._asking, began_s = True, self._clock.monotonic()
        first = self._first()
        lead, backing = first.inputs[0].topic, first.backing
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
        silent_s = self._clock.monotonic() - self._silent_since_s
        if silent_s >= UNREACHABLE_S and not self._silence_told:
            self._silence_told = True
            log.error("cluster unreachable", processor=self.name, for_s=round(silent_s), why=str(error))

    def _answered(self) -> None:
        if self._silence_told and self._silent_since_s is not None:
            silent_s = self._clock.monotonic() - self._silent_since_s
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
        if width > self._first().width:
            log.info("partitions added", processor=self.name, topic=lead, tasks=width)
            self._grow(width)
        self._grown = partitions, backing

    def _look_for_unowned(self) -> None:
        generation, first = self._generation, self._first()
        try:
            found = self._broker.unowned(first.group, first.inputs[0].topic, first.width)
        except BrokerError as error:
            why = "could not read the group's state; asking again later"
            CLUSTER.info(log, why, cause=why, processor=self.name, error=str(error))
            return
        self._looks = (generation, self._looks[1] + 1 if self._looks[0] == generation else 1)
        if found and found == self._unowned:
            log.warning(
                "partitions without an owner; joining the group again", processor=self.name, unowned=sorted(found)
            )
            self._rejoin()
            found = set()
        self._unowned = found

    def compare_topic_ids(self) -> None:
        """
        R6, R4b, L2: a topic that was recreated must not be read or written on as if it were the old one.

        A table is read again: its old entries are gone, and new ones may be below the place up to which it was read.
        """
        first = self._first()
        try:
            facts = self._inlet.facts([i.topic for i in first.inputs]).topics
            tailed = [i.topic for i in first.tailers] + ([first.replay] if first.replay else [])
            facts = {**(self._broker.facts(tailed).topics if tailed else {}), **facts}
            tables = self._tables()
            looked_up = dict(tables.topics) if tables else {}
            now = self._broker.facts(looked_up).topics if looked_up else {}
            kept = [topic for _, topic in first.stores]
            changelogs = self._broker.facts(kept).topics if kept else {}
        except BrokerError as error:
            why = "could not check whether topics were recreated; asking again later"
            CLUSTER.warning(log, why, cause=why, processor=self.name, error=str(error))
            return
        for lane in list(self._lanes.values()):
            record = lane.task.record
            for position in (*lane.task.positions, *(record.tails if record else ())):
                found = facts.get(position.topic)
                if found is None or found.topic_id != position.topic_id:
                    self._recover(lane, f"topic {position.topic!r} was deleted or recreated")
                    break
            for asked in record.replays if record else ():
                found = facts.get(asked.topic)
                if found is not None and found.topic_id != asked.topic_id:
                    self._recover(lane, f"topic {asked.topic!r} was recreated")
            storing = lane.part(Storing)
            for one in storing.stores.caches if storing and lane.ready else ():
                topic, there = one.spec.changelog, changelogs.get(one.spec.changelog)
                if one.place.topic_id and (there is None or there.topic_id != one.place.topic_id):
                    self._recover(lane, f"topic {topic!r} was deleted or recreated")
                    break
        for topic, was in looked_up.items():
            there = now.get(topic)
            if tables and (there is None or there.topic_id != was) and tables.begin_again(topic):
                for lane in list(self._lanes.values()):
                    self._recover(lane, f"topic {topic!r} was deleted or recreated")

    def look_for_lost(self) -> None:
        """
        See whether the cluster still has what the tasks need and do not touch while they are idle.

        A task with all that it needs in memory goes on. What it needs at its next message, or its successor at a start,
        is told as long as it is missing.
        """
        lanes = dict(self._lanes)
        read = {partition: _read_by(lane) for partition, lane in lanes.items()}
        changelogs = [place for partition, caches in read.items() for place in places_of(caches, partition)]
        try:
            there = partitions_there(self._broker, self._needed)
            widths = self._broker.partitions(sorted({one.topic for one in changelogs})) if changelogs else {}
            changelogs = [one for one in changelogs if one.partition < widths.get(one.topic, 0)]
            marks = self._broker.watermarks(changelogs) if changelogs else {}
        except BrokerError as error:
            why = "could not check whether topics were deleted; asking again later"
            CLUSTER.warning(log, why, cause=why, processor=self.name, error=str(error))
            return
        found = {p: lost_of(self._needed, there, p) or trimmed(caches, p, marks) for p, caches in read.items()}
        lost = {partition: one for partition, one in found.items() if one is not None}
        for what, remedy in dict.fromkeys(one for one in lost.values() if one not in self._lost.values()):
            log.error("lost", processor=self.name, why=what, remedy=remedy)
        self._lost = lost

    def with_what_is_lost(self, status: TaskStatus) -> TaskStatus:
        """The status of a task with what the cluster has lost of what it needs."""
        lost = self._lost.get(int(status.task.rpartition("/")[2]))
        return status if lost is None else replace(status, lost=lost.what, lost_remedy=lost.remedy)

    def _tables(self) -> Tables | None:
        """What the tasks look keys up in, which they share; None: they have no tables."""
        following = (lane.part(Following) for lane in list(self._lanes.values()))
        return next((one.tables for one in following if one is not None), None)


def _read_by(lane: Lane) -> Sequence[Cache]:
    """The stores of a task that has read them; none while it does."""
    storing = lane.part(Storing)
    return [*storing.stores.caches] if storing and lane.ready else []
