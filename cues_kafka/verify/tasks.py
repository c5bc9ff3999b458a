"""The books of one task: what its inputs held, what became of it, and how that balances."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from cues_kafka.core.delivery import parse_origin, show_topic_id
from cues_kafka.core.records import Totals
from cues_kafka.core.strategies import AT_MOST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.plan import Plan
from cues_kafka.ports import ClusterFacts, Coordinates, TopicPartition, Watermarks
from cues_kafka.records.history import DeliveredSpans, History, delivered
from cues_kafka.records.unreadable import RefusedBatch
from cues_kafka.verify.books import Books, unmarked_limit
from cues_kafka.verify.drains import Drains
from cues_kafka.verify.fires import Fires
from cues_kafka.verify.ledger import BITS, EXISTS, LOW, OUTCOME, UNFOUNDED, Balance, Marks, Track, mismatched
from cues_kafka.verify.migrated import Former, Migration, newest_part, without
from cues_kafka.verify.report import TaskReport
from cues_kafka.words import count


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


_FAR = 1 << 62

SHOWN: Final = 5
"""Offsets that a line of the report shows."""


class TaskBalance:
    """Draws the balance of one task."""

    def __init__(
        self,
        task: TaskBooks,
        watermarks: Mapping[TopicPartition, Watermarks],
        compacted: Sequence[str],
        veils: Sequence[str],
        unmarked: Sequence[str],
        *,
        refused: Sequence[tuple[RefusedBatch, int]] = (),
    ) -> None:
        self._task = task
        self._refused = refused
        self._totals = without(task.record.totals, task.part) if task.record else Totals()
        self._strategy = task.record.strategy if task.record else task.names.strategy
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
        others = (task.fires, task.replays)
        steps = self._steps(visible) + totals.timers + totals.replays
        unfounded = sum(one.unfounded for one in visible) + self._strays() + self._mispaired()
        seen = sum(one.seen for one in (*visible, *hidden_part)) - sum(one.unfounded for one in visible)
        seen += sum(one.outputs + one.errors for one in others)
        outputs = sum(one.outputs for one in (*visible, *hidden_part))
        messages = outputs + self._sum("more") + sum(one.messages for one in others)
        outputs += sum(one.outputs for one in others)
        errors = sum(one.errors for one in (*visible, *hidden_part)) + sum(one.errors for one in others)
        again = self._delivered_again()
        duplicated = again + self._sum("duplicated") + task.drains.duplicated + sum(one.duplicated for one in others)
        out_of_order = self._sum("out_of_order")
        ahead = self._ahead()
        lost, torn = steps - seen - totals.nils, self._torn()
        loose = task.chain.loose
        flying = in_flight(task.record) if self._strategy == AT_MOST_ONCE else 0
        dropped = totals.dropped + flying
        # Outcomes of steps that were in flight at the record may be there by now.
        lost = max(0, lost - dropped) - max(0, totals.dropped - lost)
        if malformed := self._sum("malformed") + task.strays.malformed:
            self._problems.append(f"{malformed} outcomes have headers that make no sense")
        said = totals.deliveries + dropped
        accepted, steps = self._accepted(steps, said)
        if steps != said:
            self._problems.append(
                f"its totals say {said} deliveries, but the input holds {steps} steps below its positions"
            )
        lost, torn = self._unveiled(lost, torn)
        if lost < 0 and not loose:
            self._problems.append(
                f"{seen} deliveries have outcomes and {totals.nils} are nil by its totals: more than its {steps} steps"
            )
        elif lost > 0:
            self._tell_lost(lost)
        if dropped:
            self._details.append(f"dropped: {count(dropped, 'step')} by {AT_MOST_ONCE}, {flying} of them in flight")
        if not (loose or dropped or lost or torn or duplicated or unfounded or ahead or self._limits):
            self._compare(outputs, errors, messages)
        self._compare_drained()
        self._tell_skipped()
        for one, what in zip(others, ("timers", "replays"), strict=True):
            if one.duplicated:
                self._details.append(f"duplicated: {count(one.duplicated, 'outcome')} of {what}")
        self._tell("duplicated", "duplicated")
        self._tell("out of order", "out of order")
        wrong = lost or torn or duplicated or out_of_order or unfounded or ahead or self._problems
        if wrong and (explained := task.chain.explained) and not (task.part and task.part.sequence == task.chain.moved):
            self._details.append(explained)
        if task.part:
            self._limits.append(task.part.limit)  # not before: what came since is compared all the same
        return TaskReport(
            task=task.task,
            steps=steps,
            replays=totals.replays,
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
            allowed=("duplicated", "out_of_order", "ahead") if loose else (),
            dropped=dropped,
            accepted=accepted,
            behind=task.behind,
            problems=tuple(self._problems),
            limits=tuple(self._limits),
            details=tuple(self._details),
        )

    # What the inputs hold

    def _low(self, binding: str) -> int:
        """The offset below which it is not known what the input held."""
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
        """The balances of each input: what can be checked, and what is trimmed away."""
        lows = {binding: self._low(binding) for binding in self._task.marks}
        marks = self._task.marks
        return (
            [marks[binding].balance(low, _FAR) for binding, low in lows.items()],
            [marks[binding].balance(0, low) for binding, low in lows.items()],
        )

    def _steps(self, visible: Sequence[Balance]) -> int:
        """Steps below the positions; those that are trimmed away, as the totals count them."""
        task, said = self._task, self._totals.deliveries - self._totals.timers - self._totals.replays
        said += self._totals.dropped + (in_flight(self._task.record) if self._strategy == AT_MOST_ONCE else 0)
        found = min(map(len, task.columns.values())) if task.join else sum(one.exist for one in visible)
        trimmed = self._trimmed()
        if task.join and not trimmed and len({len(column) for column in task.columns.values()}) > 1:
            counts = ", ".join(f"{len(column)} of {binding!r}" for binding, column in task.columns.items())
            self._problems.append(f"its inputs are not in step below its positions: {counts}")
        if (
            task.part is None
            and task.chain.begin is None
            and task.record
            and task.processor.start == "latest"
            and found > said
        ):
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

    def _accepted(self, steps: int, said: int) -> tuple[int, int]:
        """
        Messages that the task passed over because the client refuses them, and its steps; each batch has a line.

        Messages that its totals count were delivered without an outcome, by a client that could read them.
        """
        for batch, passed in self._refused:
            if passed:
                self._details.append(
                    f"accepted: the task went on behind {batch}, {count(passed, 'message')} without an outcome: "
                    f"{batch.why}"
                )
        accepted = sum(passed for _, passed in self._refused)
        return (accepted - (said - steps), said) if 0 < said - steps <= accepted else (accepted, steps)

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
            self._show("outcomes of what is not there", binding, marks.found(UNFOUNDED, self._low(binding), _FAR))
        return count

    def _mispaired(self) -> int:
        task = self._task
        if not task.join or any(self._low(binding) == _FAR for binding in task.columns):
            return 0
        [(lead, marks)] = task.marks.items()
        wrong = mismatched(marks.pairs, list(task.columns.values()), from_end=bool(self._trimmed()))
        low = self._low(lead)
        # A message that the input does not hold is counted already. The partners of trimmed messages are not known.
        missing = set(marks.found(UNFOUNDED, low, _FAR))
        wrong = [offset for offset in wrong if offset >= low and offset not in missing]
        self._show("pairs that do not belong together", lead, wrong)
        return len(wrong)

    def _delivered_again(self) -> int:
        """Replays of messages that have an output: only what failed is delivered again (Y1)."""
        found: dict[str, list[int]] = {}
        for origin in self._task.replays.origins.values():
            for place in parse_origin(origin.decode(), self._task.partition):
                binding = self._task.named(place)
                if binding in self._task.marks and self._task.marks[binding].has_output(place.offset):
                    found.setdefault(binding, []).append(place.offset)
        for binding, offsets in found.items():
            self._show("replayed although they had an output", binding, sorted(offsets))
        return sum(map(len, found.values()))

    def _torn(self) -> int:
        count = self._task.fires.torn + self._task.replays.torn
        for binding, marks in self._task.marks.items():
            torn = marks.torn()
            count += len(torn)
            self._show("torn", binding, torn)
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
            self._show("above the position", binding, sorted(above))
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
        """Lost and torn, with a limit instead of a number where something hides outcomes."""
        if self._unmarked:
            self._limits.append(unmarked_limit(self._unmarked))
            return 0, 0
        if self._veils and (lost > 0 or torn):
            self._limits.append(f"{lost} outcomes were not seen and {torn} only in part: {'; '.join(self._veils)}")
            return min(lost, 0), 0
        return lost, torn

    def _compare(self, outputs: int, errors: int, messages: int) -> None:
        """Compare the totals with what was seen; nothing is missing, so they must be equal."""
        said = self._totals
        if (outputs, errors, messages) != (said.outputs, said.errors, said.messages):
            self._problems.append(
                f"seen: {outputs} deliveries with outputs, {errors} with an error, {messages} messages; its totals "
                f"say: {said.outputs}, {said.errors}, {said.messages}"
            )

    def _compare_drained(self) -> None:
        """Compare the messages that state handlers held back with the totals."""
        seen, said = self._task.drains.count, self._totals.drained
        if again := self._task.drains.duplicated:
            self._details.append(f"duplicated: {count(again, 'message')} that its state handlers held back")
        if seen == said or (seen < said and self._unmarked):
            return
        text = f"seen: {count(seen, 'message')} that its state handlers held back; its totals say {said}"
        if seen < said and self._veils:
            self._limits.append(f"{text}; {'; '.join(self._veils)}")
        else:
            self._problems.append(text)

    # Words

    def _tell_lost(self, lost: int) -> None:
        """Name the lost messages: those without an outcome, if no message is nil; else only their number is known."""
        if self._totals.nils:
            self._details.append(
                f"lost: {lost} of the messages without an outcome, of which {self._totals.nils} are nil"
            )
            return
        for binding, marks in self._task.marks.items():
            self._show("lost", binding, marks.found((EXISTS,), self._low(binding), _FAR))

    def _tell_skipped(self) -> None:
        past = self._task.past
        for binding in self._task.bindings if past else ():
            place, spans = self._task.place(binding), past.skipped(binding) if past else ()
            for start, end in spans:
                self._details.append(
                    f"an operator has moved it over offsets [{start}, {end}) of {place.topic}/{place.partition}, which "
                    "are not delivered"
                )

    def _tell(self, kind: str, words: str) -> None:
        for binding, marks in self._task.marks.items():
            self._show(words, binding, marks.examples.get(kind, ()))

    def _show(self, words: str, binding: str, offsets: Iterable[int]) -> None:
        """Add a line with the first offsets, and how many there are besides; none without an offset."""
        rest = iter(offsets)
        if first := list(islice(rest, SHOWN)):
            place, more = self._task.place(binding), sum(1 for _ in rest)
            besides = f" and {more} more" if more else ""
            self._details.append(f"{words}: {place.topic}/{place.partition} at {', '.join(map(str, first))}{besides}")
