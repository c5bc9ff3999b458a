"""The books of `verify` for a staged processor: its parts, their publications, and the rows that were seen.

A row of a staged processor names no message. Its provenance header says that it is row i of the n rows that a part
published with its record of this sequence. So a publication is complete, torn (some of its rows are there) or lost (no
row is there). The totals of the part's newest record say how many rows there must be in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cues_kafka.core.records import Totals
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import backing_topic
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import has_reached, published_ends
from cues_kafka.verify.books import Books, unmarked_limit
from cues_kafka.verify.ledger import BITS, ERROR, EXAMPLES, LOW, OUTPUT, SIZE, Marks, Track, page_of
from cues_kafka.verify.report import TaskReport

REPLAYED: Final = frozenset({"row", "error"})
"""What requests to replay an error message come to, in a staged processor (Y4)."""


class Publication:
    """
    The rows of one part in one transaction; a byte for each while it is not complete.

    Attributes:
        count: number of rows.
        seen: number of rows that were seen.
    """

    __slots__ = ("_pages", "count", "seen")

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen = 0
        self._pages: dict[int, bytearray] = {}

    def add(self, index: int) -> bool:
        """Note a row; return whether it is new."""
        if self.seen == self.count:
            return False
        page = page_of(self._pages, index >> BITS)
        if page[index & LOW]:
            return False
        page[index & LOW] = 1
        self.seen += 1
        if self.seen == self.count:
            self._pages.clear()
        return True

    def missing(self) -> Iterator[int]:
        """Rows that were not seen, ascending."""
        if self.seen < self.count:
            empty = bytes(SIZE)
            for number in range((self.count - 1 >> BITS) + 1):
                page, width = self._pages.get(number, empty), min(SIZE, self.count - (number << BITS))
                at = page.find(0, 0, width)
                while at >= 0:
                    yield (number << BITS) + at
                    at = page.find(0, at + 1, width)


class Rows(Track):
    """The rows of one publication in one partition of one topic."""

    __slots__ = ("_ordered", "_part", "_place", "_sequence")

    def __init__(self, part: Part, place: TopicPartition, sequence: int, kind: int, *, ordered: bool) -> None:
        super().__init__(part.strays, kind, (0,))  # `ends`: every row goes through `several`
        self._part = part
        self._place = place
        self._sequence = sequence
        self._ordered = ordered

    def several(self, part: bytes, where: bytes) -> None:
        """Note a row."""
        index, _, count = part.partition(b"/")
        if where != b"-" or not 0 <= int(index) < int(count):
            raise ValueError(part)
        self._part.note(self._sequence, int(index), int(count), self.kind)
        if self._ordered:
            self._part.in_order(self._place, (self._sequence, int(index)))


class Part(Books):
    """
    One slot of a processor of DataFrames, in the place of a task. Its record says whether it is staged.

    Attributes:
        strays: rows that make no sense.
        behind: offsets of the inputs that are not published yet; of part 0 only.
        unit: what texts call the rows of one transaction.
    """

    unit = "publication"

    def __init__(
        self,
        graph: Graph,
        processor: DataFrameProcessor | Feed,
        facts: ClusterFacts,
        partition: int,
        family: Sequence[Part],
    ) -> None:
        super().__init__(graph.name, processor.name, partition, processor.output_topics, graph.errors_of(processor))
        self._family = family
        self._inputs = [
            TopicPartition(topic, p)
            for topic in dict.fromkeys(processor.read_topics)
            if topic in facts.topics
            for p in range(facts.topics[topic].partitions)
        ]
        self._of: dict[int, Publication] = {}
        self._counts: Counter[int] = Counter()
        self._ahead: Counter[int] = Counter()
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        self._told: Counter[str] = Counter()
        self._duplicated = self._out_of_order = self._unfounded = 0
        self._details: list[str] = []

    @property
    def is_direct(self) -> bool:
        """Whether the processor has records, and none of them is of a staged batch."""
        records = [part.record for part in self._family if part.record]
        return bool(records) and not any(record.staged for record in records)

    @property
    def not_staged(self) -> str:
        """Why `verify` cannot check the processor; empty if it is staged."""
        records = [part.record for part in self._family if part.record]
        if any(record.staged for record in records):
            return ""
        return f"{self.name} has no record yet, so it never started"

    @property
    def there(self) -> bool:
        """Whether this part exists; the first record of the processor fixes the number of parts."""
        staged = [part.record.staged for part in self._family if part.record and part.record.staged]
        return bool(staged) and self.partition < staged[0].parts

    @property
    def above(self) -> bool:
        """Whether rows were seen that the newest record does not account for."""
        return bool(self._ahead)

    def places(self) -> list[TopicPartition]:
        """The inputs of the processor; the announcements of part 0 say up to where it has read."""
        return [] if self.partition else self._inputs

    def standing(self, marks: Mapping[TopicPartition, Watermarks]) -> Iterator[tuple[TopicPartition, int]]:
        """Up to where the inputs are published by now."""
        newest = [part.chain.newest for part in self._family]
        ends = published_ends(newest)
        for place in self.places():
            if place in marks:
                yield place, ends.get(place, marks[place].low)

    # Noting

    def track(self, _: str, topic: str) -> tuple[Marks, Track]:
        """Rows that name a part that is not there, or messages."""
        return self.strays, Track(self.strays, self.kind_of(topic))

    def track_rows(self, place: TopicPartition, sequence: int) -> Track:
        """Where to note the rows of a publication in one partition of a topic."""
        self.sequence = max(self.sequence, sequence)
        ordered = self.topics.count(place.topic) == 1
        return Rows(self, place, sequence, self.kind_of(place.topic), ordered=ordered)

    def note(self, sequence: int, index: int, count: int, kind: int) -> None:
        """Note a row."""
        if sequence > (self.record.sequence if self.record else -1):
            self._ahead[sequence] += 1
            return
        rows = self.chain.rows.get(sequence, count)  # the header counts where compaction has taken the record
        if not rows:
            self._unfounded += 1
            self._detail(f"unfounded: row {index} of {count} of {self.unit} {sequence}, whose record has none")
            return
        found = self._of.get(sequence)
        if found is None:
            found = self._of[sequence] = Publication(rows)
        if found.count == count and found.add(index):
            self._counts[kind] += 1
        else:
            self._duplicated += 1
            self._detail(f"duplicated: row {index} of {count} of {self.unit} {sequence}")

    def in_order(self, place: TopicPartition, at: tuple[int, int]) -> None:
        """Rows of a part stand in a partition as they were published."""
        if at < self._last.get(place, at):
            self._out_of_order += 1
            self._detail(f"out of order: row {at[1]} of {self.unit} {at[0]} in {place.topic}/{place.partition}")
        self._last[place] = at

    def _detail(self, text: str) -> None:
        """Keep a text, as long as there are few of its kind."""
        self._told[text.partition(":")[0]] += 1
        if self._told[text.partition(":")[0]] <= EXAMPLES:
            self._details.append(text)

    # The balance

    def report(self, veils: Sequence[str], unmarked: Sequence[str]) -> TaskReport:
        """
        Return what was found.

        Args:
            veils: why rows may be gone although they were published.
            unmarked: topics whose records do not say where they come from.
        """
        totals = self.record.totals if self.record else Totals()
        problems, limits = list(self.chain.problems), []
        if self.record is None:
            limits.append("nothing of it is published yet")
        unfounded = self._unfounded + len(self.strays.ahead) + self.strays.malformed
        torn = [sequence for sequence, one in sorted(self._of.items()) if one.seen < one.count]
        published = totals.deliveries - totals.nils  # rows of files leave no message (E5)
        lost = published - sum(one.count for one in self._of.values())
        if unmarked:
            limits.append(unmarked_limit(unmarked))
            lost, torn = 0, []
        elif veils and (lost > 0 or torn):
            limits.append(f"{lost} rows and parts of {len(torn)} publications were not seen: {'; '.join(veils)}")
            lost, torn = min(lost, 0), []
        if lost < 0:
            problems.append(f"its rows speak of {-lost} more than its totals: {published}")
        self._tell(lost, torn)
        outputs, errors = self._counts[OUTPUT], self._counts[ERROR]
        said = (totals.outputs, totals.errors)
        if not (lost or torn or unfounded or self._duplicated or limits) and (outputs, errors) != said:
            problems.append(
                f"seen: {outputs} rows as outputs, {errors} as errors; its totals say: {said[0]}, {said[1]}"
            )
        ahead = self._judged_ahead(limits)
        return TaskReport(
            task=self.task,
            steps=totals.deliveries,
            replays=sum(outcome in REPLAYED for outcome in self.chain.settled.values()),
            totals=totals,
            outputs=outputs,
            errors=errors,
            messages=outputs,
            lost=max(lost, 0),
            torn=len(torn),
            duplicated=self._duplicated,
            out_of_order=self._out_of_order,
            unfounded=unfounded,
            ahead=ahead,
            behind=self.behind + self._due,
            problems=tuple(problems),
            limits=tuple(limits),
            details=tuple(self._details),
        )

    @property
    def _due(self) -> int:
        """1 if a batch is announced and this part of it is not published yet."""
        first, own = (part.chain.newest for part in (self._family[0], self))
        return int(first is not None and first.staged is not None and not has_reached(own, first.staged))

    def _tell(self, lost: int, torn: Sequence[int]) -> None:
        for sequence in torn[:EXAMPLES]:
            one = self._of[sequence]
            some = ", ".join(str(row) for row, _ in zip(one.missing(), range(EXAMPLES), strict=False))
            self._details.append(
                f"torn: {self.unit} {sequence} has {one.seen} of its {one.count} rows; missing: {some}"
            )
        if lost > 0:
            gone = [f"{sequence} ({rows} rows)" for sequence, rows in self.chain.rows.items() if rows]
            gone = [text for text in gone if int(text.split()[0]) not in self._of]
            named = f": {self.unit} {', '.join(gone[:EXAMPLES])}" if gone else ""
            self._details.append(f"lost: {lost} rows of which nothing is there{named}")

    def _judged_ahead(self, limits: list[str]) -> int:
        known = self.chain.newest.sequence if self.chain.newest else -1
        count = sum(rows for sequence, rows in self._ahead.items() if sequence > known)
        if count and self.chain.hidden:
            limits.append(f"an open transaction hides its newest records, so {count} rows above them are not judged")
            return 0
        if count:
            self._details.append(f"above its newest record {known}: {count} rows")
        return count


def parts_of(graph: Graph, processor: DataFrameProcessor, facts: ClusterFacts) -> list[Part]:
    """Make a part for each partition of the backing topic."""
    family: list[Part] = []
    known = facts.topics.get(backing_topic(graph.name, processor.name))
    family += [Part(graph, processor, facts, p, family) for p in range(known.partitions if known else 0)]
    return family
