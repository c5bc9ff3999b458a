"""Says what the tasks of a graph will do when it is deployed: by their newest records, with the checks of a recovery.

A task compares its newest record with its declaration when it recovers (R5), and stops where going on would lose or
repeat messages. This asks the same functions of the core with the same facts, and writes nothing. Where workers run,
positions move between two questions, so there the group's offsets are not compared. Inputs that the plan would create
count as if they were there, without messages: `plan --apply` comes before all else, and a remedy names it first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.moves import decide
from cues_kafka.core.records import Record
from cues_kafka.core.recover import MIGRATE, Pending, Refuse, foreign, recover
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.staged import Enter, verdict
from cues_kafka.core.tails import placed
from cues_kafka.errors import (
    CodecError,
    ConfigError,
    RecoveryError,
    RetriableError,
    UnreadableError,
    UnstableOffsets,
)
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import backing_topic, changelog_topic, group_id
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.look.changed_inputs import difference, refuse_busy
from cues_kafka.operate.look.misplaced import misplaced
from cues_kafka.operate.look.newest import ANOTHER_RELEASE
from cues_kafka.operate.look.tasks import TaskReading
from cues_kafka.plan.plan import Plan
from cues_kafka.plan.processors import PlannedStop
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.entries import EntriesPlace
from cues_kafka.state.marks import finished
from cues_kafka.state.stores import Cache, Stores
from cues_kafka.task.making.build import store_spec
from cues_kafka.task.making.other_inputs import other_sources
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.restoring import Restoring

AT_ONCE: Final = 8
"""How many tasks are looked at side by side; each takes a client of its own for a moment."""

LAST: Final = 256
"""Offsets at the end of a changelog that are read. A batch ends with a mark there, so one batch is enough; if this has
none, all of it is read."""

NOT_YET: Final = bytes(16)
"""Stands for the id of a topic that does not exist yet."""

STALE: Final = "STALE_END"
"""The code of a changelog that does not end where the record says."""


DEADLY_REMEDY: Final = (
    "declare an errors topic (`errors=`), which takes the message without a call; or fix the function and deploy it "
    "with `quarantine_after=None`, which calls it again"
)


class Foreseen(NamedTuple):
    """
    What deploying a graph would do to its tasks.

    Attributes:
        stops: tasks that would stop.
        warnings: what changes without a stop, in full sentences.
    """

    stops: tuple[PlannedStop, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _Compared:
    """A processor or feed with what the cluster says of all of its tasks."""

    declared: Processor | DataFrameProcessor | Feed
    make: Callable[[int], Spec]
    tasks: int
    running: bool
    warnings: dict[str, None] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Note it once."""
        self.warnings[text] = None


def foresee(
    graph: Graph,
    broker: Broker,
    planned: Plan,
    names: Sequence[str],
    *,
    clock: Clock | None = None,
    cluster: Any = None,
    facts: ClusterFacts | None = None,
) -> Foreseen:
    """
    Compare the newest record of each task with the declaration of its processor.

    Args:
        graph: as it would be deployed.
        broker: the cluster.
        planned: the plan of the graph there.
        names: of the processors and feeds to look at.
        clock: bounds the wait for records.
        cluster: its options, for codecs of stores that are in a registry.
        facts: what the cluster says of the topics of the graph; None: ask.

    Raises:
        BrokerError: the cluster does not answer, or this user may not read a backing topic.
    """
    reading = TaskReading(graph, broker, clock, facts=facts, planned=planned)
    looking = _Looking(reading, cluster)
    found: dict[tuple[str, str], list[str]] = {}
    warnings: list[str] = []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="foresee") as pool:
        for part in looking.parts(names):
            for spec, halt in pool.map(lambda p, part=part: looking.at(part, p), range(part.tasks)):
                if halt is not None:
                    found.setdefault((halt.text, _whole(spec, halt.remedy)), []).append(spec.name)
            warnings += part.warnings
    stops = [PlannedStop(tuple(tasks), why, remedy) for (why, remedy), tasks in found.items()]
    return Foreseen((*stops, *misplaced(reading, names, looking.records)), tuple(warnings))


def _whole(spec: Spec, remedy: str) -> str:
    """The remedy with its command in full: some texts name the verb alone, or no processor."""
    whole = remedy.replace("`cues-kafka strategy`", f"`cues-kafka strategy MODULE:GRAPH {spec.processor}`")
    return whole.replace("MODULE:GRAPH PROCESSOR", f"MODULE:GRAPH {spec.processor}")


def _deadly(spec: Spec, pending: Pending) -> Halt | None:
    """Q3: a step that has killed its process too often needs an errors topic; the function is not called again."""
    after, record = spec.quarantine_after, pending.record
    if spec.errors or after is None or record.steps != 1 or pending.starts <= after:
        return None
    places = ", ".join(f"{p.topic}/{spec.partition} at {p.offset}" for p in record.positions)
    what = f"the first timer, with {places} next," if record.timers else f"the message {places}"
    return Halt("refused", f"{what} killed its process at least {pending.starts} times", DEADLY_REMEDY)


def _migrating(spec: Spec, record: Record | None, halt: Halt, made: Collection[str]) -> Halt:
    """
    The refusal; where inputs were added or dropped, with the command that moves the task to them.

    Args:
        spec: the task.
        record: its newest one.
        halt: the refusal.
        made: inputs that do not exist yet; the command refuses until they do.
    """
    if record is None or not halt.remedy.startswith(MIGRATE):
        return halt
    otherwise = halt.remedy.removeprefix(MIGRATE)
    options = difference(spec, record).command
    later = ", or with latest in place of earliest to skip what an added input holds" if "=earliest" in options else ""
    command = f"`cues-kafka migrate MODULE:GRAPH {spec.processor}{options}`"
    topics = " and ".join(map(repr, sorted(made)))
    create = f"run `cues-kafka plan MODULE:GRAPH --apply`, which creates {topics}, then run" if made else ""
    try:
        refuse_busy(spec, record)
    except RecoveryError as error:
        then = f"Before it, {create}" if made else "The command is then"
        return replace(halt, remedy=f"{error} {then} {command}{later}. Or {otherwise}")
    steps = f"stop the workers, {create or 'and run'} {command}{later}"
    return replace(halt, remedy=f"{steps}. It first says what is lost. Or {otherwise}")


@dataclass(frozen=True, slots=True)
class _Looking:
    reading: TaskReading
    cluster: Any
    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    """The newest ones that were read, by processor and partition."""

    def parts(self, names: Sequence[str]) -> Iterator[_Compared]:
        identity = Identity("tool", "plan", "")
        for name, declared in self.reading.graph.all_processors.items():
            width = self.reading.width(backing_topic(self.reading.graph.name, name))
            if name not in names or not (width or isinstance(declared, Processor)):
                continue
            tasks = width or self._lost(name)
            if not tasks:
                continue
            whole = self.reading.plan[name].partitions if isinstance(declared, Processor) else None
            make = self.reading.specs(name, identity, whole or width)
            yield _Compared(
                declared, make, tasks, bool(self.reading.broker.members(group_id(self.reading.graph.name, name)))
            )

    def _lost(self, name: str) -> int:
        """The number of tasks whose backing topic was deleted: the group has offsets. 0: it is new."""
        topics = self.reading.graph.processors[name].input_topics
        places = [TopicPartition(topic, p) for topic in topics for p in range(self.reading.width(topic))]
        try:
            held = self.reading.broker.committed(group_id(self.reading.graph.name, name), places)
        except UnstableOffsets:
            return 0
        ran = any(offset is not None for offset in held.values())
        return (self.reading.plan[name].partitions or 0) if ran else 0

    def at(self, part: _Compared, partition: int) -> tuple[Spec, Halt | None]:
        """Why one task would stop; None: it would go on, or begin."""
        spec = part.make(partition)
        try:
            record = self.reading.record(spec) if self.reading.width(spec.backing) else None
        except CodecError as error:
            return spec, Halt("refused", f"its newest record cannot be read: {error}", ANOTHER_RELEASE)
        except UnreadableError as error:
            return spec, Halt("refused", f"its newest record cannot be read: {error}", error.remedy)
        except RetriableError as error:
            part.warn(f"Not checked: {spec.name}: {error}")
            return spec, None
        if record is not None:
            self.records[spec.processor, partition] = record
        if isinstance(part.declared, DataFrameProcessor) and (record is None or self._is_staged(spec, record)):
            return spec, None if record is None else self._staged(spec, record, part.declared)
        inputs, tails = (
            self.reading.inputs(spec, self.reading.there(spec, bindings)) for bindings in (spec.inputs, spec.tailers)
        )
        made = self._made(spec, record, inputs)
        inputs |= dict.fromkeys(made, InputFacts(NOT_YET, 0, 0, 0))
        decision = placed(spec, recover(spec, record, self._offsets(part, spec), inputs), tails)
        if isinstance(decision, Refuse):
            halt = self._feasible(spec, record, decision.halt, inputs)
            topics = {*made.values()}
            return spec, _migrating(spec, record, halt, topics) if isinstance(part.declared, Processor) else halt
        if isinstance(decision, Pending) and (deadly := _deadly(spec, decision)):
            return spec, deadly
        if record is None or not isinstance(part.declared, Processor):
            return spec, None
        return spec, self._stores(part, spec, record)

    def _is_staged(self, spec: Spec, record: Record) -> bool:
        frames = {one.name: one.staged for one in self.reading.plan.dataframes}
        return record.staged is not None or frames[spec.processor]

    def _staged(self, spec: Spec, record: Record, declared: DataFrameProcessor) -> Halt | None:
        """Compare a staged slot as far as its record tells; the rest is in the checkpoint of the query."""
        if refusal := foreign(spec, record):
            return refusal.halt
        found = verdict(Enter(query="", stateless=True, part=spec.partition), record)
        if isinstance(found, Halt):
            return found
        return other_sources(declared, record.staged) if record.staged else None

    def _feasible(self, spec: Spec, record: Record | None, halt: Halt, inputs: Mapping[str, InputFacts]) -> Halt:
        """The refusal; where the command that changes a strategy would refuse too, with what to do before it."""
        if record is None or record.strategy == spec.strategy or "`cues-kafka strategy`" not in halt.remedy:
            return halt
        move = Move(after=record.sequence, positions=record.positions, strategy=spec.strategy)
        before = decide(spec, move, record, inputs)
        if not isinstance(before, Halt):
            return halt
        return replace(halt, text=f"{halt.text}; {before.text}", remedy=f"{before.remedy}; then {halt.remedy}")

    def _made(self, spec: Spec, record: Record | None, inputs: Collection[str]) -> dict[str, str]:
        """The topics of added inputs that the plan would create, by binding. Others that are missing are refused."""
        added = spec.inputs if record is None else difference(spec, record).gained
        made = {one.name for one in self.reading.plan.create if one.partitions > spec.partition}
        return {one.binding: one.topic for one in added if one.binding not in inputs and one.topic in made}

    def _offsets(self, part: _Compared, spec: Spec) -> dict[str, int | None]:
        """The group's offsets by binding, where nothing moves them: workers commit them with their records."""
        if part.running or not isinstance(part.declared, Processor):
            return {}
        held = self.reading.offsets(spec)
        if held is None:
            part.warn(f"Not checked: the offsets of group {spec.group}: an open transaction holds them.")
        return held or {}

    # Stores

    def _stores(self, part: _Compared, spec: Spec, record: Record) -> Halt | None:
        """R4b, by the ends of the changelogs, so that large stores take no longer than small ones."""
        assert isinstance(part.declared, Processor)
        declared, kept = part.declared.state, dict(finished(record.stores))
        for name in sorted(kept.keys() - declared.keys()):
            topic = changelog_topic(spec.graph, spec.processor, name)
            part.warn(
                f"{spec.processor} no longer has the store {name!r}. {topic!r} keeps its entries as they are now; if "
                "the store is declared again, it goes on with them, whatever was delivered meanwhile."
            )
        for name in sorted(declared.keys() - kept.keys() if record.step else ()):
            part.warn(
                f"{spec.processor} has a new store {name!r}. It begins empty, and knows nothing of the messages that "
                f"were delivered before. `cues-kafka rebuild MODULE:GRAPH {spec.processor}` builds it from the input."
            )
        try:
            self._ends(part, spec, record)
        except (ConfigError, UnreadableError) as error:
            return Halt("refused", str(error), error.remedy)
        except RetriableError as error:
            if error.code == STALE and (moved := self.reading.record(spec)) != record and moved:
                return self._stores(part, spec, moved)  # a worker has delivered meanwhile
            if error.code == STALE:
                return Halt("refused", str(error), error.remedy)
            part.warn(f"Not checked: the stores of {spec.name}: {error}")
        return None

    def _ends(self, part: _Compared, spec: Spec, record: Record) -> None:
        """
        Read the ends of the changelogs as a task does that has read all before.

        Raises:
            ConfigError, RetriableError: as `Restoring.bring_up`.
        """
        assert isinstance(part.declared, Processor)
        topics, kept = self.reading.facts.topics, dict(record.stores)
        specs = [
            store_spec(name, part.declared.state[name], topic, self.reading.broker.max_bytes, self.cluster)
            for name, topic in spec.stores
            if (topic not in topics and name in kept) or (topic in topics and spec.partition < topics[topic].partitions)
        ]
        restoring = Restoring(
            self.reading.broker, self.reading.clock, spec.name, spec.partition, spec.group, lambda: False
        )
        for last in (LAST, None):
            stores = Stores(specs, spec.partition)
            stores.open()
            self._stand(stores, spec.partition, last)
            try:
                restoring.bring_up(stores, record.stores)
                break
            except RetriableError as error:
                marked = all(one.place.step is not None for one in stores.caches if one.spec.name in kept)
                if error.code != STALE or marked or last is None:
                    raise
        for one in stores.caches:
            if why := _undecoded(one):
                part.warn(f"{spec.name}: the declared codecs of store {one.spec.name!r} do not read its entries: {why}")

    def _stand(self, stores: Stores, partition: int, last: int | None) -> None:
        """Have the stores stand a little before the ends of their changelogs."""
        if last is None:
            return
        there = [one for one in stores.caches if one.spec.changelog in self.reading.facts.topics]
        marks = self.reading.broker.watermarks([TopicPartition(one.spec.changelog, partition) for one in there])
        for one in there:
            low, _, high = marks[TopicPartition(one.spec.changelog, partition)]
            topic_id = self.reading.facts.topics[one.spec.changelog].topic_id
            one.place = EntriesPlace(topic_id, max(low, high - last), None, 0, 0)


def _undecoded(cache: Cache) -> str:
    """Why entries that were read cannot be decoded; empty: they can."""
    for key, data in cache.layers.committed_entries().items():
        try:
            cache.spec.decode_key(key)
            cache.spec.value.decode(data)
        except (CodecError, ValueError) as error:
            return str(error)
    return ""
