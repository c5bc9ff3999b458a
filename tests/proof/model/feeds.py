"""A world whose task is a feed: its messages come from a source, and its records say up to which place (G1 to G3).

`Setting.inputs` is what the source holds. A lane reads it from the place of the record with which its recovery ended,
and on from there. Reading ahead of a commit is left out: what was read ahead is void after a recovery, as what is read
behind it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.feeds import BINDING, RECORD_AND_MARKER
from cues_kafka.core.records import Attempt, Record, Snapshot
from cues_kafka.core.spec import Input, Move, Spec
from tests.proof.model.machine import Facts, Machine, offsets_of
from tests.proof.model.states import Delivered, Part, Setting, State, Turn
from tests.proof.model.world import World


class FeedWorld(World):
    """A setting with `feed`, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        [rows] = setting.inputs
        self.machine = Machine(Facts((Input(BINDING, "g.p.backing"),), (b"a" * 16,), (len(rows),)))

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        return replace(super()._spec(w, deaths, p, move), feed=True, quarantine_after=None)

    def ends(self, record: Record) -> tuple[int, ...]:
        """How far the source was read."""
        return (int(record.place or 0),)

    def finished(self, p: int, part: Part) -> bool:
        """See `Cluster.finished`."""
        record = self.newest(part)
        [rest] = self.rest(self.ends(record)) if record else [self.places[0]]
        return not rest or self.logs(p)[0][rest[0]] == "s"

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        """G1: from the place of the newest record."""
        record = self.task(turn.lane).record
        assert record
        super()._begin_to_read(turn._replace(lane=turn.lane._replace(own=self.ends(record)[0])), assign)

    def _await(self, turn: Turn, _: Any) -> None:
        task = self.task(turn.lane)
        if task.snapshot_due:
            part = self.part(turn.s, turn.p)._replace(wrong="G3: a feed is to announce what it has not read")
            turn.out.append(((self._name(turn.w, turn.p), "announces"), True, self._put_part(turn.s, turn.p, part)))
            return
        for steps in self._cuts(task, self.rest((turn.lane.own,))):
            self._run(turn, steps)

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        """The place is behind the last row that ended."""
        s, w, p, lane, *_ = turn
        place = done[-1][0][0][1] + 1 if done else lane.own
        lane = lane._replace(carried=done, own=place)
        return self._tell(s, w, p, lane, "fed", self._counts(done), halt, str(place) if done else "")

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """G2: the position ends the log behind the transaction that is decided now."""
        [landed] = [i for i, entry in enumerate(part.log) if entry >= 0 and not entry & 1] or [-1]
        if offsets_of(record.positions) != (landed + RECORD_AND_MARKER,):
            return f"G2: position {offsets_of(record.positions)} of a record at {landed}"
        if isinstance(record, Snapshot):
            return "G3: a feed has announced something"
        if isinstance(record, Attempt) and before and self.ends(record) <= self.ends(before):
            return f"G1: place {record.place!r} behind {before.place!r}"
        return super()._chain(before, record, part, killed)
