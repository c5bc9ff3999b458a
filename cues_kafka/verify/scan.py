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
3 is without its inputs, and what is lost or torn are rows.

So nothing has to stop for it, and what is still under way is not taken for a defect. Where the cluster does not hold
any more what would be needed (trimmed, compacted, hidden by an open transaction), the report says so, and is not "ok".
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeAlias, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from cues_kafka.core.delivery import HEADER, show_topic_id
from cues_kafka.core.records import Record, Totals
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.definition import DataFrameProcessor, Graph, Processor
from cues_kafka.graph.names import backing_topic, quoted, tools_group
from cues_kafka.plan.plan import Plan, ProcessorPlan, plan, topics_to_ask
from cues_kafka.ports import Broker, ClusterFacts, TopicPartition, Watermarks, WireMessage
from cues_kafka.verify.chain import Chain
from cues_kafka.verify.ledger import (
    ERROR,
    EXISTS,
    OUTPUT,
    UNFOUNDED,
    Balance,
    Marks,
    Outcomes,
    Track,
    mismatched,
    offsets_of,
)
from cues_kafka.verify.parts import Part, parts_of
from cues_kafka.verify.report import ANOMALIES, ProcessorReport, Report, TaskReport
from cues_kafka.words import count

__all__ = ["ANOMALIES", "ProcessorReport", "Progress", "Report", "TaskReport", "verify"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with the offsets that were read so far, and the offsets to read."""

PATIENCE_S = 10.0
"""How long no message comes before an open transaction is said to hide the rest. Transactions of live workers are over
sooner; that of a dead one ends with the recovery of its task, or its time-out."""

LOOKED_THROUGH = 1000
"""Offsets above a position that are read to see whether there is any message among them: a task's position moves over
the markers of transactions only when it has nothing else to do."""

_FAR = 1 << 62

_Answer = TypeVar("_Answer")
_Feed: TypeAlias = Callable[[TopicPartition, Sequence[WireMessage]], None]


# --------------------------------------------------------------------------------------------------------- reading


def verify(
    graph: Graph,
    broker: Broker,
    *,
    processors: Sequence[str] | None = None,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
) -> Report:
    """
    Read what a graph has read and written, and say what is wrong with it. It writes nothing; the graph may run.

    Args:
        graph: the graph.
        broker: where it runs.
        processors: names of those to look at; None: all.
        progress: told how far the reading is.
        patience_s: how long to wait for open transactions.

    Raises:
        ConfigError: a name that the graph does not have.
        BrokerError: something cannot be read, for example because it was trimmed in this moment.
    """
    began = monotonic()
    _check_names(graph, processors)
    facts = _patiently(lambda: broker.facts(topics_to_ask(graph)), patience_s)
    planned = plan(graph, facts)
    everyone: dict[str, Processor | DataFrameProcessor] = {**graph.processors, **graph.dataframes}
    tasks: list[_Task | Part] = [
        _Task(graph, graph.processors[name], planned[name], facts, partition)
        for name in _chosen(graph.processors, processors)
        for partition in range(planned[name].partitions or 0)
    ]
    for name in _chosen(graph.dataframes, processors):
        tasks += parts_of(graph, graph.dataframes[name], facts)
    scan = _Scan(graph, broker, tasks, facts, patience_s=patience_s, progress=progress)
    scan.left = {
        name: f"{name} never started: its backing topic does not exist"
        for name in _chosen(graph.dataframes, processors)
        if backing_topic(graph.name, name) not in facts.topics
    }
    scan.records()
    scan.messages()
    scan.later()
    scan.behind()
    return Report(
        graph=graph.name,
        processors=tuple(
            ProcessorReport(
                name=name,
                kind=everyone[name].kind,
                tasks=tuple(scan.report(task) for task in scan.tasks if task.processor.name == name),
            )
            for name in _chosen(everyone, processors)
            if name not in scan.left
        ),
        limits=(
            *_without_tasks(planned, _chosen(graph.processors, processors)),
            *scan.left.values(),
            *(f"this user may not read the settings of {topic!r}: compacted or not?" for topic in facts.unchecked),
        ),
        notes=tuple(scan.notes()),
        scanned=scan.scanned,
        seconds=monotonic() - began,
    )


def _patiently(ask: Callable[[], _Answer], patience_s: float) -> _Answer:
    """Ask the cluster; while leaders move, or it does not answer, ask again."""
    again = Retrying(
        retry=retry_if_exception_type(RetriableError),
        stop=stop_after_delay(patience_s),
        wait=wait_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )
    return again(ask)


def _check_names(graph: Graph, processors: Sequence[str] | None) -> None:
    known = {**graph.processors, **graph.dataframes}
    if unknown := sorted(set(processors or ()) - set(known)):
        raise ConfigError(f"graph {graph.name!r} has no {quoted(unknown)}; its processors are {quoted(sorted(known))}")


def _chosen(names: Iterable[str], processors: Sequence[str] | None) -> list[str]:
    return [name for name in names if processors is None or name in processors]


def _without_tasks(planned: Plan, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if not planned[name].partitions:
            yield f"{name} has no tasks: its input {planned[name].inputs[0][1]!r} does not exist"


class _Task:
    """
    One task: its names, its newest record, its books.

    Attributes:
        record: the newest one when the look began.
        marks: books by binding; of a join the lead's alone.
        columns: of a join, the offsets of each input's messages.
        strays: outcomes that name what is no input of it.
        behind: offsets that are not delivered yet.
        sequence: the highest that an outcome names.
        there: it has a place in the report.
    """

    there = True

    def __init__(
        self, graph: Graph, processor: Processor, names: ProcessorPlan, facts: ClusterFacts, partition: int
    ) -> None:
        self.processor = processor
        self.partition = partition
        self.names = names
        self.errors = graph.errors_of(processor)
        self.written = tuple(dict.fromkeys(topic for _, topic in names.outputs))
        self.backing = TopicPartition(names.backing, partition)
        self.ids = {b: facts.topics[topic].topic_id for b, topic in names.inputs if topic in facts.topics}
        self.chain = Chain(names.transactional_id(partition))
        self.record: Record | None = None
        self.marks: dict[str, Marks] = {}
        self.columns: dict[str, array[int]] = {}
        self.strays = Marks(0, -1)
        self.sequence = -1
        self.behind = 0

    @property
    def join(self) -> bool:
        return self.processor.input_shape == "join"

    @property
    def bindings(self) -> tuple[str, ...]:
        """Inputs whose messages the outcomes name."""
        return tuple(binding for binding, _ in self.names.inputs)

    @property
    def above(self) -> bool:
        """Outcomes were seen that the newest record does not account for."""
        known = self.record.sequence if self.record else -1
        return self.sequence > known or any(marks.ahead for marks in self.marks.values())

    def places(self) -> list[TopicPartition]:
        """What it reads."""
        return [self.place(binding) for binding in self.bindings]

    def standing(self, marks: Mapping[TopicPartition, Watermarks]) -> Iterator[tuple[TopicPartition, int]]:
        """Where it stands by now on what it reads, as far as that exists."""
        for binding in self.bindings:
            if (place := self.place(binding)) in marks:
                yield place, self.stands(binding, marks[place])

    def place(self, binding: str) -> TopicPartition:
        return TopicPartition(dict(self.names.inputs)[binding], self.partition)

    def open(self) -> None:
        """Begin the books at what the newest record says."""
        self.record = self.chain.newest
        begin = {position.binding: position.offset for position in self.chain.begin or ()}
        end = {position.binding: position.offset for position in self.record.positions} if self.record else {}
        bindings = [binding for binding, _ in self.names.inputs]
        for binding in bindings[:1] if self.join else bindings:
            self.marks[binding] = Marks(begin.get(binding, 0), end.get(binding, 0))
        if self.join:
            self.columns = {binding: array("q") for binding in bindings}
        self._ends = tuple(end.get(binding, 0) for binding in bindings)

    def exist(self, binding: str, offsets: list[int]) -> None:
        """The input holds these."""
        if binding in self.marks:
            self.marks[binding].exist(offsets)
        if self.join:
            end = self.end(binding)
            begin = self.begin(binding) or 0
            self.columns[binding].extend(offset for offset in offsets if begin <= offset < end)

    def begin(self, binding: str) -> int | None:
        """Where it began; None: not known any more."""
        return next((p.offset for p in self.chain.begin or () if p.binding == binding), None)

    def end(self, binding: str) -> int:
        """Where it stood when the look began."""
        return next((p.offset for p in self.record.positions if p.binding == binding), 0) if self.record else 0

    def stands(self, binding: str, marks: Watermarks) -> int:
        """Where it stands on an input by now; before its first record, where it would begin."""
        if self.chain.newest is None:
            start = self.processor.start
            return marks.stable if start == "latest" else max(marks.low, 0 if start == "earliest" else start)
        known = (
            p.offset for p in self.chain.newest.positions if p.binding == binding and p.topic_id == self.ids[binding]
        )
        return next(known, marks.low)

    def track(self, places: str, topic: str) -> tuple[Marks, Track]:
        """Where to note outcomes in a topic that name these `binding:topic id`."""
        kind = ERROR if topic == self.errors and topic not in self.written else OUTPUT
        named = [place.partition(":")[::2] for place in places.split(",")]
        known = [(binding, show_topic_id(self.ids.get(binding, b""))) for binding, _ in self.names.inputs]
        alts = self.processor.input_shape == "alts"
        right = len(named) == 1 and named[0] in known if alts else named == known
        marks = self.marks[named[0][0]] if right else self.strays
        return marks, Track(marks, kind, self._ends if self.join else ())


class _Scan:
    """The reading of one look."""

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        tasks: Sequence[_Task | Part],
        facts: ClusterFacts,
        *,
        patience_s: float,
        progress: Progress | None,
    ) -> None:
        self._graph = graph
        self._broker = broker
        self.tasks = tasks
        self.left: dict[str, str] = {}
        self._facts = facts
        self._patience_s = patience_s
        self._progress = progress
        self._by_processor: dict[str, dict[int, _Task | Part]] = {}
        self._marks: dict[TopicPartition, Watermarks] = {}
        self._outcomes: dict[TopicPartition, Outcomes] = {}
        self._veils: dict[str, list[str]] = {}
        self._read = self._to_read = 0
        self.scanned = 0

    # 1

    def records(self) -> None:
        """The backing records of all tasks; of DataFrames they say whether they are staged, and in how many parts."""
        self._read_records([task for task in self.tasks if self._exists(task.backing)])
        for task in self.tasks:
            task.open()
        self.left |= {t.processor.name: why for t in self.tasks if isinstance(t, Part) and (why := t.not_staged)}
        self.tasks = [task for task in self.tasks if task.processor.name not in self.left and task.there]
        for task in self.tasks:
            self._by_processor.setdefault(task.processor.name, {})[task.partition] = task

    def _read_records(self, tasks: Sequence[_Task | Part]) -> None:
        chains = {task.backing: task.chain for task in tasks}
        marks = self._watermarks(chains)
        ranges = {
            place: (max(marks[place].low, chain.next_offset), marks[place].high) for place, chain in chains.items()
        }
        hidden = self._sweep(ranges, lambda place, messages: chains[place].feed(messages))
        for place, chain in chains.items():
            chain.hidden = place in hidden

    def _exists(self, place: TopicPartition) -> bool:
        return place.topic in self._facts.topics and place.partition < self._facts.topics[place.topic].partitions

    def _watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        asked = list(places)
        return _patiently(lambda: self._broker.watermarks(asked), self._patience_s) if asked else {}

    # 2, 3

    def messages(self) -> None:
        """Inputs, outputs and errors, each topic once, whoever reads or writes it."""
        readers = self._readers()
        written = dict.fromkeys(
            TopicPartition(topic, partition)
            for task in self.tasks
            for topic in (*task.written, *([task.errors] if task.errors else []))
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
            ranges[place] = (marks.low, max([marks.high if place in written else 0, *needed]))

        def feed(place: TopicPartition, messages: Sequence[WireMessage]) -> None:
            if (outcomes := self._outcomes.get(place)) is not None:
                outcomes.feed(messages)
            if place in readers:
                offsets = offsets_of(messages)
                for task, binding in readers[place]:
                    task.exist(binding, offsets)

        for topic in dict.fromkeys(place.topic for place in ranges):
            hidden = self._sweep({place: bounds for place, bounds in ranges.items() if place.topic == topic}, feed)
            for place, offset in hidden.items():
                self._veils.setdefault(topic, []).append(
                    f"an open transaction hides {topic}/{place.partition} from offset {offset} on"
                )

    def _readers(self) -> dict[TopicPartition, list[tuple[_Task, str]]]:
        """Who reads a partition, under which binding; parts read batches, which no row names."""
        readers: dict[TopicPartition, list[tuple[_Task, str]]] = {}
        for task in self.tasks:
            if isinstance(task, _Task) and task.record:
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
            graph, _, processor = full.partition(".")
            tasks = self._by_processor.get(processor)
            if graph != self._graph.name or tasks is None:
                return None
            task = tasks.get(int(partition))
            if isinstance(task, Part) and places == "-":
                return task.track_rows(place, int(sequence))
            if task is None:  # there is no such partition, so what it names cannot exist
                marks, track = next(iter(tasks.values())).track("", place.topic)
            else:
                task.sequence = max(task.sequence, int(sequence))
                marks, track = task.track(places, place.topic)
            return tracks.setdefault(id(marks), track)

        return resolve

    def _sweep(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        feed: _Feed,
    ) -> dict[TopicPartition, int]:
        """
        Read ranges, committed messages only.

        Returns:
            Where the reading stopped short of the end, and at which offset.
        """
        at = {place: start for place, (start, end) in ranges.items() if start < end}
        if not at:
            return {}
        self._to_read += sum(ranges[place][1] - start for place, start in at.items())
        reader = self._broker.reader(tools_group(self._graph.name))
        try:
            reader.assign(at)
            deadline, trouble = monotonic() + self._patience_s, None
            while at and monotonic() < deadline:
                try:
                    came = reader.poll(0.5)
                except RetriableError as error:
                    trouble = error  # the client mends it; if it does not, this is why nothing came
                    continue
                for place, messages, eof in came:
                    if place not in at:
                        continue
                    before, end = at[place], ranges[place][1]
                    if messages:
                        deadline, trouble = monotonic() + self._patience_s, None
                        at[place] = messages[-1].offset() + 1
                        self._feed(feed, place, messages, end)
                    if eof is not None:
                        at[place] = max(at[place], eof)
                    self._read += min(at[place], end) - before
                    if at[place] >= end:
                        del at[place]
                        reader.unassign([place])
                if self._progress:
                    self._progress(self._read, self._to_read)
            if at and trouble:
                raise trouble
            return at
        finally:
            reader.close()

    def _feed(self, feed: _Feed, place: TopicPartition, messages: Sequence[WireMessage], end: int) -> None:
        if messages[-1].offset() >= end:
            messages = [message for message in messages if message.offset() < end]
        self.scanned += len(messages)
        feed(place, messages)

    # 4

    def later(self) -> None:
        """Backing records that came since, of tasks whose outcomes were above their positions."""
        tasks = [task for task in self.tasks if task.above and self._exists(task.backing)]
        if tasks:
            self._read_records(tasks)

    # 5

    def behind(self) -> None:
        """What lies between the newest positions and the last stable offsets."""
        gaps = list(self._gaps())
        newest: dict[TopicPartition, int] = {}

        def feed(place: TopicPartition, messages: Sequence[WireMessage]) -> None:
            if messages:
                newest[place] = messages[-1].offset()

        ranges = {place: (start, end) for _, place, start, end in reversed(gaps) if end - start <= LOOKED_THROUGH}
        judged = self.scanned
        self._sweep(ranges, feed)
        self.scanned = judged
        for task, place, start, end in gaps:
            if end - start > LOOKED_THROUGH or newest.get(place, -1) >= start:
                task.behind += end - start

    def _gaps(self) -> Iterator[tuple[_Task | Part, TopicPartition, int, int]]:
        """Task, partition, position and last stable offset; the lowest positions first."""
        unknown = {place for task in self.tasks for place in task.places() if self._exists(place)} - self._marks.keys()
        marks = {**self._marks, **self._watermarks(unknown)}
        found = [
            (task, place, position, marks[place].stable)
            for task in self.tasks
            for place, position in task.standing(marks)
        ]
        yield from sorted((gap for gap in found if gap[2] < gap[3]), key=lambda gap: gap[2])

    # The balance

    def report(self, task: _Task | Part) -> TaskReport:
        """The balance of one task."""
        if isinstance(task, Part):
            return task.report(self._blinds(task), self._unmarked(task))
        return _Balance(
            task, self._marks, self._compacted_inputs(task), self._blinds(task), self._unmarked(task)
        ).report()

    def _compacted_inputs(self, task: _Task) -> list[str]:
        return [t for _, t in task.names.inputs if t in self._facts.topics and self._compacted(t)]

    def _blinds(self, task: _Task | Part) -> list[str]:
        topics = (*task.written, *([task.errors] if task.errors else []))
        return [text for topic in topics for text in self._veils.get(topic, ())]

    def _unmarked(self, task: _Task | Part) -> list[str]:
        topics = (*task.written, *([task.errors] if task.errors else []))
        return [topic for topic in topics if not self._graph.topic(topic).provenance]

    def notes(self) -> Iterator[str]:
        """Messages of others in the topics that were read: nobody looked whether they are right."""
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
        """Of other graphs, and of processors that this one does not have; those that it has were not asked for."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for place, outcomes in self._outcomes.items():
            for writer, n in outcomes.foreign.items():
                graph, _, processor = writer.partition(".")
                counts[place.topic, graph, processor] += n
        for (topic, graph, processor), n in sorted(counts.items()):
            if graph != self._graph.name:
                who = f"graph {graph!r}, processor {processor!r}"
            elif processor not in (*self._graph.processors, *self._graph.dataframes):
                who = f"processor {processor!r}, which this graph does not have"
            else:
                continue
            yield f"{count(n, 'message')} of {topic!r} {'is' if n == 1 else 'are'} of {who}; not verified here"


# ------------------------------------------------------------------------------------------------------ the balance


class _Balance:
    """Draws the balance of one task."""

    def __init__(
        self,
        task: _Task,
        watermarks: Mapping[TopicPartition, Watermarks],
        compacted: Sequence[str],
        veils: Sequence[str],
        unmarked: Sequence[str],
    ) -> None:
        self._task = task
        self._totals = task.record.totals if task.record else Totals()
        self._watermarks = watermarks
        self._compacted = compacted
        self._veils = veils
        self._unmarked = unmarked
        self._problems = list(task.chain.problems)
        self._limits: list[str] = []
        self._details: list[str] = []

    def report(self) -> TaskReport:
        task, totals = self._task, self._totals
        if task.record is None:
            self._limits.append("no record yet, so never started")
        self._check_inputs()
        visible, hidden_part = self._books()
        steps = self._steps(visible)
        unfounded = sum(one.unfounded for one in visible) + self._strays() + self._mispaired()
        seen = sum(one.seen for one in (*visible, *hidden_part)) - sum(one.unfounded for one in visible)
        outputs = sum(one.outputs for one in (*visible, *hidden_part))
        errors = sum(one.errors for one in (*visible, *hidden_part))
        messages = outputs + self._sum("more")
        duplicated, out_of_order = self._sum("duplicated"), self._sum("out_of_order")
        ahead = self._ahead()
        lost, torn = steps - seen - totals.nils, self._torn()
        if malformed := self._sum("malformed"):
            self._problems.append(f"{malformed} outcomes have headers that make no sense")
        if steps != totals.deliveries:
            self._problems.append(
                f"its totals say {totals.deliveries} deliveries, but the input holds {steps} steps below its positions"
            )
        lost, torn = self._unveiled(lost, torn)
        if lost < 0:
            self._problems.append(
                f"{seen} deliveries have outcomes and {totals.nils} are nil by its totals: more than its {steps} steps"
            )
        elif lost:
            self._tell_lost(lost)
        if not (lost or torn or duplicated or unfounded or ahead or self._limits):
            self._compare(outputs, errors, messages)
        self._tell("duplicated", "duplicated")
        self._tell("out of order", "out of order")
        return TaskReport(
            task=f"{task.processor.name}/{task.partition}",
            steps=steps,
            totals=totals,
            outputs=outputs,
            errors=errors,
            messages=messages,
            lost=max(lost, 0),
            torn=torn,
            duplicated=duplicated,
            out_of_order=out_of_order,
            unfounded=unfounded,
            ahead=ahead,
            behind=task.behind,
            problems=tuple(self._problems),
            limits=tuple(self._limits),
            details=tuple(self._details),
        )

    # What the inputs hold

    def _low(self, binding: str) -> int:
        """Below this offset nobody knows what the input held."""
        place = self._task.place(binding)
        if place.topic in self._compacted:
            return _FAR
        return self._watermarks[place].low if place in self._watermarks else 0

    def _check_inputs(self) -> None:
        task = self._task
        for position in task.record.positions if task.record else ():
            known = task.ids.get(position.binding)
            if known is None:
                self._problems.append(f"it stands on {position.topic!r}, which is no input or does not exist any more")
            elif known != position.topic_id:
                self._problems.append(f"{position.topic!r} was recreated since; what the old one held is gone")
        self._limits += [f"{topic!r} is compacted, so what it held is not known" for topic in self._compacted]

    def _books(self) -> tuple[list[Balance], list[Balance]]:
        """Of each input: what can be checked, and what is trimmed away."""
        lows = {binding: self._low(binding) for binding in self._task.marks}
        marks = self._task.marks
        return (
            [marks[binding].balance(low, _FAR) for binding, low in lows.items()],
            [marks[binding].balance(0, low) for binding, low in lows.items()],
        )

    def _steps(self, visible: Sequence[Balance]) -> int:
        """Steps below the positions; those that are trimmed away, as the totals count them."""
        task, said = self._task, self._totals.deliveries
        found = min(map(len, task.columns.values())) if task.join else sum(one.exist for one in visible)
        trimmed = self._trimmed()
        if task.join and not trimmed and len({len(column) for column in task.columns.values()}) > 1:
            counts = ", ".join(f"{len(column)} of {binding!r}" for binding, column in task.columns.items())
            self._problems.append(f"its inputs are not in step below its positions: {counts}")
        if task.chain.begin is None and task.record and task.processor.start == "latest" and found > said:
            self._limits.append(
                "where it began (start='latest') is compacted away; what it delivered is taken from its totals"
            )
            return said
        if trimmed and found < said:
            self._limits.append(
                f"{', '.join(trimmed)}: {said - found} steps cannot be seen, and are taken from its totals"
            )
            return said
        return found

    def _trimmed(self) -> list[str]:
        task = self._task
        trimmed = []
        for binding, _ in task.names.inputs:
            low, place = self._low(binding), task.place(binding)
            if task.record and low > (task.begin(binding) or 0):
                below = "" if low == _FAR else f" below offset {low}"
                trimmed.append(f"{place.topic}/{place.partition} is trimmed{below}")
        return trimmed

    # What the outcomes say

    def _sum(self, name: str) -> int:
        return sum(getattr(marks, name) for marks in self._task.marks.values())

    def _strays(self) -> int:
        if count := len(self._task.strays.ahead):
            self._details.append(f"{count} outcomes name inputs, topics or tasks that do not exist")
        for binding, marks in self._task.marks.items():
            some = [
                offset for offset, _ in zip(marks.found(UNFOUNDED, self._low(binding), _FAR), range(5), strict=False)
            ]
            if some:
                self._details.append(f"outcomes of what is not there: {self._places(binding, some)}")
        return count

    def _mispaired(self) -> int:
        task = self._task
        if not task.join or any(self._low(binding) == _FAR for binding in task.columns):
            return 0
        [(lead, marks)] = task.marks.items()
        wrong = mismatched(marks.pairs, list(task.columns.values()), from_end=bool(self._trimmed()))
        low = self._low(lead)
        # One that the input does not hold is counted already, and what is trimmed away pairs with nobody knows what.
        missing = set(marks.found(UNFOUNDED, low, _FAR))
        wrong = [offset for offset in wrong if offset >= low and offset not in missing]
        if wrong:
            self._details.append(f"pairs that do not belong together: {self._places(lead, wrong[:5])}")
        return len(wrong)

    def _torn(self) -> int:
        count = 0
        for binding, marks in self._task.marks.items():
            torn = marks.torn()
            count += len(torn)
            if torn:
                self._details.append(f"torn: {self._places(binding, torn[:5])}")
        return count

    def _ahead(self) -> int:
        """Outcomes above the positions of now."""
        task = self._task
        newest = task.chain.newest
        ends = {position.binding: position.offset for position in newest.positions} if newest else {}
        count = 0
        for binding, marks in task.marks.items():
            above = [offset for offset in marks.ahead if offset >= ends.get(binding, 0)]
            count += len(above)
            if above:
                self._details.append(f"above the position: {self._places(binding, sorted(above)[:5])}")
        known = newest.sequence if newest else -1
        unknown = task.sequence > known and not count
        if task.chain.hidden and (count or unknown):
            self._limits.append(
                f"an open transaction hides its newest records, so {count} outcomes above its position are not judged"
            )
            return 0
        if unknown:
            self._problems.append(f"an outcome is of batch {task.sequence}, but its newest record is {known}")
        return count

    def _unveiled(self, lost: int, torn: int) -> tuple[int, int]:
        """Lost and torn, unless something hides outcomes: then nobody can say."""
        if self._unmarked:
            names = ", ".join(map(repr, self._unmarked))
            self._limits.append(
                f"{names} has provenance=False, so nobody can say what in it is lost, torn or duplicated"
            )
            return 0, 0
        if self._veils and (lost > 0 or torn):
            self._limits.append(f"{lost} outcomes were not seen and {torn} only in part: {'; '.join(self._veils)}")
            return min(lost, 0), 0
        return lost, torn

    def _compare(self, outputs: int, errors: int, messages: int) -> None:
        """Nothing is missing, so the totals must be what was seen."""
        said = self._totals
        if (outputs, errors, messages) != (said.outputs, said.errors, said.messages):
            self._problems.append(
                f"seen: {outputs} deliveries with outputs, {errors} with an error, {messages} messages; its totals "
                f"say: {said.outputs}, {said.errors}, {said.messages}"
            )

    # Words

    def _tell_lost(self, lost: int) -> None:
        """Without nils every message without an outcome is a lost one; with nils nobody knows which."""
        if self._totals.nils:
            self._details.append(
                f"lost: {lost} of the messages without an outcome, of which {self._totals.nils} are nil"
            )
            return
        for binding, marks in self._task.marks.items():
            some = [o for o, _ in zip(marks.found((EXISTS,), self._low(binding), _FAR), range(5), strict=False)]
            if some:
                self._details.append(f"lost: {self._places(binding, some)}")

    def _tell(self, kind: str, words: str) -> None:
        for binding, marks in self._task.marks.items():
            if offsets := marks.examples.get(kind):
                self._details.append(f"{words}: {self._places(binding, offsets)}")

    def _places(self, binding: str, offsets: Sequence[int]) -> str:
        place = self._task.place(binding)
        return f"{place.topic}/{place.partition} at {', '.join(map(str, offsets))}"
