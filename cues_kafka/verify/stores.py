"""`verify --state`: recompute the stores of tasks from their messages, and compare.

For each task with stores, one after the other:

1. Its newest record says where it stands, and with which step each changelog ends (R4b).
2. Its changelogs, up to the high watermarks asked after 1: the record's transaction stands below them. Later
   transactions are told by their marks, and left out of the entries.
3. Its inputs up to the positions of 1: the processor's function is called for them again, with empty stores. Steps
   that became error messages have changed nothing, and are not called.
4. Both must have the same entries. Where the function cannot be called again, the report says why, and is not "ok".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cues_kafka.core.records import Record
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import quoted
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.history import DeliveredSpans, delivered
from cues_kafka.state.entries import TIME_BYTES
from cues_kafka.state.expiring import Expiring, alive
from cues_kafka.state.layers import Layers
from cues_kafka.state.mapping import StoreSpec
from cues_kafka.state.marks import NO_MARK, order, shown_mark
from cues_kafka.state.stores import Cache
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.task.parts.stores import stores_of
from cues_kafka.verify.changelog import Changelog, shown
from cues_kafka.verify.ledger import BITS, ERROR, LOW, OUTCOME
from cues_kafka.verify.recompute import NotRecomputed, obstacle, recompute
from cues_kafka.verify.report import TaskReport
from cues_kafka.verify.sweeping import Sweeper
from cues_kafka.verify.tasks import TaskBooks
from cues_kafka.words import count

SHOWN: Final = 5
"""Keys of a store that the report shows."""

REBUILD: Final = (
    "an update was lost, or another program wrote to the changelog. Stop that program, and run `cues-kafka rebuild "
    "MODULE:GRAPH PROCESSOR`: it builds its stores again from the input, as far as that is there"
)

REMEDY: Final = (
    "verify expects what the function makes of the input. If the function was changed, verify with the code as it was. "
    f"If it gives something else at each call, make it repeatable. Otherwise {REBUILD}"
)


@dataclass(slots=True)
class StateFindings:
    """
    What was found of the stores of one task; see `TaskReport`.

    Attributes:
        entries: entries that were recomputed and compared.
        diverging: keys whose entries differ.
        not_recomputed: stores that could not be recomputed.
        problems, limits, details: sentences.
    """

    entries: int = 0
    diverging: int = 0
    not_recomputed: int = 0
    problems: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def added(self, report: TaskReport) -> TaskReport:
        """The report on the task, with these findings."""
        return replace(
            report,
            entries=self.entries,
            diverging=self.diverging,
            not_recomputed=self.not_recomputed,
            problems=(*report.problems, *self.problems),
            limits=(*report.limits, *self.limits),
            details=(*report.details, *self.details),
        )


class StoreScan:
    """
    Looks at the stores of one task after the other, so that the entries of one are in memory.

    Args:
        graph, planned, facts: the graph on its cluster.
        sweeper: reads.
        refresh: reads the newest records of a task.
        cluster: options of the cluster, for codecs.
        pure: see `recompute.obstacle`.
    """

    def __init__(
        self,
        graph: Graph,
        planned: Plan,
        facts: ClusterFacts,
        sweeper: Sweeper,
        refresh: Callable[[TaskBooks], None],
        *,
        cluster: Any = None,
        pure: Container[str] = (),
    ) -> None:
        self._graph, self._planned, self._facts, self._sweeper = graph, planned, facts, sweeper
        self._refresh, self._cluster, self._pure = refresh, cluster, pure

    def look(self, task: TaskBooks) -> StateFindings:
        """Look at the stores of one task."""
        found = StateFindings()
        self._refresh(task)
        record = task.chain.newest
        if record is None:
            return found
        if missing := self._missing(task):
            self._leave(found, task, f"topics {', '.join(map(repr, missing))} no longer exist")
            changelogs = dict(self._planned[task.name].changelogs)
            gone = [name for name, _ in record.stores if changelogs.get(name) in missing]
            found.problems += [f"store {name!r}: its changelog is gone, and so are its entries" for name in gone]
            return found
        self._beyond(task, found)
        calls = (task.processor.call, *([task.processor.timer_call] if task.processor.timer_call else []))
        system = dict.fromkeys(n for call in calls for n, place in call.context.items() if place == "system")
        caller = caller_of(
            self._graph, task.processor, self._facts, system, self._sweeper.broker.max_bytes, cluster=self._cluster
        )
        with closing(caller):
            width = self._facts.topics[task.processor.lead].partitions
            identity = Identity("tool", "verify", "")
            spec = spec_of(self._graph, self._planned, task.processor, width, identity)(task.partition)
            stores = stores_of(caller.context_of(spec))
            specs = [one.spec for one in stores.caches]
            logs = {one.name: self._changelog(task, one, record, found) for one in specs}
            try:
                made = self._recomputed(task, record, caller, spec)
            except NotRecomputed as why:
                self._leave(found, task, str(why))
                found.problems += [text for one in specs for text in _unreadable(one, logs[one.name])]
                return found
        for cache in made:
            self._compare(found, cache, logs[cache.spec.name], task, record)
        return found

    def _missing(self, task: TaskBooks) -> list[str]:
        changelogs = [topic for _, topic in self._planned[task.name].changelogs]
        inputs = [topic for _, topic in task.names.inputs]
        tables = [table.topic for table in task.processor.tables.values()]
        return [topic for topic in (*inputs, *tables, *task.topics, *changelogs) if topic not in self._facts.topics]

    def _beyond(self, task: TaskBooks, found: StateFindings) -> None:
        """Partitions of changelogs that belong to no task hold nothing."""
        width = self._facts.topics[task.processor.lead].partitions
        places = [
            TopicPartition(topic, partition)
            for _, topic in self._planned[task.name].changelogs
            for partition in range(width, self._facts.topics[topic].partitions)
            if partition % width == task.partition
        ]
        for place, marks in self._sweeper.watermarks(places).items():
            if marks.low < marks.high:
                found.problems.append(
                    f"{place.topic}/{place.partition} is not empty, and no task has it: another program wrote there, "
                    "or the input had more partitions"
                )

    def _leave(self, found: StateFindings, task: TaskBooks, why: str) -> None:
        for name in task.processor.state:
            self._left(found, name, why)

    def _left(self, found: StateFindings, store: str, why: str) -> None:
        found.not_recomputed += 1
        found.limits.append(f"store {store!r} is not recomputed: {why}")

    # 2

    def _changelog(self, task: TaskBooks, spec: StoreSpec, record: Record, found: StateFindings) -> Changelog:
        place = TopicPartition(spec.changelog, task.partition)
        until = dict(record.stores).get(spec.name, NO_MARK)
        log = Changelog(spec, until)
        low, _, high = self._sweeper.watermarks([place])[place]
        hidden = self._sweeper.sweep({place: (low, high)}, lambda _, messages: log.feed(messages))
        if log.open and not hidden:  # it is committed, so its mark is there by now
            end = self._sweeper.watermarks([place])[place].high
            hidden = self._sweeper.sweep({place: (high, end)}, lambda _, messages: log.finish(messages))
            hidden = hidden if log.open else {}
        log.close()
        log.hidden = bool(hidden)
        if hidden:
            found.limits.append(f"an open transaction hides {place.topic}/{place.partition} from {hidden[place]} on")
        elif order(log.mark) < order(until):
            ends = "has no mark" if log.mark == NO_MARK else f"ends with the mark of {shown_mark(log.mark)}"
            log.problems.append(f"it {ends}, and the task's record says {shown_mark(until)}: changes are lost")
        elif order(log.mark) > order(until) and not self._known(task, spec, log.mark):
            log.problems.append(f"it ends with the mark of {shown_mark(log.mark)}, of which the task has no record")
            log.take_later()
        found.problems += [f"{place.topic}/{place.partition}: {text}" for text in log.problems]
        if log.problems:
            found.details.append(f"store {spec.name!r}: {REBUILD}")
        return log

    def _known(self, task: TaskBooks, spec: StoreSpec, mark: int) -> bool:
        """Whether the task has a record of a mark by now, or may have one."""
        self._refresh(task)
        newest = task.chain.newest
        return task.chain.hidden or newest is None or order(dict(newest.stores).get(spec.name, NO_MARK)) >= order(mark)

    # 3

    def _recomputed(self, task: TaskBooks, record: Record, caller: Caller, spec: Any) -> list[Cache]:
        if why := obstacle(task.processor, self._pure):
            raise NotRecomputed(why)
        width = self._facts.topics[task.processor.lead].partitions
        if width > record.born and not all(store.per_task for store in task.processor.state.values()):
            raise NotRecomputed("its input got more partitions since it first ran, and entries followed their keys")
        starts = {binding: self._start(task, binding) for binding in task.bindings}
        ends = {position.binding: position.offset for position in record.positions}
        ids = {position.binding: position.topic_id for position in record.positions}
        if strange := ids.keys() - {*task.bindings}:
            raise NotRecomputed(f"its newest record names {quoted(strange)}, which the processor does not read")
        if recreated := [task.place(one).topic for one, known in ids.items() if task.ids.get(one) != known]:
            raise NotRecomputed(f"{', '.join(map(repr, recreated))} was recreated since; what the old one held is gone")
        past = _past(task, record, starts)
        hidden: dict[TopicPartition, int] = {}
        with ExitStack() as stack:
            streams = []
            for binding in task.bindings:
                ranges = {task.place(binding): (starts[binding], ends.get(binding, 0))}
                stream = self._messages(ranges, hidden, past, binding)
                stack.callback(stream.close)
                streams.append(stream)
            steps: Iterator[Any] = zip(*streams, strict=False) if task.join else streams[0]
            try:
                stores = recompute(caller, spec, steps, topic_ids=ids, failed=_failed(task), totals=record.totals)
            except NotRecomputed:
                if hidden:
                    raise NotRecomputed(f"an open transaction hides part of {sorted(hidden)}") from None
                raise
        return list(stores.caches)

    def _start(self, task: TaskBooks, binding: str) -> int:
        """The first offset of an input that the task has delivered, which must still be there."""
        if task.part:
            raise NotRecomputed(f"{task.part.limit}, and its entries have messages of these inputs in them")
        place = task.place(binding)
        began = task.begin(binding)
        if began is None:
            if task.processor.start != "earliest" and not isinstance(task.start, int):
                raise NotRecomputed(f"where it began (start={task.processor.start!r}) is compacted away")
            began = task.start if isinstance(task.start, int) else 0
        if "compact" in self._facts.topics[place.topic].config.get("cleanup.policy", "delete"):
            raise NotRecomputed(f"{place.topic!r} is compacted, so it does not hold all of the task's messages")
        low = self._sweeper.watermarks([place])[place].low
        if low > began:
            raise NotRecomputed(f"{place.topic}/{place.partition} is trimmed below offset {low}")
        return began

    def _messages(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        hidden: dict[TopicPartition, int],
        past: DeliveredSpans,
        binding: str,
    ) -> Generator[WireMessage, None, None]:
        for _, messages in self._sweeper.stream(ranges, hidden):
            yield from (message for message in messages if past.has(binding, message.offset()))

    # 4

    def _compare(self, found: StateFindings, cache: Cache, log: Changelog, task: TaskBooks, record: Record) -> None:
        spec = cache.spec
        since = task.chain.stores_since.get(spec.name, record.step)
        if since:
            self._left(found, spec.name, f"the processor got it at step {since}, so it lacks what came before")
            return
        if log.gap:
            self._left(found, spec.name, log.gap)
            return
        made, there = Layers.committed_entries(cache.layers), log.entries
        if isinstance(cache.layers, Expiring):
            now = cache.layers.time
            if log.time != now:
                found.problems.append(f"store {spec.name!r}: its time is {log.time}, expected {now}")
            made, there = _living(made, spec, now), _living(there, spec, now)
        keys = sorted(key for key in made.keys() | there.keys() if made.get(key) != there.get(key))
        found.entries += len(made)
        found.diverging += len(keys)
        found.details += [
            f"store {spec.name!r}: {_line(spec, key, there.get(key), made.get(key))}" for key in keys[:SHOWN]
        ]
        if keys:
            more = f"{count(len(keys) - SHOWN, 'more key')} differ. " if len(keys) > SHOWN else ""
            found.details.append(f"store {spec.name!r}: {more}{REMEDY}")


def _past(task: TaskBooks, record: Record, starts: Mapping[str, int]) -> DeliveredSpans:
    """
    Which messages the stores of a task were made of.

    Raises:
        NotRecomputed: these are not all there, or not once.
    """
    past = delivered(task.chain.history, record.positions, starts, stores=True)
    if past.why_not_followed:
        raise NotRecomputed(past.why_not_followed)
    if past.returned:
        raise NotRecomputed("it went back to a cut, and its totals count what was undone, too")
    return past


def _line(spec: StoreSpec, key: bytes, there: bytes | None, made: bytes | None) -> str:
    def show(value: bytes | None) -> str:
        if value is None:
            return "absent"
        if spec.ttl is None:
            return shown(spec.value.decode, value)
        at = int.from_bytes(value[:TIME_BYTES], "big")
        return f"{shown(spec.value.decode, value[TIME_BYTES:])} (set at {at})"

    return f"key {shown(spec.decode_key, key)} is {show(there)}, expected {show(made)}"


def _unreadable(spec: StoreSpec, log: Changelog) -> list[str]:
    """Entries that the store's codecs do not read."""
    start, found = 0 if spec.ttl is None else TIME_BYTES, []
    for key, value in log.entries.items():
        try:
            spec.decode_key(key)
            spec.value.decode(value[start:])
        except Exception as error:  # noqa: BLE001 - of any codec: that it does not read the entry is the finding
            found.append(f"store {spec.name!r}: {shown(spec.decode_key, key)} cannot be read: {error!s:.80}")
            if len(found) == SHOWN:
                break
    return found


def _living(entries: Mapping[bytes, bytes], spec: StoreSpec, now: int) -> dict[bytes, bytes]:
    """Those that have not ended: when ended ones are deleted depends on where batches end."""
    assert spec.ttl is not None
    ttl = spec.ttl
    return {key: value for key, value in entries.items() if alive(value, ttl, now) is not None}


def _failed(task: TaskBooks) -> Callable[[Any], bool]:
    """Whether a step became an error message, as far as its error message was seen."""
    lead = task.bindings[0]
    pages = task.marks[lead].pages

    def failed(step: Any) -> bool:
        offset = (step[0] if task.join else step).offset()
        page = pages.get(offset >> BITS)
        return page is not None and page[offset & LOW] & OUTCOME == ERROR

    return failed
