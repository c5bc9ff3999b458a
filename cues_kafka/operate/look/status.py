"""The status of a graph, as any machine sees it.

Where a task stands, and how far behind it is, comes from the cluster: the newest record of the task, and the ends of
its inputs. That is right wherever the task runs, and also if it runs nowhere. What only its process knows comes from
the status topic: the state, retries, why it stopped. What was told there longer ago than three periods counts as not
heard of: the process is dead, frozen or cut off.

Everything here only reads, and joins no group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from cues_kafka.arguments import known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.core.records import Totals
from cues_kafka.errors import BrokerError, ConfigError, UnstableOffsets
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, status_topic, tools_group
from cues_kafka.operate.look.newest import NewestRecord, NewestRecords
from cues_kafka.operate.look.seen import GraphStatus, InputLag, SeenState, SeenTask
from cues_kafka.operate.look.waiting import Waiting, WaitingMessages
from cues_kafka.plan.inspectors import facts_of
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides
from cues_kafka.plan.wellness import AHEAD, REPLAY, late, quarantined, recreated, without_record, without_task
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, TopicFacts, Watermarks
from cues_kafka.ports.log import Position, TopicPartition
from cues_kafka.records.reading import published_ends
from cues_kafka.records.scanning import read_range
from cues_kafka.records.status import StatusRecord, decode_status
from cues_kafka.records.strangers import readable
from cues_kafka.running.given import check_graph
from cues_kafka.task.clock import SystemClock

UNREADABLE: Final = (
    "restore the partition from a backup, or begin again on purpose: `cues-kafka delete MODULE:GRAPH PROCESSOR`, after "
    "which it begins at its start="
)
"""What helps a task whose newest record the client cannot read."""

PERIODS: Final = 3
"""After this number of periods without news a task counts as not heard of."""

_Answer = TypeVar("_Answer")


@known_call(ConfigError)
def status(cluster: Options, graph: Graph) -> GraphStatus:
    """
    Look at a graph once, from any machine.

    Args:
        cluster: `Kafka(...)` or `Memory(...)`.
        graph: the graph.

    Returns:
        Its status. A cluster that does not answer is a state of it, too, and raises nothing.

    Raises:
        ConfigError: an argument is not what it takes.
        BrokerError: the cluster refuses, for example because a right is missing.
    """
    check_graph("status", graph)
    broker = open_broker(cluster)
    try:
        with StatusView(graph, broker, sides=Sides.of(cluster)) as view:
            return view.look()
    finally:
        broker.close()


@dataclass(slots=True)
class _Look:
    """What the cluster says at one look."""

    at_s: float
    widths: Mapping[str, int]
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    marks: Mapping[TopicPartition, Watermarks] = field(default_factory=dict)
    records: Mapping[TopicPartition, NewestRecord] = field(default_factory=dict)
    open_since: Mapping[TopicPartition, float] = field(default_factory=dict)
    waiting: Mapping[tuple[TopicPartition, int], Waiting] = field(default_factory=dict)
    """What waits from an offset on. Readers stand at several."""
    running: dict[str, SeenState] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)


class StatusView:
    """Looks at a graph, once or again and again; one thread at a time."""

    def __init__(self, graph: Graph, broker: Broker, *, sides: Sides, clock: Clock | None = None) -> None:
        self._graph, self._broker, self._sides = graph, broker, sides.of_graph(graph)
        self._clock = clock or SystemClock()
        self._group = tools_group(graph.name)
        self._newest = NewestRecords(broker, self._group, self._clock)
        self._told: dict[str, StatusRecord] = {}
        self._told_to = 0
        self.left: set[str] = set()  # processes that have told that they leave, as `SeenTask.owner` names them
        self._before: dict[str, tuple[float, int]] = {}  # by task: when, and its deliveries then
        self._waiting = WaitingMessages(broker, self._group, self._clock)

    def look(self) -> GraphStatus:
        """
        The status now.

        Raises:
            BrokerError: the cluster refuses.
        """
        look = _Look(self._clock.time(), {})
        try:
            facts = self._facts()
            look.topics = facts.topics if facts else {}
            tasks = tuple(self._tasks(look))
            planned = facts and plan(self._graph, facts, accept_unchecked=True, sides=self._sides)
            refusals = planned.refusals if planned else ()
        except BrokerError as error:
            if error.forbidden or error.final:
                raise
            self._waiting.close()
            return GraphStatus(graph=self._graph.name, at_s=look.at_s, unreachable=str(error))
        return GraphStatus(
            graph=self._graph.name, at_s=look.at_s, tasks=tasks, unseen=tuple(look.unseen), refusals=refusals
        )

    def _facts(self) -> ClusterFacts | None:
        """What a plan asks; None: this user may not see all topics, as `doctor` says."""
        try:
            return facts_of(self._graph, self._broker, self._sides)
        except BrokerError as error:
            if not error.forbidden:
                raise
            return None

    def told(self) -> Mapping[str, StatusRecord]:
        """
        What processes told last, by task.

        Raises:
            BrokerError: the status topic cannot be read.
        """
        topic = status_topic(self._graph.name)
        if not self._sides.status or not self._broker.partitions([topic]):
            return {}
        place = TopicPartition(topic, 0)
        low, stable, _ = self._broker.watermarks([place])[place]
        if stable < self._told_to:  # the topic was recreated
            self._told, self._told_to = {}, 0
        if (start := max(low, self._told_to)) < stable:
            for message in read_range(self._broker, place, start, stable, group=self._group, passing="a status record"):
                self._take(message)
        self._told_to = stable
        return self._told

    def close(self) -> None:
        """Release the reader."""
        self._waiting.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # What the cluster says

    def _take(self, message: Any) -> None:
        task = (message.key() or b"").decode(errors="replace")
        self._told.pop(task, None)
        if message.value() is not None:
            found = readable(message, decode_status, "a status record")
            if found is not None:  # else the task counts as not told
                self._told[task] = found
                (self.left.add if found.state == "left" else self.left.discard)(str(found.owner))

    def _tasks(self, look: _Look) -> Iterator[SeenTask]:
        graph = self._graph
        backing = {name: backing_topic(graph.name, name) for name in graph.all_processors}
        read = {topic for one in graph.all_processors.values() for topic in one.read_topics}
        self._broker.facts(())  # waits for the cluster, or says why it cannot be reached
        look.widths = self._broker.partitions(sorted({*backing.values(), *read}))
        places = [TopicPartition(topic, p) for topic, width in look.widths.items() for p in range(width)]
        look.marks = self._broker.watermarks(places)
        look.records = self._newest.look({at: one for at, one in look.marks.items() if at.topic in backing.values()})
        nothing: Mapping[str, StatusRecord] = {}
        told = self._may(look, "what processes told", self.told, nothing)
        reports = [one for name in graph.all_processors for one in self._of_processor(name, look, told)]
        look.open_since = self._open_since(look)
        look.waiting = self._what_waits(look, reports)
        yield from (self._finished(one, look) for one in reports)

    def _may(self, look: _Look, what: str, question: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """The answer; where a right is missing, that is said, and the rest is shown."""
        try:
            return question()
        except BrokerError as error:
            if not error.forbidden:
                raise
            look.unseen[f"{what[0].upper()}{what[1:]} cannot be seen: {error}."] = None
            return otherwise

    def _open_since(self, look: _Look) -> Mapping[TopicPartition, float]:
        places = [place for place, one in look.marks.items() if one.stable < one.high]
        if not places:
            return {}
        return self._may(look, "open transactions", lambda: self._broker.open_since(places, group=self._group), {})

    def _what_waits(self, look: _Look, reports: Iterable[SeenTask]) -> Mapping[tuple[TopicPartition, int], Waiting]:
        starts: dict[TopicPartition, set[int]] = {}
        for one in (one for report in reports for one in report.inputs):
            if one.position is None or one.lag is None:  # without an end the topic is not there
                continue
            place = TopicPartition(one.topic, one.partition)
            marks, at = look.marks[place], _start(one, look)
            if at < marks.stable:
                starts.setdefault(place, set()).add(at)
        if not starts:
            return {}
        ranges = {place: (offsets, look.marks[place].stable) for place, offsets in starts.items()}
        nothing: Mapping[tuple[TopicPartition, int], Waiting] = {}
        return self._may(look, "the age of messages that wait", lambda: self._waiting.look(ranges), nothing)

    # Tasks

    def _of_processor(self, name: str, look: _Look, told: Mapping[str, StatusRecord]) -> Iterator[SeenTask]:
        part = self._graph.all_processors[name]
        backing = backing_topic(self._graph.name, name)
        newest = [look.records[TopicPartition(backing, p)] for p in range(look.widths.get(backing, 0))]
        whole = told.get(name)  # a processor that stopped as a whole
        if newest and newest[0].record and newest[0].record.staged:
            said = _of_slots(whole, [one for p in range(len(newest)) if (one := told.get(f"{name}/{p}"))])
            latest = max(newest, key=lambda one: one.committed_s)
            yield self._report(look, name, None, (latest, said), self._staged_inputs(look, part.read_topics, newest))
            return
        lead = part.read_topics[0] if part.read_topics else ""
        inputs = look.widths.get(lead, 1)
        records = newest or [NewestRecord()] * inputs
        lost = self._lost(look, name, [p for p, one in enumerate(records) if not (one.record or one.why)])
        for p, record in enumerate(records):
            said = _of_task(whole, told.get(f"{name}/{p}"))
            positions = record.record.positions if record.record else ()
            found = self._inputs(look, p, [at for at in positions if at.topic != backing], said)
            report = self._report(look, name, p, (record, said), found)
            gone = next((at.topic for at in positions if self._other(look, at)), None)
            if p in lost or gone is not None:
                group = group_id(self._graph.name, name)
                facts = recreated(name, p, gone) if gone is not None else without_record(name, backing, group, p)
                report = replace(report, missing=facts.why, missing_remedy=facts.remedy)
            yield report
        if newest and name in self._graph.processors:
            yield from (self._missing(look, name, lead, p, len(newest)) for p in range(len(newest), inputs))

    def _other(self, look: _Look, at: Position) -> bool:
        """Whether a place is in a topic of this name that is not there any longer: another one took the name."""
        found = look.topics.get(at.topic)
        return found is not None and found.topic_id != at.topic_id

    def _missing(self, look: _Look, name: str, lead: str, partition: int, tasks: int) -> SeenTask:
        """A partition that was added, and that has no task yet."""
        facts = without_task(name, lead, partition, tasks)
        start = look.marks[TopicPartition(lead, partition)].low
        own = _input(look, TopicPartition(lead, partition), start)
        return SeenTask(
            processor=name,
            partition=partition,
            state="never started",
            inputs=(own,),
            missing=facts.why,
            missing_remedy=facts.remedy,
        )

    def _lost(self, look: _Look, name: str, partitions: Sequence[int]) -> set[int]:
        """Partitions without a record whose group has offsets: a worker commits both at once, so a record is lost."""
        processor = self._graph.processors.get(name)
        if not partitions or processor is None or processor.strategy == "at-least-once":  # W6: offsets come first
            return set()
        group, backing = group_id(self._graph.name, name), backing_topic(self._graph.name, name)
        inputs = [TopicPartition(t, p) for t in processor.input_topics for p in partitions if p < look.widths.get(t, 0)]

        def ask() -> Mapping[TopicPartition, int | None]:
            try:
                return self._broker.committed(group, inputs)
            except UnstableOffsets:
                return {}  # a transaction is about to commit a record

        nothing: Mapping[TopicPartition, int | None] = {}
        held = self._may(look, f"the offsets of {name!r}", ask, nothing)
        found = {place.partition for place, offset in held.items() if offset is not None}
        there = [TopicPartition(backing, p) for p in found if p < look.widths.get(backing, 0)]
        begun = self._broker.watermarks(there) if there else {}  # a task may have begun since the records were read
        return found - {place.partition for place, now in begun.items() if now.high > look.marks[place].high}

    def _inputs(
        self, look: _Look, partition: int, positions: Iterable[Position], said: StatusRecord | None
    ) -> list[InputLag]:
        """Where a task stands. Its process may know more: that only markers follow its position."""
        told = {(one.topic, one.topic_id): one.offset for one in (said.positions if said else ())}
        return [
            _input(
                look,
                TopicPartition(one.topic, partition),
                max(one.offset, told.get((one.topic, one.topic_id), 0)),
            )
            for one in positions
        ]

    def _staged_inputs(self, look: _Look, topics: Iterable[str], newest: Sequence[NewestRecord]) -> list[InputLag]:
        ends = published_ends([one.record for one in newest])
        places = [TopicPartition(topic, p) for topic in topics for p in range(look.widths.get(topic, 0))]
        return [_input(look, place, ends.get(place)) for place in places]

    def _report(
        self,
        look: _Look,
        name: str,
        partition: int | None,
        known: tuple[NewestRecord, StatusRecord | None],
        inputs: Sequence[InputLag],
    ) -> SeenTask:
        newest, said = known
        record, state = newest.record, self._state(name, look, said)
        totals = record.totals if record else Totals()
        task = name if partition is None else f"{name}/{partition}"
        heard = said is not None and state == said.state
        missing, missing_remedy = (said.lost, said.lost_remedy) if said and heard else ("", "")
        if newest.lasts:
            missing = f"its newest record cannot be read: {newest.why}"
            missing_remedy = newest.remedy or UNREADABLE.replace("PROCESSOR", name)
        rate = None if newest.why else self._rate(task, look, totals.deliveries)
        report = SeenTask(
            processor=name,
            partition=partition,
            state=state,
            owner=str(said.owner) if said else record.writer.name if record else "",
            runtime=said.owner.runtime if said else record.writer.runtime if record else "",
            inputs=tuple(inputs),
            place=said.place if said else "",
            rate=said.rate if said and heard else rate,
            **{one: getattr(totals, one) for one in ("deliveries", "outputs", "errors", "nils", "dropped")},
            committed_s=newest.committed_s,
            notes=tuple(_notes(newest, said if heard else None)),
            missing=missing,
            missing_remedy=missing_remedy,
        )
        if said is None:
            return report
        # These count only while it is heard of.
        now = ("held", "throttled_s", "late", "quarantined", "silent", "silent_s") if heard else ()
        names = ("retries", "failures", "error", "error_s", "stopped", "remedy", "stopped_s", "at", "hash", "told_s")
        return replace(report, **{one: getattr(said, one) for one in (*names, *now)})

    def _state(self, name: str, look: _Look, said: StatusRecord | None) -> SeenState:
        """The state of a task, by what its process told last or else by what the cluster shows."""
        if said is not None:
            heard = said.state == "left" or look.at_s - said.told_s <= PERIODS * said.every_s
            return said.state if heard else "not heard of"
        if name not in look.running:
            look.running[name] = self._running(name, look)
        return look.running[name]

    def _running(self, name: str, look: _Look) -> SeenState:
        backing, group = backing_topic(self._graph.name, name), group_id(self._graph.name, name)
        found = [one for at, one in look.records.items() if at.topic == backing]
        if not any(one.record or one.why for one in found):
            return "never started"
        if any(one.record and one.record.writer.runtime == "spark" for one in found):
            return "not told"
        members = self._may(look, f"who runs {name!r}", lambda: self._broker.members(group), None)
        return "not told" if members is None else "running" if members else "no worker"

    def _rate(self, task: str, look: _Look, deliveries: int) -> float | None:
        """Deliveries per second since the look before."""
        before = self._before.get(task)
        self._before[task] = look.at_s, deliveries
        if before is None or look.at_s <= before[0]:
            return None
        return max(0.0, (deliveries - before[1]) / (look.at_s - before[0]))

    def _finished(self, report: SeenTask, look: _Look) -> SeenTask:
        """The report with what was asked behind it: which messages wait, and which transactions are open."""
        inputs = tuple(_with_age(one, look) for one in report.inputs)
        known = [one.lag for one in inputs]
        own = TopicPartition(backing_topic(self._graph.name, report.processor), report.partition or 0)
        return replace(
            report,
            inputs=inputs,
            lag=sum(lag for lag in known if lag is not None) if known and None not in known else None,
            waiting_s=max((one.waiting_s for one in inputs if one.waiting_s is not None), default=None),
            open_s=_age(look, look.open_since.get(own)),
        )


def _of_task(whole: StatusRecord | None, own: StatusRecord | None) -> StatusRecord | None:
    """What was told of a task: its processor may have stopped as a whole, but only in the process that says so."""
    if whole is None or own is None or own.owner.incarnation == whole.owner.incarnation:
        return whole or own
    works = own.state != "left" and own.told_s > whole.told_s - PERIODS * own.every_s
    return own if works or own.told_s > whole.told_s else whole


def _of_slots(whole: StatusRecord | None, slots: Sequence[StatusRecord]) -> StatusRecord | None:
    """What was told of a staged processor: by a slot that has stopped, else by the one that was heard of last."""
    return _of_task(whole, next((one for one in slots if one.stopped), max(slots, key=_told_s, default=None)))


def _told_s(said: StatusRecord) -> float:
    return said.told_s


def _input(look: _Look, place: TopicPartition, position: int | None) -> InputLag:
    marks = look.marks.get(place)
    if marks is None or position is None:
        return InputLag(topic=place.topic, partition=place.partition, position=position, end=marks.high if marks else 0)
    lag = max(0, marks.high - max(position, marks.low))
    return InputLag(topic=place.topic, partition=place.partition, position=position, end=marks.high, lag=lag)


def _with_age(one: InputLag, look: _Look) -> InputLag:
    place = TopicPartition(one.topic, one.partition)
    one = replace(one, open_s=_age(look, look.open_since.get(place)))
    waiting = look.waiting.get((place, _start(one, look)))
    if one.position is None or waiting is None:
        return one
    marks, waiting_s = look.marks[place], _age(look, waiting.oldest_s)
    if waiting.messages is None:
        return replace(one, waiting_s=waiting_s)
    return replace(one, waiting_s=waiting_s, lag=waiting.messages + marks.high - marks.stable)


def _start(one: InputLag, look: _Look) -> int:
    """The first offset that a task with a position has not delivered, and that the log still has."""
    place = TopicPartition(one.topic, one.partition)
    return max(one.position or 0, look.marks[place].low) if place in look.marks else 0


def _age(look: _Look, since_s: float | None) -> float | None:
    return None if since_s is None else max(0.0, look.at_s - since_s)


def _notes(newest: NewestRecord, said: StatusRecord | None) -> Iterator[str]:
    if newest.why and not newest.lasts:
        yield f"its newest record cannot be read: {newest.why}"
    if said is None:
        return
    yield from (text for text in (said.calling, said.rival) if text)
    if said.unreachable_s:
        yield f"its process has not reached the cluster for {said.unreachable_s:.0f} s"
    if said.late:
        yield f"{late(said.late)}, since its process has the task. {AHEAD}"
    if said.quarantined:
        yield f"{quarantined(said.quarantined)}, since its process has the task. {REPLAY}"
    if said.unpausable and said.held:
        yield f"it cannot be paused: {said.unpausable}"
