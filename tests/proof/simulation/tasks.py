"""What must be true of one task: its attempts cut its inputs, and deliveries have what the plain function makes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cues_kafka.core.records import Attempt, Record, Snapshot, Start
from tests.proof.simulation.graphs import ERRORS, Bad, counted, outcome
from tests.proof.simulation.logs import Delivery, Logs, Outcome, require
from tests.proof.simulation.options import Part
from tests.proof.simulation.run import Simulation, Traced


class TaskJudge:
    """One task's logs against its inputs."""

    def __init__(
        self, simulation: Simulation, logs: Logs, part: Part, partition: int, records: list[tuple[Record, int]]
    ) -> None:
        self.part = part
        self.name = f"{simulation.graph.name}.{part.name}/{partition}"
        self._simulation = simulation
        self._records = [record for record, _ in records]
        self._transactions = {record.sequence: transaction for record, transaction in records}
        self._inputs = [(binding, logs.inputs[topic, partition]) for binding, topic in self._bindings()]
        self._outcomes = logs.outcomes.get(self.name, [])
        self._by_sequence: dict[int, list[Outcome]] = defaultdict(list)
        for one in self._outcomes:
            self._by_sequence[one.provenance.sequence].append(one)

    def _bindings(self) -> Sequence[tuple[str, str]]:
        return self._simulation.graph.processors[self.part.name].inputs

    def check(self) -> None:
        """All that is required of it."""
        require(self._records and isinstance(self._records[0], Start), f"I13 {self.name}: the first record is no Start")
        require(self._records[0].sequence == 0, f"I13 {self.name}: the first sequence", self._records[0])
        self._chain(self._records)
        self._drained()
        for before, record in pairwise(self._records):
            if isinstance(record, Attempt):
                self._attempt(before, record)
        attempts = {record.sequence for record in self._records if isinstance(record, Attempt)}
        strays = [one for one in self._outcomes if one.provenance.sequence not in attempts]
        require(not strays, f"I2 {self.name}: outcomes without an attempt", strays[:3])
        self._order(self._outcomes)

    def store(self, changes: dict[int, dict[str, int]]) -> None:
        """I2: each attempt's transaction has what its steps have counted, on top of all before, and no other has."""
        known: Counter[str] = Counter()
        for before, record in pairwise(self._records):
            changed: set[str] = set()
            if isinstance(record, Attempt):
                errors = {
                    tuple((c.binding, c.offset) for c in one.provenance.consumed)
                    for one in self._by_sequence.get(record.sequence, ())
                    if one.topic == ERRORS
                }
                for delivery in self._deliveries(before, record):
                    if delivery.places not in errors:
                        entry = counted(self.part, delivery.values)
                        known[entry] += 1
                        changed.add(entry)
            found = changes.pop(self._transactions[record.sequence], {})
            wanted = {entry: known[entry] for entry in changed}
            require(found == wanted, f"I2 {self.name} #{record.sequence}: store", found, wanted)
        require(not any(changes.values()), f"I2 {self.name}: changes of a store without an attempt", changes)

    def _chain(self, records: Sequence[Record]) -> None:
        """I13: no gap, no repeat; totals add up; positions never go back."""
        numbers = [record.sequence for record in records]
        wanted = list(range(numbers[0], numbers[0] + len(records)))
        require(numbers == wanted, f"I13 {self.name}: sequences", numbers)
        for before, record in pairwise(records):
            name = f"{self.name} #{record.sequence}"
            require(record.step == before.step + record.batch.deliveries, f"I13 {name}: step")
            require(record.totals == before.totals.plus(record.batch), f"I13 {name}: totals", record.totals)
            back = any(p.offset < q.offset for p, q in zip(record.positions, before.positions, strict=True))
            require(not back, f"I13 {name}: positions went back", before.positions, record.positions)
            batch = record.batch
            require(batch.deliveries == batch.outputs + batch.errors + batch.nils, f"I8 {name}: counts", batch)

    def _drained(self) -> None:
        """I3, I5: everything that could be paired was delivered."""
        steps = self._records[-1].step
        require(steps == self._expected_steps(), f"I3 {self.name}: {steps} of {self._expected_steps()} delivered")

    def _expected_steps(self) -> int:
        sizes = [len(log) for _, log in self._inputs]
        return min(sizes) if self.part.kind == "join" else sum(sizes)

    def _attempt(self, before: Record, record: Attempt) -> None:
        """I1, I2, I8: the deliveries of one attempt's ranges have exactly their outcomes."""
        name = f"{self.name} #{record.sequence}"
        deliveries = {one.places: one for one in self._deliveries(before, record)}
        require(len(deliveries) == record.batch.deliveries, f"I3 {name}: deliveries", len(deliveries), record.batch)
        found: dict[tuple[tuple[str, int], ...], list[Outcome]] = defaultdict(list)
        for one in self._by_sequence.get(record.sequence, ()):
            same = one.transaction == self._transactions[record.sequence]
            require(same, f"I2 {name}: an outcome was committed apart from its attempt", one)
            found[tuple((c.binding, c.offset) for c in one.provenance.consumed)].append(one)
        require(found.keys() <= deliveries.keys(), f"I1 {name}: outcomes of others", found.keys() - deliveries.keys())
        counts: Counter[str] = Counter()
        for places, delivery in deliveries.items():
            counts[self._delivered(name, delivery, found.get(places, []))] += 1
        batch = record.batch
        told = Counter({"outputs": batch.outputs, "errors": batch.errors, "nils": batch.nils})
        require(+told == +counts, f"I8 {name}: counts", told, counts)

    def _deliveries(self, before: Record, record: Record) -> Iterator[Delivery]:
        columns = []
        for (binding, log), start, end in zip(self._inputs, before.positions, record.positions, strict=True):
            offsets = [offset for offset in log if start.offset <= offset < end.offset]
            columns.append([((binding, offset), log[offset]) for offset in offsets])
        if self.part.kind == "join":
            for row in zip(*columns, strict=True):
                yield Delivery(tuple(place for place, _ in row), tuple(value for _, value in row))
            return
        for column in columns:
            for place, value in column:
                yield Delivery((place,), (value,))

    def _delivered(self, name: str, delivery: Delivery, found: list[Outcome]) -> str:
        """What became of one delivery, if it is what had to."""
        if any(one.topic == ERRORS and one.value.kind == "quarantine" for one in found):
            self._quarantined(name, delivery, found)
            return "errors"
        expected = outcome(self.part, delivery.values)
        self._traced(name, delivery)
        if isinstance(expected, Bad):
            texts = [(one.topic, getattr(one.value, "text", None)) for one in found]
            require(texts == [(ERRORS, str(expected))], f"I8 {name}: {delivery} must be one error", found)
            return "errors"
        wanted = {(made.topic, made.value, made.key and made.key.encode()) for made in expected}
        there = {(one.topic, one.value, one.key if self.part.rekeys else None) for one in found}
        require(wanted == there and len(found) == len(wanted), f"I8 {name}: {delivery}", wanted, found)
        parts = sorted((one.provenance.index, one.provenance.count) for one in found)
        require(parts == [(i, len(found)) for i in range(len(found))], f"I8 {name}: i of n", found)
        return "outputs" if found else "nils"

    def _traced(self, name: str, delivery: Delivery) -> None:
        if self.part.effects:
            called = self._simulation.called[self.part.name, delivery.values]
            require(called, f"{name}: {delivery} was delivered and its function never called")

    def _quarantined(self, name: str, delivery: Delivery, found: list[Outcome]) -> None:
        """I11: only after the stated number of deaths (or lost memberships, Q1) on this very message."""
        require(len(found) == 1, f"I1 {name}: something besides a quarantine", found)
        after = self._simulation.options.quarantine_after
        require(after is not None, f"I11 {name}: quarantine is off")
        offsets = dict(delivery.places)
        deaths = sum(
            1
            for record, following in pairwise(self._records)
            if isinstance(record, Snapshot)
            and record.steps == 1
            and not record.left
            and _takes(record, offsets)
            and following.writer.incarnation != record.writer.incarnation
        )
        require(deaths > (after or 0), f"I11 {name}: quarantined after {deaths} deaths", delivery)
        poison = self._simulation.poison
        blamed = not self._simulation.blames_poison or any(value in poison for value in delivery.values)
        require(blamed, f"Q2a {name}: quarantined for deaths of another message", delivery)

    def choices(self, calls: Sequence[Traced]) -> None:
        """
        I7: a worker that calls again calls in the same order.

        The call that follows one of the same process is a former one (after a recovery) or the next new one. Deliveries
        that another process called too may be skipped: it has committed them, and a call under a former ownership,
        whose result is thrown away (A3), may come late. What is quarantined is not called again, so such tasks are left
        out.
        """
        if any(one.topic == ERRORS and one.value.kind == "quarantine" for one in self._outcomes):
            return
        numbers: dict[tuple[str, ...], int] = {}
        callers: dict[int, set[str]] = defaultdict(set)
        for call in calls:
            callers[numbers.setdefault(call.values, len(numbers))].add(call.incarnation)
        for before, call in pairwise(calls):
            if call.incarnation == before.incarnation:
                between = range(numbers[before.values] + 1, numbers[call.values])
                skipped = any(callers[number] == {call.incarnation} for number in between)
                require(not skipped, f"I7 {self.name}: another order", before, call)

    def _order(self, outcomes: Sequence[Outcome]) -> None:
        """I4: in each partition of each output, what a task wrote has the order of its inputs."""
        last: dict[tuple[str, int, str], tuple[int, int]] = {}
        for one in outcomes:
            for consumed in one.provenance.consumed:
                at = (one.topic, one.place[0], consumed.binding)
                now = (consumed.offset, one.provenance.index)
                require(last.get(at, (-1, -1)) < now, f"I4 {self.name}: out of order", one)
                last[at] = now


def _takes(record: Snapshot, offsets: dict[str, int]) -> bool:
    """Whether a snapshot of one step is about this message."""
    ends = {end.binding: end.offset for end in record.ends}
    return all(
        start.offset <= offsets[start.binding] < ends[start.binding]
        for start in record.positions
        if start.binding in offsets
    )
