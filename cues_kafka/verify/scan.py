"""`verify`: compare input and output of a graph, while it runs: what is lost, torn, duplicated, out of order.

For each task, from the outside and with nothing but reads:

1. Its backing records, read committed: the newest one says where it stands and what it has counted. On the way: no gap
   in sequences and steps, no position that goes back, totals that add up, one writer (I13, I14).
2. The high watermarks of everything it writes, asked *after* 1. What the newest record's transaction wrote stands
   below them, so everything is read up to them, waiting for transactions that are open there. What is above the
   positions of 1 belongs to later transactions, and is set aside.
3. Inputs up to the positions, outputs and errors up to the watermarks; every outcome names the messages that it came
   from in its provenance header, and is entered in the books of its task (`verify.ledger`).
4. The backing records that came since 1, but only where something was set aside: an outcome above the positions that
   they have by now is none of a committed batch.

5. What the inputs hold above the positions is counted, not judged: it is not delivered yet.

A staged processor (`verify.parts`) names no messages: its rows say which publication of which part they are of, so
3 is without its inputs, and what is lost or torn are rows. A feed is looked at in the same way (`verify.feeds`). Rows
of DataFrames that are written directly name their messages (`verify.direct`).

With `state=True`, the stores of each task come last (`verify.stores`).

So nothing has to stop for it, and what is still under way is not taken for a defect. Where the cluster does not hold
any more what would be needed (trimmed, compacted, hidden by an open transaction), the report says so, and is not "ok".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, TypeAlias

from cues_kafka.brokers.patience import ask_again
from cues_kafka.core.delivery import HEADER, REPLAYED, TIMER
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, no_such_processor, tools_group
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.starts import inspect_starts
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.task.making.names import former_names
from cues_kafka.verify.direct import DirectBooks
from cues_kafka.verify.feeds import feed_parts_of
from cues_kafka.verify.ledger import Outcomes, Track, offsets_of
from cues_kafka.verify.parts import Part, parts_of
from cues_kafka.verify.report import ANOMALIES, ProcessorReport, Report, TaskReport
from cues_kafka.verify.stores import StateFindings, StoreScan
from cues_kafka.verify.sweeping import Progress, Sweeper
from cues_kafka.verify.task_balance import TaskBalance
from cues_kafka.verify.tasks import TaskBooks
from cues_kafka.words import count

__all__ = ["ANOMALIES", "ProcessorReport", "Progress", "Report", "TaskReport", "verify"]

PATIENCE_S = 10.0
"""How long no message comes before an open transaction is said to hide the rest. Transactions of live workers are over
sooner; that of a dead one ends with the recovery of its task, or its time-out."""

AnyBooks: TypeAlias = TaskBooks | Part | DirectBooks

FAR = 1 << 62
"""An offset above all others."""

LOOKED_THROUGH = 1000
"""Offsets above a position that are read to see whether there is any message among them: a task's position moves over
the markers of transactions only when it has nothing else to do."""


# --------------------------------------------------------------------------------------------------------- reading


def verify(
    graph: Graph,
    broker: Broker,
    *,
    processors: Sequence[str] | None = None,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
    state: bool = False,
    pure: Collection[str] = (),
    cluster: Any = None,
) -> Report:
    """
    Read what a graph has read and written, and say what is wrong with it. It writes nothing; the graph may run.

    Args:
        graph: the graph.
        broker: where it runs.
        processors: names of those to look at; None: all.
        progress: told how far the reading is.
        patience_s: how long to wait for open transactions.
        state: whether to recompute stores, and compare them (`verify.stores`). It calls the graph's functions.
        pure: names of processors whose functions may be called again although they have effects or retries.
        cluster: options of the cluster, for codecs with a registry; only with `state`.

    Raises:
        ConfigError: a name that the graph does not have.
        BrokerError: something cannot be read, for example because it was trimmed in this moment.
    """
    began = monotonic()
    _check_names(graph, processors)
    _check_names(graph, pure)
    facts = ask_again(lambda: broker.facts(topics_to_ask(graph)), patience_s)
    planned = plan(graph, facts).with_findings([inspect_starts(graph, broker, Terms(processors))])
    tasks = _tasks_of(graph, planned, facts, processors)
    sweeper = Sweeper(broker, tools_group(graph.name), patience_s, progress)
    scan = _Scan(graph, sweeper, tasks, facts, former_names(graph, broker))
    scan.left = {
        name: f"{name} never started: its backing topic does not exist"
        for name in _chosen({**graph.dataframes, **graph.feeds}, processors)
        if backing_topic(graph.name, name) not in facts.topics
    }
    scan.records()
    scan.messages()
    scan.later()
    scan.behind()
    if state:
        scan.stores(StoreScan(graph, planned, facts, sweeper, scan.refresh, cluster=cluster, pure=pure))
    return Report(
        graph=graph.name,
        processors=scan.reports(_chosen(graph.all_processors, processors)),
        limits=(
            *_without_tasks(planned, _chosen(graph.processors, processors)),
            *scan.left.values(),
            *(f"this user may not read the settings of {topic!r}: compacted or not?" for topic in facts.unchecked),
        ),
        notes=tuple(scan.notes()),
        scanned=sweeper.scanned,
        seconds=monotonic() - began,
    )


def _tasks_of(graph: Graph, planned: Plan, facts: ClusterFacts, processors: Sequence[str] | None) -> list[AnyBooks]:
    tasks: list[AnyBooks] = [
        TaskBooks(graph, graph.processors[name], planned, facts, partition)
        for name in _chosen(graph.processors, processors)
        for partition in range(planned[name].partitions or 0)
    ]
    for name in _chosen(graph.dataframes, processors):
        tasks += parts_of(graph, graph.dataframes[name], facts)
    for name in _chosen(graph.feeds, processors):
        tasks += feed_parts_of(graph, graph.feeds[name], facts)
    return tasks


def _check_names(graph: Graph, processors: Collection[str] | None) -> None:
    known = graph.all_processors
    if unknown := sorted(set(processors or ()) - set(known)):
        raise ConfigError(no_such_processor(graph.name, unknown, known))


def _chosen(names: Iterable[str], processors: Sequence[str] | None) -> list[str]:
    return [name for name in names if processors is None or name in processors]


def _without_tasks(planned: Plan, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if not planned[name].partitions:
            yield f"{name} has no tasks: its input {planned[name].inputs[0][1]!r} does not exist"


class _Scan:
    """One run of `verify`."""

    def __init__(
        self,
        graph: Graph,
        sweeper: Sweeper,
        tasks: Sequence[AnyBooks],
        facts: ClusterFacts,
        names: Mapping[str, str],
    ) -> None:
        self._graph = graph
        self._sweeper = sweeper
        self.tasks = tasks
        self.left: dict[str, str] = {}
        self._facts = facts
        self._stores: dict[str, StateFindings] = {}
        self._by_processor: dict[str, dict[int, AnyBooks]] = {}
        self._marks: dict[TopicPartition, Watermarks] = {}
        self._outcomes: dict[TopicPartition, Outcomes] = {}
        self._veils: dict[str, list[str]] = {}
        self._names = dict(names)

    # 1

    def records(self) -> None:
        """The backing records of all tasks; of DataFrames they say whether they are staged, and in how many parts."""
        self._read_records([task for task in self.tasks if self._exists(task.backing)])
        for task in self.tasks:
            task.open()
        self.tasks = [
            DirectBooks(task, self._graph.name) if isinstance(task, Part) and task.is_direct else task
            for task in self.tasks
        ]
        self.left |= {t.name: why for t in self.tasks if isinstance(t, Part) and (why := t.not_staged)}
        self.tasks = [task for task in self.tasks if task.name not in self.left and task.there]
        for task in self.tasks:
            self._by_processor.setdefault(task.name, {})[task.partition] = task
            for name in task.chain.history.names:  # X6: no declaration has to say it
                if name not in self._graph.all_processors:
                    self._names.setdefault(name, task.name)

    def _read_records(self, tasks: Sequence[AnyBooks]) -> None:
        chains = {task.backing: task.chain for task in tasks}
        marks = self._watermarks(chains)
        ranges = {
            place: (max(marks[place].low, chain.next_offset), marks[place].high) for place, chain in chains.items()
        }
        hidden = self._sweeper.sweep(ranges, lambda place, messages: chains[place].feed(messages))
        for place, chain in chains.items():
            chain.hidden = place in hidden

    def _exists(self, place: TopicPartition) -> bool:
        return place.topic in self._facts.topics and place.partition < self._facts.topics[place.topic].partitions

    def _watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return self._sweeper.watermarks(list(places))

    # 2, 3

    def messages(self) -> None:
        """Read inputs, outputs and errors: each topic once, for all processors that read or write it."""
        readers = self._readers()
        written = dict.fromkeys(
            TopicPartition(topic, partition)
            for task in self.tasks
            for topic in task.topics
            if topic in self._facts.topics
            for partition in range(self._facts.topics[topic].partitions)
        )
        self._marks = self._watermarks(dict.fromkeys((*written, *readers)))
        self._outcomes = {place: Outcomes(HEADER, self._resolver(place)) for place in written}
        for place in written:
            self._veil(place)
        ranges = {}
        for place, marks in self._marks.items():
            needed = [task.end(binding) for task, binding in readers.get(place, ())]
            end = max([marks.high if place in written else 0, *needed])
            ranges[place] = (marks.low, min(end, marks.high))  # the positions may be those of an older, longer topic

        def feed(place: TopicPartition, messages: Sequence[WireMessage]) -> None:
            if (outcomes := self._outcomes.get(place)) is not None:
                outcomes.feed(messages)
            if place in readers:
                offsets = offsets_of(messages)
                for task, binding in readers[place]:
                    task.exist(binding, offsets)

        for topic in dict.fromkeys(place.topic for place in ranges):
            hidden = self._sweeper.sweep(
                {place: bounds for place, bounds in ranges.items() if place.topic == topic}, feed
            )
            for place, offset in hidden.items():
                self._veils.setdefault(topic, []).append(
                    f"an open transaction hides {topic}/{place.partition} from offset {offset} on"
                )
        for batch in self._sweeper.refused.values():
            if batch.place in self._outcomes:
                self._veils.setdefault(batch.place.topic, []).append(f"{batch} cannot be read: {batch.why}")

    def _readers(self) -> dict[TopicPartition, list[tuple[TaskBooks | DirectBooks, str]]]:
        """The readers of a partition, with their binding; parts read batches, which no row names."""
        readers: dict[TopicPartition, list[tuple[TaskBooks | DirectBooks, str]]] = {}
        for task in self.tasks:
            if not isinstance(task, Part) and task.record:
                for binding in task.bindings:
                    if self._exists(task.place(binding)):
                        readers.setdefault(task.place(binding), []).append((task, binding))
        return readers

    def _veil(self, place: TopicPartition) -> None:
        """Why outcomes in a topic may be gone although they were committed."""
        veils = self._veils.setdefault(place.topic, [])
        if self._compacted(place.topic) and not veils:
            veils.append(f"{place.topic!r} is compacted, and keeps the newest message of each key only")
        if self._marks[place].low > 0:
            veils.append(f"{place.topic}/{place.partition} is trimmed below offset {self._marks[place].low}")

    def _compacted(self, topic: str) -> bool:
        return "compact" in self._facts.topics[topic].config.get("cleanup.policy", "delete")

    def _resolver(self, place: TopicPartition) -> Callable[[bytes], Track | None]:
        tracks: dict[int, Track] = {}

        def resolve(prefix: bytes) -> Track | None:
            version, name, sequence, places = prefix.decode().split(" ")
            if version != "1":
                raise ValueError(version)
            full, _, partition = name.rpartition("/")
            graph, _, processor = full.rpartition(".")
            tasks = self._by_processor.get(self._names.get(processor, processor))
            if graph != self._graph.name or tasks is None:
                return None
            task = tasks.get(int(partition))
            if isinstance(task, Part) and places == "-":
                return task.track_rows(place, int(sequence))
            if task is None:  # there is no such partition, so what it names cannot exist
                marks, track = next(iter(tasks.values())).track("", place.topic)
            else:
                if isinstance(task, TaskBooks) and task.is_former(int(sequence)):
                    return task.former
                task.sequence = max(task.sequence, int(sequence))
                if places in (TIMER, REPLAYED) and isinstance(task, TaskBooks):
                    own = task.fires if places == TIMER else task.replays
                    return own.track(int(sequence), task.kind_of(place.topic), task.strays)
                if places == "-" and isinstance(task, TaskBooks):
                    return task.drains.track(int(sequence), task.strays)
                marks, track = task.track(places, place.topic)
            return tracks.setdefault(id(marks), track)

        return resolve

    # 4

    def later(self) -> None:
        """Backing records that came since, of tasks whose outcomes were above their positions."""
        tasks = [task for task in self.tasks if task.above and self._exists(task.backing)]
        if tasks:
            self._read_records(tasks)

    # 5

    def behind(self) -> None:
        """Count offsets between the newest positions and the last stable offsets."""
        gaps = list(self._gaps())
        newest: dict[TopicPartition, int] = {}

        def feed(place: TopicPartition, messages: Sequence[WireMessage]) -> None:
            if messages:
                newest[place] = messages[-1].offset()

        ranges = {place: (start, end) for _, place, start, end in reversed(gaps) if end - start <= LOOKED_THROUGH}
        judged = self._sweeper.scanned
        self._sweeper.sweep(ranges, feed)
        self._sweeper.scanned = judged
        for task, place, start, end in gaps:
            if end - start > LOOKED_THROUGH or newest.get(place, -1) >= start:
                task.behind += end - start

    def _gaps(self) -> Iterator[tuple[AnyBooks, TopicPartition, int, int]]:
        """List task, partition, position and last stable offset, the lowest positions first."""
        unknown = {place for task in self.tasks for place in task.places() if self._exists(place)} - self._marks.keys()
        marks = {**self._marks, **self._watermarks(unknown)}
        found = [
            (task, place, position, marks[place].stable)
            for task in self.tasks
            for place, position in task.standing(marks)
        ]
        yield from sorted((gap for gap in found if gap[2] < gap[3]), key=lambda gap: gap[2])

    # Stores

    def stores(self, looking: StoreScan) -> None:
        """Look at the stores of all tasks."""
        for task in self.tasks:
            if isinstance(task, TaskBooks) and task.processor.state and task.record:
                self._stores[task.task] = looking.look(task)

    def refresh(self, task: TaskBooks) -> None:
        """Read the records of a task that came since."""
        self._read_records([task])

    # The balance

    def reports(self, names: Iterable[str]) -> tuple[ProcessorReport, ...]:
        """The balances of the processors that have tasks."""
        everyone = self._graph.all_processors
        return tuple(
            ProcessorReport(
                name=name,
                kind=everyone[name].kind,
                tasks=tuple(self._report(task) for task in self.tasks if task.name == name),
            )
            for name in names
            if name not in self.left
        )

    def _report(self, task: AnyBooks) -> TaskReport:
        """Draw the balance of one task."""
        if isinstance(task, Part):
            return task.report(self._blinds(task), self._unmarked(task))
        if isinstance(task, DirectBooks):
            return task.report(self._low_of(task), self._blinds(task), self._unmarked(task))
        refused = task.accept([*self._sweeper.refused.values()])
        report = TaskBalance(
            task, self._marks, self._compacted_inputs(task), self._blinds(task), self._unmarked(task), refused=refused
        ).report()
        found = self._stores.get(task.task)
        return found.added(report) if found else report

    def _low_of(self, task: DirectBooks) -> int:
        """Below this offset it is not known what the input held."""
        places = [place for place in task.places() if place in self._marks]
        lows = [FAR if self._compacted(place.topic) else self._marks[place].low for place in places]
        return lows[0] if lows else 0

    def _compacted_inputs(self, task: TaskBooks) -> list[str]:
        return [t for _, t in task.names.inputs if t in self._facts.topics and self._compacted(t)]

    def _blinds(self, task: AnyBooks) -> list[str]:
        return [text for topic in task.topics for text in self._veils.get(topic, ())]

    def _unmarked(self, task: AnyBooks) -> list[str]:
        return [topic for topic in task.topics if not self._graph.topic(topic).provenance]

    def notes(self) -> Iterator[str]:
        """Name messages of others in the topics that were read; they are counted, not checked."""
        yield from self._foreign()
        for what, why in (
            ("unmarked", "carry no provenance header: another program writes there, or provenance was switched off"),
            ("unreadable", "carry a provenance header that makes no sense"),
        ):
            counts: Counter[str] = Counter()
            for place, outcomes in self._outcomes.items():
                counts[place.topic] += getattr(outcomes, what)
            yield from (f"{count(n, 'message')} of {topic!r} {why}" for topic, n in counts.items() if n)

    def _foreign(self) -> Iterator[str]:
        """Count messages of other graphs, and of processors that this graph does not have, by writer."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for place, outcomes in self._outcomes.items():
            for writer, n in outcomes.foreign.items():
                graph, _, processor = writer.rpartition(".")
                counts[place.topic, graph, processor] += n
        for (topic, graph, processor), n in sorted(counts.items()):
            if graph != self._graph.name:
                who = f"graph {graph!r}, processor {processor!r}"
            elif processor not in self._graph.all_processors:
                who = f"processor {processor!r}, which this graph does not have"
            else:
                continue
            yield f"{count(n, 'message')} of {topic!r} {'is' if n == 1 else 'are'} of {who}; not verified here"


# ------------------------------------------------------------------------------------------------------ the balance
