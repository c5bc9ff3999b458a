"""The balance of one task: what its inputs held, what its outcomes say, and what its totals say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from cues_kafka.core.delivery import parse_origin
from cues_kafka.core.records import Totals
from cues_kafka.core.strategies import AT_MOST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.unreadable import RefusedBatch
from cues_kafka.verify.books import unmarked_limit
from cues_kafka.verify.ledger import EXISTS, UNFOUNDED, Balance, mismatched
from cues_kafka.verify.migrated import without
from cues_kafka.verify.report import TaskReport
from cues_kafka.verify.tasks import TaskBooks
from cues_kafka.words import count

_FAR = 1 << 62

SHOWN: Final = 5
"""Offsets that a line of the report shows."""


class SeenOutcomes(NamedTuple):
    """Deliveries with an outcome, those with outputs, those with an error, and the messages of all."""

    deliveries: int
    outputs: int
    errors: int
    messages: int


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
        self._others = (task.fires, task.replays)
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
        """Compare what the inputs held, what the outcomes say, and what the totals say."""
        task, totals, loose = self._task, self._totals, self._task.chain.loose
        if task.record is None:
            self._limits.append("no record yet, so never started")
        self._check_inputs()
        visible, hidden_part = self._books()
        steps = self._steps(visible) + totals.timers + totals.replays
        unfounded = sum(one.unfounded for one in visible) + self._strays() + self._mispaired()
        seen = self._seen(visible, hidden_part)
        duplicated, out_of_order = self._duplicated(), self._sum("out_of_order")
        ahead = self._ahead()
        lost, torn = steps - seen.deliveries - totals.nils, self._torn()
        flying = in_flight(task.record) if self._strategy == AT_MOST_ONCE else 0
        dropped = totals.dropped + flying
        # Outcomes of steps that were in flight at the record may be there by now.
        lost = max(0, lost - dropped) - max(0, totals.dropped - lost)
        if malformed := self._sum("malformed") + task.strays.malformed:
            self._problems.append(f"{malformed} outcomes have headers that make no sense")
        accepted, steps = self._accepted(steps, totals.deliveries + dropped)
        lost, torn = self._unveiled(lost, torn)
        if lost < 0 and not loose:
            self._problems.append(
                f"{seen.deliveries} deliveries have outcomes and {totals.nils} are nil by its totals: more than its "
                f"{steps} steps"
            )
        elif lost > 0:
            self._tell_lost(lost)
        if dropped:
            self._details.append(f"dropped: {count(dropped, 'step')} by {AT_MOST_ONCE}, {flying} of them in flight")
        if not (loose or dropped or lost or torn or duplicated or unfounded or ahead or self._limits):
            self._compare(seen)
        self._compare_drained()
        self._tell_passed()
        if lost or torn or duplicated or out_of_order or unfounded or ahead or self._problems:
            self._explain()
        if task.part:
            self._limits.append(task.part.limit)  # not before: what came since is compared all the same
        return TaskReport(
            task=task.task,
            steps=steps,
            replays=totals.replays,
            totals=totals,
            outputs=seen.outputs,
            errors=seen.errors,
            messages=seen.messages,
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
                self._problems.append(f"its topic {position.topic!r} is not an input, or no longer exists")
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
                    f"accepted: the task continued after {batch}, {count(passed, 'message')} without an outcome: "
                    f"{batch.why}"
                )
        accepted = sum(passed for _, passed in self._refused)
        if 0 < said - steps <= accepted:
            return accepted - (said - steps), said
        if steps != said:
            self._problems.append(
                f"its totals say {said} deliveries, but the input holds {steps} steps below its positions"
            )
        return accepted, steps

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

    def _seen(self, visible: Sequence[Balance], hidden_part: Sequence[Balance]) -> SeenOutcomes:
        balances, others = (*visible, *hidden_part), self._others
        deliveries = sum(one.seen for one in balances) - sum(one.unfounded for one in visible)
        outputs, errors = sum(one.outputs for one in balances), sum(one.errors for one in balances)
        return SeenOutcomes(
            deliveries + sum(one.outputs + one.errors for one in others),
            outputs + sum(one.outputs for one in others),
            errors + sum(one.errors for one in others),
            outputs + self._sum("more") + sum(one.messages for one in others),
        )

    def _duplicated(self) -> int:
        duplicated = self._delivered_again() + self._sum("duplicated") + self._task.drains.duplicated
        return duplicated + sum(one.duplicated for one in self._others)

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

    def _compare(self, seen: SeenOutcomes) -> None:
        """Compare the totals with what was seen; nothing is missing, so they must be equal."""
        said = self._totals
        if (seen.outputs, seen.errors, seen.messages) != (said.outputs, said.errors, said.messages):
            self._problems.append(
                f"seen: {seen.outputs} deliveries with outputs, {seen.errors} with an error, {seen.messages} messages; "
                f"its totals say: {said.outputs}, {said.errors}, {said.messages}"
            )

    def _compare_drained(self) -> None:
        """Compare the messages of no step, such as those that state handlers held back, with the totals."""
        seen, said = self._task.drains.count, self._totals.drained
        if again := self._task.drains.duplicated:
            self._details.append(f"duplicated: {count(again, 'message')} that name no message of its inputs")
        if seen == said or (seen < said and self._unmarked):
            return
        text = f"seen: {count(seen, 'message')} that name no message of its inputs; its totals say {said}"
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

    def _tell_passed(self) -> None:
        """Name what an operator has passed over, and what was delivered twice or in another order."""
        self._tell_skipped()
        for one, what in zip(self._others, ("timers", "replays"), strict=True):
            if one.duplicated:
                self._details.append(f"duplicated: {count(one.duplicated, 'outcome')} of {what}")
        self._tell("duplicated", "duplicated")
        self._tell("out of order", "out of order")

    def _explain(self) -> None:
        """Name what explains the differences, if that is known."""
        part, chain = self._task.part, self._task.chain
        if chain.explained and not (part and part.sequence == chain.moved):
            self._details.append(chain.explained)

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
