"""A world whose broker dies and comes back without the end of a backing partition's log: a marker, and perhaps more.

A marker that is missing is Kafka's own defect (docs/proof.md). The transaction is open again in this partition, under
the same producer. So the next transaction of that producer goes on with it: its commit commits both, its abort takes
both back. Where more of the end is missing, or the marker of an abort, the broker has lost what it acknowledged.

While something is missing nothing else goes wrong here: a session that ends then finds a transaction that never ends,
or none of what it committed, and an operator must look (R4, R5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from cues_kafka.core.records import Record
from cues_kafka.core.task import Doing
from tests.proof.model.replaying import ReplayWorld
from tests.proof.model.states import COMMITTING, IDLE, NET, Faults, Moves, Part, State

GOES_ON: Final = frozenset({Doing.ASSIGNING, Doing.READY, Doing.CALLING, Doing.BEGINNING, Doing.SENDING_OFFSETS})
"""States of a task whose session has read all that it needs, and whose last transaction, if any, is answered."""


class Lost(NamedTuple):
    """
    What the broker has lost of one task's backing partition.

    Attributes:
        records: those that are committed, and whose marker is missing.
        offsets: the group's, as an abort of the next transaction would leave them.
        gone: the newest committed record is missing too.
        undone: the log before the marker of the abort that came last, while no transaction has followed.
        reopened: the marker of that abort is missing.
    """

    records: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    gone: bool = False
    undone: tuple[int, ...] = ()
    reopened: bool = False

    @property
    def lacks(self) -> bool:
        """Whether something is missing now."""
        return bool(self.records) or self.gone or self.reopened


class MarkerWorld(ReplayWorld):
    """A setting with `forgets`, and everything that can happen in it."""

    def lost(self, part: Part) -> Lost:
        """What is missing of a partition."""
        return part.target if isinstance(part.target, Lost) else Lost()

    def newest(self, part: Part) -> Record | None:
        """The newest committed record, whether or not its marker is there."""
        records = self.lost(part).records
        return self.machine.record(records[-1]) if records else super().newest(part)

    def finished(self, p: int, part: Part) -> bool:
        """Whether nothing is left to deliver; a task whose record is gone refuses to, for good."""
        return self.lost(part).gone or super().finished(p, part)

    def _opened(self, part: Part) -> list[int]:
        return [number for number in super()._opened(part) if number not in self.lost(part).records]

    def _marked(self, part: Part) -> Part:
        lost = self.lost(part)
        after = super()._marked(part._replace(target=None))
        if part.phase == COMMITTING:
            return after
        held = lost.offsets if lost.records else after.held
        return after._replace(held=held, target=Lost(gone=lost.gone, undone=part.log))

    # Faults.

    def _spend(self, s: State, kind: int) -> State | None:
        return None if self._lacks(s) else super()._spend(s, kind)

    def _breaking(self, s: State, faults: Faults, out: Moves) -> None:
        if not self._lacks(s):
            super()._breaking(s, faults, out)

    def _lacks(self, s: State) -> bool:
        """Whether something is missing, and the transaction that decides about it is not decided itself."""
        return any(self.lost(part).lacks and part.phase != COMMITTING for part in self.parts(s))

    def _markers(self, s: State, out: Moves) -> None:
        super()._markers(s, out)
        for p, part in enumerate(self.parts(s)):
            spent = self._spend(s, NET) if self._goes_on(s, p, part) else None
            if spent is not None:
                for how, after in self._forgotten(part):
                    out.append(
                        (
                            (f"broker p{p}", f"dies, and comes back without {how}"),
                            False,
                            self._put_part(spent, p, after),
                        )
                    )

    def _goes_on(self, s: State, p: int, part: Part) -> bool:
        """Whether the task's only session goes on, may write the next transaction, and nothing of it is late."""
        w, group = part.holder, self.group(s)
        lanes = [worker.lanes[p] for worker in self.workers(s)]
        if w < 0 or any(lanes[:w]) or any(lanes[w + 1 :]):
            return False
        lane = lanes[w]
        mine = group.owners[p] == w and group.members[w] and not any(group.revoking)
        late = any(message[1] == p for message in self.net(s))
        return lane is not None and lane.session and mine and not late and self.task(lane).state in GOES_ON

    def _forgotten(self, part: Part) -> Iterator[tuple[str, Part]]:
        lost = self.lost(part)
        if part.phase == IDLE and lost.undone and not lost.lacks:
            yield "the marker of an abort", part._replace(log=lost.undone, target=lost._replace(reopened=True))
        if part.phase != COMMITTING:
            return
        own = self._opened(part)
        decided = self._marked(part)
        open_again = decided._replace(log=part.log)
        records = (*lost.records, *own)
        yield "a marker", open_again._replace(target=Lost(records, decided.held))
        before = lost.offsets if lost.records else part.held
        yield "a marker and the group's", open_again._replace(target=Lost(records, before))
        if not lost.records and decided.held != part.held:  # else no rule sees it: R5 compares offsets
            log = part.log[: part.log.index(own[0] << 1)]
            yield "a record and its marker", decided._replace(log=log, target=Lost(gone=True))
