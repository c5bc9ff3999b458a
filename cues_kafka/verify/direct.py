"""The books of `verify` for a slot of DataFrames that are written directly: each row and error names its message (D1).

The totals count the messages that left an outcome, and not those of which the function makes no row. So `verify` sees
what is there twice, out of order, torn or above the position, and whether an outcome is missing that the totals count.
It cannot see whether a message should have left one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cues_kafka.core.delivery import show_topic_id
from cues_kafka.core.records import Totals
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Position, TopicPartition
from cues_kafka.verify.books import Books, unmarked_limit
from cues_kafka.verify.ledger import EXAMPLES, UNFOUNDED, Marks, Track
from cues_kafka.verify.report import TaskReport

_FAR = 1 << 62

NO_ROW = (
    "DataFrames that are written directly: a message of which the function makes no row is counted nowhere, so verify "
    "cannot say whether it should have left one"
)


class DirectBooks(Books):
    """
    One slot.

    Attributes:
        marks: what became of the messages of its input.
    """

    def __init__(self, part: Books, graph: str) -> None:
        super().__init__(graph, part.name, part.partition, part.written, part.errors)
        self.chain, self.record = part.chain, part.record
        self.marks = Marks(0, self._stands(self.record))

    @staticmethod
    def _stands(record: object) -> int:
        positions: Sequence[Position] = getattr(record, "positions", ())
        return positions[0].offset if positions else 0

    @property
    def _input(self) -> Position | None:
        return self.record.positions[0] if self.record and self.record.positions else None

    @property
    def above(self) -> bool:
        """Whether outcomes were seen that the newest record does not account for."""
        return bool(self.marks.ahead)

    @property
    def bindings(self) -> tuple[str, ...]:
        """The input, once it has a record."""
        return (self._input.binding,) if self._input else ()

    def place(self, _: str) -> TopicPartition:
        """What it reads."""
        assert self._input
        return TopicPartition(self._input.topic, self.partition)

    def places(self) -> list[TopicPartition]:
        """The same, as a list."""
        return [self.place(binding) for binding in self.bindings]

    def standing(self, marks: Mapping[TopicPartition, Watermarks]) -> Iterator[tuple[TopicPartition, int]]:
        """Where it stands by now."""
        for place in self.places():
            if place in marks:
                yield place, self._stands(self.chain.newest)

    def end(self, _: str) -> int:
        """Where it stood when the look began."""
        return self.marks.end

    def exist(self, _: str, offsets: list[int]) -> None:
        """The input holds these."""
        self.marks.exist(offsets)

    def track(self, places: str, topic: str) -> tuple[Marks, Track]:
        """Where to note outcomes in a topic that name these `binding:topic id`."""
        own = f"{self._input.binding}:{show_topic_id(self._input.topic_id)}" if self._input else ""
        marks = self.marks if places == own else self.strays
        return marks, Track(marks, self.kind_of(topic))

    def report(self, low: int, veils: Sequence[str], unmarked: Sequence[str]) -> TaskReport:
        """
        Return what was found.

        Args:
            low: the offset below which the input holds nothing any more.
            veils: why outcomes may be gone although they were committed.
            unmarked: topics whose records do not say where they come from.
        """
        totals = self.record.totals if self.record else Totals()
        marks, problems, details = self.marks, list(self.chain.problems), list[str]()
        seen, visible = marks.balance(0, _FAR), marks.balance(low, _FAR)
        limits = [NO_ROW]
        lost, torn = totals.deliveries - seen.seen, len(marks.torn())
        if unmarked:
            limits.append(unmarked_limit(unmarked))
            lost = torn = 0
        elif veils and (lost > 0 or torn):
            limits.append(f"{lost} outcomes were not seen and {torn} only in part: {'; '.join(veils)}")
            lost, torn = min(lost, 0), 0
        said = (totals.outputs, totals.errors)
        if not (lost > 0 or torn or unmarked or veils) and (seen.outputs, seen.errors) != said:
            problems.append(
                f"seen: {seen.outputs} messages with rows, {seen.errors} as errors; its totals say {said[0]}, {said[1]}"
            )
        ahead = [offset for offset in marks.ahead if offset >= self._stands(self.chain.newest)]
        if ahead and self.chain.hidden:
            limits.append(f"an open transaction hides its newest records, so {len(ahead)} outcomes are not judged")
            ahead = []
        shown = {**marks.examples, "torn": marks.torn(), "above the position": sorted(ahead)}
        shown["outcomes of what is not there"] = list(marks.found(UNFOUNDED, low, _FAR))
        details += [f"{what}: {', '.join(map(str, offsets[:EXAMPLES]))}" for what, offsets in shown.items() if offsets]
        if lost > 0:
            details.append(f"lost: {lost} outcomes that its totals count")
        return TaskReport(
            task=self.task,
            steps=totals.deliveries,
            totals=totals,
            outputs=seen.outputs,
            errors=seen.errors,
            messages=seen.outputs + marks.more,
            lost=max(lost, 0),
            torn=torn,
            duplicated=marks.duplicated,
            out_of_order=marks.out_of_order,
            unfounded=visible.unfounded + len(self.strays.ahead) + self.strays.malformed + marks.malformed,
            ahead=len(ahead),
            behind=self.behind,
            problems=tuple(problems),
            limits=tuple(limits),
            details=tuple(details),
        )
