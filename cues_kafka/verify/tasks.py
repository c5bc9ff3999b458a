"""The books of one task: what its inputs held, what became of it, and how that balances."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cues_kafka.core.delivery import show_topic_id
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import Coordinates, TopicPartition
from cues_kafka.records.history import DeliveredSpans, History, delivered
from cues_kafka.records.unreadable import RefusedBatch
from cues_kafka.verify.books import Books
from cues_kafka.verify.drains import Drains
from cues_kafka.verify.fires import Fires
from cues_kafka.verify.ledger import BITS, EXISTS, LOW, OUTCOME, Marks, Track
from cues_kafka.verify.migrated import Former, Migration, newest_part


class TaskBooks(Books):
    """
    One task: its names, its newest record, its books.

    Attributes:
        marks: books by binding; of a join the lead's alone.
        columns: of a join, the offsets of each input's messages.
        strays: outcomes that name something other than an input of the task.
        drains: messages that its state handlers held back.
        fires: outcomes of its timers.
        replays: outcomes of its replays.
        part: the migration at which the books begin; None: they begin with the task.
        former: takes outcomes from before it.
        past: which messages it has delivered since then; None: all from its beginning up to its positions.
        behind: offsets that are not delivered yet.
    """

    def __init__(self, graph: Graph, processor: Processor, planned: Plan, facts: ClusterFacts, partition: int) -> None:
        names = planned[processor.name]
        written = tuple(dict.fromkeys(topic for _, topic in names.outputs))
        super().__init__(graph.name, processor.name, partition, written, graph.errors_of(processor))
        self.processor = processor
        self.names = names
        self.start = planned.start_of(processor, partition)
        self.ids = {b: facts.topics[topic].topic_id for b, topic in names.inputs if topic in facts.topics}
        self.marks: dict[str, Marks] = {}
        self.columns: dict[str, array[int]] = {}
        self.drains = Drains(-1)
        self.fires = Fires(-1)
        self.replays = Fires(-1, replays=True)
        self.part: Migration | None = None
        self.former = Former()
        self.past: DeliveredSpans | None = None

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
        super().open()
        self.part = newest_part(self.chain.migrations, join=self.join)
        self.past = self._past()
        known = self.record.sequence if self.record else -1
        self.drains, self.fires, self.replays = Drains(known), Fires(known), Fires(known, replays=True)
        bindings = [binding for binding, _ in self.names.inputs]
        for binding in bindings[:1] if self.join else bindings:
            self.marks[binding] = Marks(self.begin(binding) or 0, self.end(binding))
        if self.join:
            self.columns = {binding: array("q") for binding in bindings}
        self._ends = tuple(self.end(binding) for binding in bindings)

    def _past(self) -> DeliveredSpans | None:
        history = self.chain.history
        if self.part:
            later = tuple(move for move in history.moves if move.sequence > self.part.sequence)
            history = History(self.part.positions, later, history.whole)
        if self.record is None or not history.moves:
            return None
        first = self.start if isinstance(self.start, int) else 0
        began = history.began if history.began is not None else self.chain.begin
        starts = dict.fromkeys(self.bindings, first)
        return delivered(replace(history, began=began), self.record.positions, starts)

    def exist(self, binding: str, offsets: list[int]) -> None:
        """The input holds these; what an operator has moved the task over does not count."""
        if self.past is not None:
            offsets = [offset for offset in offsets if self.past.has(binding, offset)]
        if binding in self.marks:
            self.marks[binding].exist(offsets)
        if self.join:
            end = self.end(binding)
            begin = self.begin(binding) or 0
            self.columns[binding].extend(offset for offset in offsets if begin <= offset < end)

    def accept(self, batches: Sequence[RefusedBatch]) -> list[tuple[RefusedBatch, int]]:
        """
        Enter batches of its inputs that the client refuses to read: a message with an outcome was there.

        Returns:
            The batches below its position, each with the number of its offsets that have no outcome.
        """
        found = []
        for batch in batches:
            for binding, marks in self.marks.items():
                first, last = max(batch.start, marks.begin), min(batch.end, marks.end)
                if batch.place != self.place(binding) or first >= last:
                    continue
                passed = 0
                for offset in range(first, last):
                    page, at = marks.page(offset >> BITS), offset & LOW
                    if page[at] & OUTCOME:
                        page[at] |= EXISTS
                    passed += not page[at] & OUTCOME
                found.append((batch, passed))
        return found

    def begin(self, binding: str) -> int | None:
        """Where it began; None: not known any more."""
        if self.past is not None and (spans := self.past.spans.get(binding)):
            return min(span.start for span in spans)
        known = self.part.positions if self.part else self.chain.begin or ()
        return next((p.offset for p in known if self._is(p.binding, p.topic_id, binding)), None)

    def is_former(self, sequence: int) -> bool:
        """Whether an outcome of this batch is from before the migration."""
        return self.part is not None and sequence < self.part.sequence

    def end(self, binding: str) -> int:
        """Where it stood when the look began."""
        known = self.record.positions if self.record else ()
        return next((p.offset for p in known if self._is(p.binding, p.topic_id, binding)), 0)

    def _is(self, named: str, topic_id: bytes, binding: str) -> bool:
        """
        Whether records and outcomes with this name are about an input.

        An input without a partner may have had another name (`migrate --add NEW=OLD`): then its topic tells.
        """
        if named == binding or self.join:
            return named == binding
        return [b for b, own in self.ids.items() if own == topic_id] == [binding] and named not in self.bindings

    def named(self, place: Coordinates) -> str:
        """The input that these coordinates are of; empty: none is."""
        ids = self.ids.items()
        return next((b for b, own in ids if own == place.topic_id and self._is(place.binding, own, b)), "")

    def stands(self, binding: str, marks: Watermarks) -> int:
        """Where it stands on an input by now; before its first record, where it would begin."""
        if self.chain.newest is None:
            if self.start == "latest":
                return marks.stable
            return max(marks.low, self.start if isinstance(self.start, int) else 0)
        here = (p for p in self.chain.newest.positions if p.topic_id == self.ids[binding])
        return next((p.offset for p in here if self._is(p.binding, p.topic_id, binding)), marks.low)

    def track(self, places: str, topic: str) -> tuple[Marks, Track]:
        """Where to note outcomes in a topic that name these `binding:topic id`."""
        named = [place.partition(":")[::2] for place in places.split(",")]
        if len(named) == 1:
            [(name, topic_id)] = named
            now = (b for b, own in self.ids.items() if show_topic_id(own) == topic_id and self._is(name, own, b))
            named = [(next(now, name), topic_id)]
        known = [(binding, show_topic_id(self.ids.get(binding, b""))) for binding, _ in self.names.inputs]
        alts = self.processor.input_shape == "alts"
        right = len(named) == 1 and named[0] in known if alts else named == known
        marks = self.marks[named[0][0]] if right else self.strays
        return marks, Track(marks, self.kind_of(topic), self._ends if self.join else ())
