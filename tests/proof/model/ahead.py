"""A world with a target in which user code is called while Kafka's commit of the batch before is under way (P7, E1).

The batch that is called ahead is a `Batch` beside a transaction of Kafka. It holds the row from then on, and its commit
comes only when the lane waits for messages again: then Kafka's commit is known to have happened. If that failed, the
database rolls the batch back, at the latest when the task asks the target. Until then the row stays locked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.records import Attempt, TargetRow
from cues_kafka.core.task import Task
from cues_kafka.core.writing import owner_of
from tests.proof.model.machine import offsets_of
from tests.proof.model.outbox import Batch, OutboxWorld
from tests.proof.model.states import Lane, Moves, State, Turn

_UNDER_WAY = (do.Begin, do.SendOffsets, do.Flush, do.Commit)


class AheadWorld(OutboxWorld):
    """A setting with a target whose batches may be called ahead."""

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        super()._lane(s, w, p, lane, out)
        if lane.effect < 0 or not isinstance(self.machine.effects.items[lane.effect], _UNDER_WAY):
            return
        turn = Turn(s, w, p, lane, False, out)
        if isinstance(lane.own, Batch) and not lane.own.cut and self._commits(lane):
            self._commit_early(turn, lane.own)
        elif lane.own is None and not lane.said and self.task(lane).pipelined:
            self._call_ahead(turn)

    def _commits(self, lane: Lane) -> bool:
        """Whether the target's commit may come now: only when that of Kafka is known."""
        effect = self.machine.effects.items[lane.effect]
        return isinstance(effect, do.Await | do.Call | do.Quarantine)

    def _commit_early(self, turn: Turn, batch: Batch) -> None:
        """What a mutant does."""
        s, w, p, lane, _, out = turn
        task = self.task(lane)
        behind = lane._replace(task=self.machine.tasks.number(_as_committed(task)))
        after = self._committed(s, p, self.database(s, p), self._written(s, p, behind, batch))
        after = self._put_lane(after, w, p, lane._replace(own=None))
        out.append(((self._name(w, p), "target: commits before Kafka's commit is known"), False, after))

    def _call_ahead(self, turn: Turn) -> None:
        s, w, p, lane, _, out = turn
        task, who, row = self.task(lane), self._name(w, p), self._row(s, p)
        if not isinstance(task.pending, Attempt) or self._waits(turn) or not self._fits_ahead(task, row):
            return
        offsets, part = offsets_of(task.pending.positions), self.part(s, p)
        for steps in self._cuts(task, self.rest(offsets, self.highs(part), part.cleaned)):
            for done, halt in self._results(turn, steps):
                if halt == "kill":
                    out.append(
                        (
                            (who, f"calls ahead, which kills its process after {len(done)}"),
                            False,
                            self._dead(s, w, by=p),
                        )
                    )
                elif done and not halt:
                    ends = self._behind(offsets, tuple(step for step, _ in done))
                    after = self._put_lane(s, w, p, lane._replace(own=Batch(done, ends, halt, ahead=True)))
                    out.append(((who, f"calls ahead: {''.join(kind for _, kind in done)}"), False, after))

    def _fits_ahead(self, task: Task, row: TargetRow) -> bool:
        """The row stands where the attempt under way ends: its commit there came before Kafka's transaction."""
        return row.step == task.next_base and row.owner <= owner_of(task)

    def _ask(self, turn: Turn, ask: do.AskTarget) -> None:
        """What was called ahead of a commit that failed is rolled back first."""
        super()._ask(turn._replace(lane=turn.lane._replace(own=None)), ask)

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """A batch that is called ahead stays open beside the transaction of Kafka, and behind one that failed."""
        was = self.machine.effects.items[lane.effect] if lane.effect >= 0 else None
        s = super()._tell(s, w, p, lane, *key)
        after = self.worker(s, w).lanes[p]
        if not isinstance(lane.own, Batch) or after is None or isinstance(was, do.Await | do.Call | do.Quarantine):
            return s
        ended = isinstance(self.machine.effects.items[after.effect], do.Stop)
        return s if ended else self._put_lane(s, w, p, after._replace(own=lane.own))


def _as_committed(task: Task) -> Task:
    return replace(task, record=task.pending, pending=None)
