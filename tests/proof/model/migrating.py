"""Worlds whose operator migrates a processor to a declaration with other inputs, beside workers of both declarations.

The first worker has the former declaration, the second one the new one, which has one input more (`wider`) or one less
(`narrower`). Both are in one group, and own the same tasks. Where a task goes on is decided by the code of the
operator's command, `operate.move.migrate`; the tool moves the task as any other move (X2).

The operator stops workers, or believes so, and runs the tool until it is done; at the price of a fault a worker of
either declaration is started too early, or again. A task that holds more than positions is delivered first, by the
former declaration. The judge takes the outcomes of before and behind the migration together: an input that stays has
no gap and no repeat, an added one is delivered from its beginning, and of a dropped one nothing comes any more.

With a target (E1) the task is not moved while the target is ahead of Kafka. The command looks before it plans, and the
tool asks the target, which ends former owners there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Move, Spec
from cues_kafka.errors import RecoveryError
from cues_kafka.operate.move import migrate as migrating
from tests.proof.model.machine import Facts, offsets_of
from tests.proof.model.outbox import Batch, Contents, OutboxWorld
from tests.proof.model.states import (
    COMMITTING,
    IDLE,
    Lane,
    Moves,
    Part,
    Setting,
    State,
    Step,
    Turn,
    Worker,
    shown,
)
from tests.proof.model.versions import FORMER, LATTER, TOOL, VersionsWorld

WIDER, NARROWER = "wider", "narrower"
CHANGES: Final = frozenset({WIDER, NARROWER})
"""Kinds of the second worker: the last input of the world is added, or dropped."""

BUSY: Final = None
"""A task that the former declaration must deliver first."""


class Declared(NamedTuple):
    """The world as a task of one declaration sees it."""

    setting: Setting
    bindings: tuple[str, ...]
    places: list[tuple[int, ...]]
    facts: Facts


class MigratedWorld(VersionsWorld):
    """A setting with a worker of the kind `wider` or `narrower`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        whole = len(setting.inputs)
        before, behind = (whole - 1, whole) if setting.workers[LATTER] == WIDER else (whole, whole - 1)
        self.widths = (before, behind, behind)
        self._views = {count: self._declared(count) for count in (before, behind)}

    def _declared(self, count: int) -> Declared:
        """The world with its first inputs alone."""
        single = {"pairing": "single"} if count == 1 else {}
        facts = self.machine.facts
        return Declared(
            replace(self.setting, inputs=self.setting.inputs[:count], **single),  # type: ignore[arg-type]
            self.bindings[:count],
            self.places[:count],
            facts._replace(inputs=facts.inputs[:count], ids=facts.ids[:count], high=facts.high[:count]),
        )

    @contextmanager
    def _seen_with(self, count: int) -> Iterator[None]:
        """Everything here speaks of this many inputs; in between, of all."""
        whole = Declared(self.setting, self.bindings, self.places, self.machine.facts)
        self.setting, self.bindings, self.places, self.machine.facts = self._views[count]
        try:
            yield
        finally:
            self.setting, self.bindings, self.places, self.machine.facts = whole

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        with self._seen_with(self.widths[w]):
            return super()._spec(w, deaths, p, move)

    def first(self) -> State:
        """The former worker has its tasks, and each of them has its first record."""
        s = super().first()
        s = self._put_group(s, self.group(s)._replace(members=(True, False, False)))
        while not all(self.newest(part) for part in self.parts(s)):
            s = next(after for (who, _), calm, after in self.moves(s) if calm and who != "operator")
        return s

    # What a task of one declaration does.

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        with self._seen_with(self.widths[w]):
            super()._lane(s, w, p, lane, out)

    def _held_by(self, part: Part) -> tuple[int, ...]:
        count = len(self.bindings)
        return (*part.held, *(None,) * count)[:count]  # type: ignore[return-value]  # an added input has none

    def _marked(self, part: Part) -> Part:
        """The group keeps the offsets of an input that is not declared any more."""
        after = super()._marked(part)
        kept = part.held[len(part.pending) :] if part.phase == COMMITTING and part.pending else ()
        return after._replace(held=after.held + kept)

    def _begun_anew(self, part: Part, record: Record) -> Part:
        """What was delivered before counts, and an added input is due from its first message on."""
        return part._replace(mover=record.writer.incarnation)

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """I13; only the tool changes the inputs of a task."""
        former = before and {p.binding for p in before.positions}
        if former and former != {p.binding for p in record.positions} and record.writer.runtime != "tool":
            return f"X2: {shown(record)} has other inputs than the record before it"
        return super()._chain(before, record, part, killed)

    def finished(self, p: int, part: Part) -> bool:
        """Whether the declared inputs have no message left."""
        record = self.newest(part)
        with self._seen_with(len(record.positions) if record else self.widths[FORMER]):
            return super().finished(p, part)

    def done(self, s: State) -> bool:
        """Also, all tasks have the new inputs."""
        migrated = all((record := self.newest(part)) and not self._former(record) for part in self.parts(s))
        return migrated and super().done(s)

    # What must hold.

    def judged(self, part: Part, record: Record, steps: list[Step]) -> str:
        """I2, I3, I13 over both declarations: a dropped input has outcomes up to the group's last offset of it."""
        positions, ends, totals = offsets_of(record.positions), part.held, record.totals
        if part.phase == IDLE and ends[: len(positions)] != positions:
            return f"I2: group offsets {ends} beside positions {positions}"
        below = [sum(offset < end for offset in row) for row, end in zip(self.places, ends, strict=False)]
        if not record.step == totals.taken == totals.deliveries == totals.outputs + totals.errors + totals.nils:
            return f"I13: {record.step} steps beside {totals}"
        if totals.deliveries != sum(below):
            return f"I3, I13: {below} messages lie below {ends}, the record counts {totals}"
        if len(steps) != totals.outputs + totals.errors:
            return f"I2, I3: {len(steps)} deliveries have outcomes, the record counts {totals}"
        if any(offset >= ends[b] for step in steps for b, offset in step):
            return f"I2: an outcome above the position {ends}"
        return ""

    # The operator.

    def _former(self, record: Record) -> bool:
        return len(record.positions) != self.widths[LATTER]

    def planned(self, s: State) -> list[Move | None] | None:
        """What the command plans for each task, by the production rule; `BUSY`: one of them has to deliver first."""
        name = self.bindings[-1]
        gained = self.widths[LATTER] > self.widths[FORMER]
        add, drop = ({name: migrating.EARLIEST}, []) if gained else ({}, [name])
        moves: list[Move | None] = []
        for p, part in enumerate(self.parts(s)):
            record = self.newest(part)
            if record is None:
                moves.append(None)
                continue
            spec = self._spec(TOOL, 0, p)
            inputs = {
                i.binding: InputFacts(id_, 0, high, high)
                for i, id_, high in zip(*self._views[self.widths[TOOL]].facts[:3], strict=True)
            }
            try:
                positions = migrating.positions_of(spec, record, inputs, add, drop)
            except RecoveryError:
                return BUSY
            moves.append(None if positions is None else Move(after=record.sequence, positions=positions))
        return moves

    def _operating(self, s: State, out: Moves) -> None:
        """Stop the workers, run the tool until it is done, and start the new ones."""
        group, tool = self.group(s), self.worker(s, TOOL)
        if not any(tool.lanes):
            moves = self.planned(s)
            if not all(self.newest(part) for part in self.parts(s)) or moves is BUSY:
                self._start_instead(s, FORMER, LATTER, out)
            elif not any(moves):
                self._start_instead(s, LATTER, FORMER, out)
            elif any(group.members):
                out.append((("operator", "stops the workers"), True, self._without(s, FORMER, LATTER)))
            elif tool.deaths < self.setting.moves:
                lives = tool.deaths + 1
                lanes = [
                    None if move is None else Lane(self.machine.new(self._spec(TOOL, lives, p, move)))
                    for p, move in enumerate(moves)
                ]
                after = self._put_worker(s, TOOL, Worker(lives, tuple(lanes)))
                out.append((("operator", "runs the tool"), True, after))
        self._start_early(s, out)

    def _start_early(self, s: State, out: Moves) -> None:
        for w in (FORMER, LATTER):
            self._start(s, w, out, calm=False)

    def _start_instead(self, s: State, wanted: int, other: int, out: Moves) -> None:
        """The operator lets workers of one declaration run, and no others."""
        if self.group(s).members[other]:
            out.append((("operator", f"stops w{other}"), True, self._without(s, other)))
        else:
            self._start(s, wanted, out, calm=True)

    def _without(self, s: State, *workers: int) -> State:
        for w in workers:
            s = self._expelled(s, w) if self.group(s).members[w] else s
        return s

    def _stopped(self, turn: Turn, stop: do.Stop) -> None:
        """The healed world does not wait for a worker that refuses over the inputs: the operator stops it."""
        own = self.newest(self.part(turn.s, turn.p))
        refuses = turn.w != TOOL and own is not None and self.widths[turn.w] != len(own.positions)
        super()._stopped(turn._replace(owner=turn.owner and not refuses), stop)


class MigratedOutboxWorld(MigratedWorld, OutboxWorld):
    """The same with a target."""

    def _written(self, s: State, p: int, lane: Lane, batch: Batch) -> Contents:
        with self._seen_with(len(self.task(lane).spec.inputs)):
            return super()._written(s, p, lane, batch)

    def _waits(self, turn: Turn) -> bool:
        """A bound: a worker that was stopped ends what holds the row once, or it could do so until it hears of it."""
        if turn.owner:
            return super()._waits(turn)
        s, w, p, lane, _, out = turn
        holder = self._holder(s, p, w)
        if holder and not lane.aborted:
            after = self._put_lane(self._cut(s, p, w), w, p, lane._replace(aborted=True))
            out.append(((self._name(w, p), f"ends {holder}, which holds the row"), False, after))
        return bool(holder)

    def planned(self, s: State) -> list[Move | None] | None:
        """Also, the former declaration completes what the target is ahead with."""
        moves = super().planned(s)
        return BUSY if any(self._is_ahead(s, p, part) for p, part in enumerate(self.parts(s))) else moves

    def _is_ahead(self, s: State, p: int, part: Part) -> bool:
        record = self.newest(part)
        return record is not None and self._former(record) and self._row(s, p).step > record.step
