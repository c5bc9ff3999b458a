"""A world whose user code looks a table up: what it shows, and that it is no part of any promise but one.

`following` says how the table is read; it runs the shell's code. The table grows at any time, beside the inputs. What a
call has seen is written into its outputs. So an outcome of two calls shows, and so does a table that a task reads
before it is at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cues_kafka.core import effects as do
from tests.proof.model.following import FIRST, TABLE, Following, Look, Reads, entries_behind
from tests.proof.model.states import NET, Lane, Moves, Outcome, Setting, State, Step, Turn, Worker
from tests.proof.model.world import World


class Looked(NamedTuple):
    """
    What a lane keeps of its table.

    Attributes:
        due: how many messages it had when the task began to read its inputs.
        shown: number of messages that the calls of its batch have seen.
    """

    due: int = 0
    shown: int = -1


class TableWorld(World):
    """A setting with `tables`, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._width = 1 if setting.tables == "whole" else setting.partitions
        self._reads = Reads(whole=setting.tables == "whole", width=self._width)

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """See `World`."""
        yield from super()._stages(s, out)
        for p, part in enumerate(self.parts(s)[: self._width]):
            if FIRST + part.table < len(TABLE):
                after = self._put_part(s, p, part._replace(table=part.table + 1))
                out.append(((f"table p{p}", f"has {FIRST + part.table + 1} messages"), False, after))
        yield

    def _come(self, s: State) -> tuple[int, ...]:
        return tuple(FIRST + part.table for part in self.parts(s)[: self._width])

    def first(self) -> State:
        """See `World.first`. Behind it stands what each process keeps of the table."""
        return (*super().first(), *[self.values.number(Following())] * self._workers)

    def _spend(self, s: State, kind: int) -> State | None:
        spent = super()._spend(s, kind)
        return None if spent is None else (*spent, *s[self._faults + 1 :])

    def _following(self, s: State, w: int) -> Following:
        return self.values.items[s[self._faults + 1 + w]]  # type: ignore[return-value]

    def _put_following(self, s: State, w: int, following: Following) -> State:
        at = self._faults + 1 + w
        return (*s[:at], self.values.number(following), *s[at + 1 :])

    def _put_worker(self, s: State, w: int, worker: Worker) -> State:
        """A process keeps its tables while it lives; a task that leaves it says so."""
        before, following = self.worker(s, w), self._following(s, w)
        if worker.deaths != before.deaths:
            following = Following()
        else:
            for p, (was, now) in enumerate(zip(before.lanes, worker.lanes, strict=True)):
                if was is not None and now is None:
                    following = self._reads.left(following, p)
        return self._put_following(super()._put_worker(s, w, worker), w, following)

    def _looked(self, turn: Turn, look: Look) -> State | None:
        """The state behind a read; None: there is no room for its fault."""
        after: State | None = self._put_following(turn.s, turn.w, look.after)
        for _ in range(look.faults):
            after = None if after is None else self._spend(after, NET)
        return after

    def _room(self, s: State) -> int:
        faults = self.faults(s)
        return min(1, faults.net, faults.total)

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        """As `Lane.assign` does it: the table is read to its end before the inputs are."""
        s, w, p, lane, owner, out = turn
        come = self._come(s)
        for look in self._reads.brought_up(self._following(s, w), p, come, self._room(s)):
            after = self._looked(turn, look)
            assert after is not None
            calm = owner and not look.faults
            if look.failed:
                told = self._failed(after, w, p, lane, "a table cannot be read")
                out.append(((self._name(w, p), f"cannot read the table {look.after}"), calm, told))
            else:
                begun = turn._replace(
                    s=after, lane=lane._replace(own=Looked(come[min(p, self._width - 1)])), owner=calm
                )
                super()._begin_to_read(begun, assign)

    def _run(self, turn: Turn, steps: tuple[Step, ...]) -> None:
        """As `Lane._open` does it: what has come of the table is taken before a batch."""
        s, w, p, lane, owner, out = turn
        for look in self._reads.refreshed(self._following(s, w), p, self._come(s), self._room(s)):
            after = self._looked(turn, look)
            assert after is not None
            if look.failed:
                told = self._failed(after, w, p, lane, "a table cannot be read on")
                out.append(((self._name(w, p), "cannot read the table on"), owner and not look.faults, told))
                continue
            looked, wrong = self._seen(lane, look)
            if wrong:
                after = self._put_part(after, p, self.part(after, p)._replace(wrong=wrong))
            super()._run(turn._replace(s=after, lane=lane._replace(own=looked)), steps)

    def _seen(self, lane: Lane, look: Look) -> tuple[Looked, str]:
        looked, wrong = lane.own if isinstance(lane.own, Looked) else Looked(), ""
        if look.offset < looked.due:
            wrong = f"a call sees {look.offset} messages of the table, which had {looked.due} when its task began"
        if look.shown != entries_behind(look.offset):
            wrong = f"a call sees {look.shown} where {look.offset} messages leave {entries_behind(look.offset)}"
        return looked._replace(shown=look.offset), wrong

    def _loose(self, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
        """Outputs say what their call has seen."""
        number, outcomes = super()._loose(lane)
        shown = lane.own.shown if isinstance(lane.own, Looked) else -1
        told = (one._replace(kind=f"{one.kind}{shown}") if one.kind in "of" else one for one in outcomes)
        return number, tuple(told)
