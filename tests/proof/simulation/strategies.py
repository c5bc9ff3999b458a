"""What must be true of a task that is, or was, at-most-once or at-least-once (I15 to I17, W1 to W7).

Its records are cut where an operator changed the strategy. Each piece is judged by its own strategy. Without a
transaction nothing says what belongs together, so there the order counts in which the cluster got all records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import inf

from cues_kafka.core.records import Attempt, Record, Start
from cues_kafka.core.strategies import AT_LEAST_ONCE, AT_MOST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.ports.log import Positions
from tests.proof.simulation.graphs import ERRORS, Bad, outcome
from tests.proof.simulation.logs import Delivery, Logs, Outcome, require
from tests.proof.simulation.options import Part
from tests.proof.simulation.run import Simulation, Traced
from tests.proof.simulation.tasks import TaskJudge

Places = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """
    Records of one strategy.

    Attributes:
        records: in order; the first one is a `Start`, or that of the operator's tool.
        numbers: of the transaction of each; 0: it had none.
        arrived: the place of each in the order of all records.
        end: the place in that order of the record that begins the next piece; infinite for the last piece.
        until: the record that begins the next piece; None for the last one.
    """

    records: Sequence[Record]
    numbers: Sequence[int]
    arrived: Sequence[float]
    end: float
    until: Record | None


class StrategyJudge(TaskJudge):
    """One task's logs against its inputs, whatever its strategies."""

    def __init__(self, simulation: Simulation, logs: Logs, part: Part, partition: int) -> None:
        backing = simulation.planned[part.name].backing
        records = logs.records[backing, partition]
        super().__init__(simulation, logs, part, partition, records)
        self._place = partition
        self._arrived = logs.arrived[backing, partition]
        self._numbers = [number for _, number in records]

    def check(self) -> None:
        """All that is required of it."""
        require(self._records and isinstance(self._records[0], Start), f"I13 {self.name}: the first record is no Start")
        pieces = list(self._pieces())
        for piece in pieces:
            strategies = {record.strategy for record in piece.records}
            require(len(strategies) == 1, f"W7 {self.name}: strategies without a change", strategies)
            loose = piece.records[0].strategy == AT_LEAST_ONCE
            foreign = list(self._within(piece, loose=not loose))
            require(not foreign, f"W7 {self.name}: outcomes of another strategy", foreign[:3])
            if loose:
                self._loose(piece, last=piece is pieces[-1])
            else:
                self._fenced(piece)
        self._order([one for one in self._outcomes if one.transaction])

    def _pieces(self) -> Iterator[Piece]:
        begins = [0, *(n for n, one in enumerate(self._records) if n and one.writer.runtime == "tool")]
        for begin, end in pairwise([*begins, len(self._records)]):
            until = self._records[end] if end < len(self._records) else None
            last = self._arrived[end] if until is not None else inf
            records, numbers = self._records[begin:end], self._numbers[begin:end]
            yield Piece(records, numbers, self._arrived[begin:end], last, until)

    def _within(self, piece: Piece, *, loose: bool) -> Iterator[Outcome]:
        """The outcomes that came while the piece was written: with transactions, or without."""
        began = piece.arrived[0]
        for one in self._outcomes:
            if loose is not bool(one.transaction) and began <= one.arrived < piece.end:
                yield one

    # What the inputs give.

    @cached_property
    def _offsets(self) -> dict[str, list[int]]:
        return {binding: sorted(log) for binding, log in self._inputs}

    @cached_property
    def _known(self) -> dict[Places, Delivery]:
        """Every delivery that the inputs make."""
        columns = [[((binding, offset), log[offset]) for offset in sorted(log)] for binding, log in self._inputs]
        if self.part.kind != "join":
            columns = [[one for column in columns for one in column]]
        found = (Delivery(*zip(*row, strict=True)) for row in zip(*columns, strict=False))
        return {delivery.places: delivery for delivery in found}

    def _below(self, positions: Positions) -> int:
        """How many deliveries lie below these positions."""
        counts = [bisect_left(self._offsets[p.binding], p.offset) for p in positions]
        if self.part.kind != "join":
            return sum(counts)
        require(len(set(counts)) == 1, f"I13 {self.name}: a join stands at", positions)
        return counts[0]

    def _delivered_by(self, outcomes: Iterable[Outcome]) -> dict[Places, list[Outcome]]:
        found: dict[Places, list[Outcome]] = defaultdict(list)
        for one in outcomes:
            found[tuple((c.binding, c.offset) for c in one.provenance.consumed)].append(one)
        require(found.keys() <= self._known.keys(), f"I2 {self.name}: outcomes of no delivery", found.keys())
        return found

    # Exactly-once, at-most-once.

    def _fenced(self, piece: Piece) -> None:
        newest = piece.until or piece.records[-1]
        # At-least-once an old answer may let sequences begin again, so that they are unique in a piece only.
        sequences = [record.sequence for record in piece.records]
        self._transactions = dict(zip(sequences, piece.numbers, strict=True))
        self._by_sequence = defaultdict(list)
        for one in self._within(piece, loose=False):
            self._by_sequence[one.provenance.sequence].append(one)
        attempts = {record.sequence for record in piece.records if isinstance(record, Attempt)}
        strays = [found[0] for sequence, found in self._by_sequence.items() if sequence not in attempts]
        require(not strays, f"I2 {self.name}: outcomes without an attempt", strays[:3])
        if piece.records[0].strategy == AT_MOST_ONCE:
            self._taken(piece)
        else:
            self._chain(piece.records)
            for before, record in pairwise(piece.records):
                if isinstance(record, Attempt):
                    self._attempt(before, record)
        if piece.until is not None:
            require(piece.until.positions == piece.records[-1].positions, f"W7 {self.name}: moved by a change", newest)
            return
        all_there = self._below(newest.positions) == len(self._known) and not in_flight(newest)
        require(all_there, f"I3 {self.name}: {newest.totals} of {len(self._known)} delivered")

    def _taken(self, piece: Piece) -> None:
        """I2, I8, I13, I16: what each record settles was taken by the one before, and the totals add up."""
        base, settled = piece.records[0], set[Places]()
        require(not in_flight(base), f"I16 {self.name}: in flight at the beginning", base.totals)
        for n, (before, record) in enumerate(pairwise(piece.records)):
            name, batch = f"{self.name} #{record.sequence}", record.batch
            require(record.sequence == before.sequence + 1, f"I13 {name}: sequence", before.sequence)
            require(record.step == before.step + batch.taken, f"I13 {name}: step")
            require(record.totals == before.totals.plus(batch), f"I13 {name}: totals", record.totals)
            moved = self._below(record.positions) - self._below(before.positions)
            require(moved == batch.taken, f"I13 {name}: {batch} taken, positions moved by {moved}")
            most = self._simulation.options.max_messages
            require(0 <= in_flight(record) <= most, f"I16 {name}: {in_flight(record)} in flight", record.totals)
            since = piece.arrived[n - 1] if n else -1
            excused = batch.dropped == 0 or self._lost(since, piece.arrived[n + 1])
            require(excused, f"I16 {name}: {batch.dropped} dropped, and no task was lost")
            self._settled(name, base, before, record, settled)
        self._dropped(base, piece.until or piece.records[-1], settled)

    def _lost(self, since: float, until: float) -> bool:
        """Whether the task was lost, or given to a worker, between these two moments."""
        return any(since <= at <= until for at in self._simulation.lost[self.part.name, self._place])

    def _settled(self, name: str, base: Record, before: Record, record: Record, settled: set[Places]) -> None:
        found = self._delivered_by(self._by_sequence.get(record.sequence, ()))
        counts: Counter[str] = Counter()
        begins, ends = ({p.binding: p.offset for p in one.positions} for one in (base, before))
        for places, outcomes in found.items():
            taken = all(begins[binding] <= offset < ends[binding] for binding, offset in places)
            require(taken, f"I2 {name}: an outcome of what was not taken", places)
            require(places not in settled, f"I1 {name}: settled twice", places)
            settled.add(places)
            apart = [one for one in outcomes if one.transaction != self._transactions[record.sequence]]
            require(not apart, f"I2 {name}: an outcome was committed apart from its attempt", apart)
            counts[self._delivered(name, self._known[places], outcomes)] += 1
        batch = record.batch
        require(batch.deliveries == batch.outputs + batch.errors + batch.nils, f"I8 {name}: counts", batch)
        told = Counter({"outputs": batch.outputs, "errors": batch.errors})
        require(+told == +counts, f"I8 {name}: counts", told, counts)

    def _dropped(self, base: Record, end: Record, settled: set[Places]) -> None:
        """I16: what lacks an outcome was dropped; besides that, only what gives nothing may have been."""
        begins, ends = ({p.binding: p.offset for p in one.positions} for one in (base, end))
        between = [
            one
            for one in self._known.values()
            if all(begins[binding] <= offset < ends[binding] for binding, offset in one.places)
        ]
        nil = [one for one in between if outcome(self.part, one.values) == []]
        missing = sum(one.places not in settled for one in between) - len(nil)
        nils = end.totals.nils - base.totals.nils
        dropped = end.totals.dropped - base.totals.dropped
        waiting = in_flight(end)
        require(
            missing + len(nil) - nils == dropped + waiting and nils <= len(nil),
            f"I16 {self.name}: {missing} outcomes are missing, {nils} of {len(nil)} nil; {dropped} dropped",
        )

    def _traced(self, name: str, delivery: Delivery) -> None:
        called = self._simulation.called[self.part.name, delivery.values]
        require(called, f"{name}: {delivery} was delivered and its function never called")

    # At-least-once.

    def _loose(self, piece: Piece, *, last: bool) -> None:
        """I17: what lies below a record, or below the group's offsets, had its outcomes when that arrived."""
        began = piece.arrived[0]
        found = self._delivered_by(self._within(piece, loose=True))
        begins = {p.binding: p.offset for p in piece.records[0].positions}
        for places, outcomes in found.items():
            # Nothing compares the place of a record with an old answer to R3, so an older record may be taken (W5).
            again = self._before(places, begins) and not self._simulation.options.stale
            require(not again, f"W7 {self.name}: an outcome of what another strategy has delivered", places)
            self._right(self._known[places], outcomes)
        complete = {places: self._complete(one, found.get(places, ())) for places, one in self._known.items()}
        for record, at in zip(piece.records, piece.arrived, strict=True):
            batch = record.batch
            require(batch.deliveries == batch.outputs + batch.errors + batch.nils, f"I8 {self.name}: counts", batch)
            self._behind(
                f"record #{record.sequence}", {p.binding: p.offset for p in record.positions}, begins, complete, at
            )
        for at, offsets in self._commits(began, piece.end):
            self._behind("the group", offsets, begins, complete, at)
        if piece.until is not None:
            ends = {p.binding: p.offset for p in piece.until.positions}
            self._behind("the change", ends, begins, complete, piece.end)
        late = [places for places, at in complete.items() if at == inf and not self._before(places, begins)]
        require(not (last and late), f"I17 {self.name}: lost", late[:3])
        self._first_in_order(found)

    @staticmethod
    def _before(places: Places, begins: dict[str, int]) -> bool:
        return any(offset < begins[binding] for binding, offset in places)

    def _right(self, delivery: Delivery, found: Sequence[Outcome]) -> None:
        """I8: each record is one of those that the delivery makes."""
        expected = outcome(self.part, delivery.values)
        for one in found:
            if isinstance(expected, Bad) or one.topic == ERRORS:
                right = one.topic == ERRORS and isinstance(expected, Bad) and one.value.text == str(expected)
            else:
                key = one.key if self.part.rekeys else None
                wanted = {(made.topic, made.value, made.key and made.key.encode()) for made in expected}
                right = (one.topic, one.value, key) in wanted
            require(right, f"I8 {self.name}: {delivery}", expected, one)

    def _complete(self, delivery: Delivery, found: Iterable[Outcome]) -> float:
        """When the last one of its records arrived for the first time; infinite: one is not there."""
        expected = outcome(self.part, delivery.values)
        first: dict[str, float] = {}
        for one in found:
            first[one.topic] = min(one.arrived, first.get(one.topic, inf))
        wanted = [ERRORS] if isinstance(expected, Bad) else [made.topic for made in expected]
        return max((first.get(topic, inf) for topic in wanted), default=-1)

    def _behind(
        self, what: str, ends: dict[str, int], begins: dict[str, int], complete: dict[Places, float], at: float
    ) -> None:
        early = [
            places
            for places, when in complete.items()
            if when > at and all(begins[b] <= offset < ends.get(b, 0) for b, offset in places)
        ]
        require(not early, f"I17 {self.name}: {what} stands behind what has no outcome", early[:3], ends)

    def _commits(self, began: float, end: float) -> Iterator[tuple[float, dict[str, int]]]:
        group = self._simulation.planned[self.part.name].group
        topics = {topic: binding for binding, topic in self._bindings()}
        for at, name, offsets in self._simulation.broker.groups.commits:
            if name == group and began <= at < end:
                mine = {topics[p.topic]: offset for p, offset in offsets.items() if p.partition == self._place}
                if mine:
                    yield at, mine

    def _first_in_order(self, found: dict[Places, list[Outcome]]) -> None:
        """I4: in each partition of each output, first outcomes have the order of the inputs; repeats come behind."""
        firsts: dict[tuple[str, int, str], list[tuple[float, int]]] = defaultdict(list)
        for places, outcomes in found.items():
            for topic in {one.topic for one in outcomes}:
                first = min((one for one in outcomes if one.topic == topic), key=lambda one: one.arrived)
                for binding, offset in places:
                    firsts[topic, first.place[0], binding].append((first.arrived, offset))
        for at, seen in firsts.items():
            offsets = [offset for _, offset in sorted(seen)]
            newest = list(accumulate(offsets, max))
            require(offsets == newest, f"I4 {self.name}: first outcomes out of order in {at}", offsets)


def never_again(calls: Iterable[Traced], *, stale: bool) -> None:
    """
    I15: what user code got at-most-once it does not get again, whatever the strategy is by then.

    Args:
        calls: in order.
        stale: R3 may be answered with an old watermark. Then a task at-least-once may take an older record for the
            newest one, and repeat what was delivered since.
    """
    started: set[str] = set()
    for call in calls:
        repeats = stale and call.strategy == AT_LEAST_ONCE
        require(call.hash not in started or repeats, "I15 started again", call)
        if call.strategy == AT_MOST_ONCE:
            started.add(call.hash)
