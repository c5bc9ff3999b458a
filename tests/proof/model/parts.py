"""A world with a target that commits a batch in parts, before Kafka's transaction of all of them (E1).

The row of each part is that of everything since the newest record. Between two parts the row is not locked: another
process may ask the target there, and is then its owner. The next part begins like a batch, with the lock of the row.
"""

from __future__ import annotations

from typing import NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.records import TargetRow
from cues_kafka.core.task import Task
from cues_kafka.core.writing import owner_of
from tests.proof.model.ahead import AheadWorld
from tests.proof.model.machine import offsets_of
from tests.proof.model.outbox import Batch, Open
from tests.proof.model.states import Delivered, Lane, State, Turn


class Between(NamedTuple):
    """A batch of which the target has the first parts; it holds nothing.

    Attributes:
        done: all of its steps, and what became of them.
        kept: how many of them are committed at the target.
    """

    done: Delivered
    kept: int


class PartsWorld(AheadWorld):
    """A setting with a target whose batches may be committed in parts."""

    def _goes_on(self, turn: Turn) -> bool:
        own = turn.lane.own
        if isinstance(own, Between):
            self._between(turn, own)
            return True
        if isinstance(own, Batch) and not own.cut and self._in_parts(turn.lane, own):
            for kept in range(own.kept + 1, len(own.done) + 1):
                self._keep(turn, own, kept)
        return super()._goes_on(turn)

    def _in_parts(self, lane: Lane, batch: Batch) -> bool:
        waits = isinstance(self.machine.effects.items[lane.effect], do.Await)
        return waits and self.task(lane).pipelined and not batch.halt

    def _keep(self, turn: Turn, batch: Batch, kept: int) -> None:
        """The target commits the steps up to here; Kafka's transaction does not come yet."""
        s, w, p, lane, owner, out = turn
        done, database = batch.done[:kept], self.database(s, p)
        written = self._written(s, p, lane, batch._replace(done=done, ends=self._ends(lane, done)))
        after = self._committed(s, p, database, written)
        between = self._put_lane(after, w, p, lane._replace(own=Between(batch.done, kept)))
        assert written.row
        what = f"target: commits a part, steps {written.row.base} to {written.row.step}"
        out.append(((self._name(w, p), what), owner, between))
        late = self._put_database(s, p, database._replace(open=Open(written)))
        variants = [("refuses", s), ("has committed, no answer", after), ("will get the commit late", late)]
        self._lose(s, w, p, lane, "target, a part", *variants, out=out)

    def _between(self, turn: Turn, own: Between) -> None:
        """Kafka's transaction comes now, or the next part."""
        s, w, p, lane, owner, out = turn
        done, who = own.done[: own.kept], self._name(w, p)
        ended = turn._replace(lane=lane._replace(own=None))
        out.append(((who, "commits its parts"), owner, self._told(ended, self._ends(lane, done), done)))
        if own.kept == len(own.done) or self._waits(turn):
            return
        row = self._row(s, p)
        if not self._fits_part(self.task(lane), row, own.kept):
            after = self._failed(s, w, p, lane, "the target is elsewhere")
            out.append(((who, f"finds row {row.step} of owner {row.owner} before its next part"), owner, after))
            return
        batch = Batch(own.done, self._ends(lane, own.done), "", kept=own.kept)
        out.append(((who, "begins the next part"), owner, self._put_lane(s, w, p, lane._replace(own=batch))))

    def _fits_part(self, task: Task, row: TargetRow, kept: int) -> bool:
        assert task.record
        return row.step == task.record.step + kept and row.owner <= owner_of(task)

    def _told(self, turn: Turn, ends: tuple[int, ...], done: Delivered) -> State:
        s, w, p, lane, *_ = turn
        lane = lane._replace(carried=done, fetched=())
        return self._tell(s, w, p, lane, "called", ends, self._counts(done), "")

    def _ends(self, lane: Lane, done: Delivered) -> tuple[int, ...]:
        return self._behind(offsets_of(self.task(lane).positions), tuple(step for step, _ in done))
