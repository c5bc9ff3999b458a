"""A processor that moves between workers and Spark: the operator stops the ones and starts the others (D6, J8).

What was stopped may go on: a worker that did not hear of it, and a Spark task whose driver is dead. Its steps are not
calm.
"""

from __future__ import annotations

from cues_kafka.core import effects as do
from tests.proof.model.states import IDLE, MOVE, ONGOING, Lane, Moves, Setting, State, Worker, put
from tests.proof.sessions.joint import JointWorld

WORKERS, ENTERING, SLOTS = range(3)
"""Who has the processor: the workers; a driver that enters its slots; the slots."""


class EnteringWorld(JointWorld):
    """A setting with workers and slots of Spark, of which one kind has the processor."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._at_spark = self._transactions + setting.partitions

    def first(self) -> State:
        """The workers have it, or the slots."""
        begun = (*super().first(), self.values.number((WORKERS,)))
        if self.joint.spark == "enters":
            return begun
        group = self.group(begun)
        return self._put_spark(self._put_group(begun, group._replace(members=(False,) * self._workers)), SLOTS)

    def spark(self, s: State) -> tuple[int, ...]:
        """Who has the processor, and which ids a driver that enters has initialised."""
        return self.values.items[s[self._at_spark]] if self._at_spark < len(s) else (WORKERS,)

    def _put_spark(self, s: State, *spark: int) -> State:
        return put(s, self._at_spark, self.values.number(spark))

    def _moving_on(self, s: State, out: Moves) -> None:
        """The operator lets the other kind have it; and the driver enters its slots."""
        who, *ids = self.spark(s)
        if self._at_spark == len(s):  # the world has not begun
            return
        spent = self._spend(s, MOVE)
        if who == WORKERS and spent is not None:
            stopped = self._expelled(spent, 0) if self.group(s).members[0] else spent
            out.append((("operator", "stops the workers, and starts Spark"), False, self._put_spark(stopped, ENTERING)))
        if who == SLOTS and spent is not None:
            group = self.group(s)
            joined = self._put_group(spent, group._replace(members=put(group.members, 0, True)))
            out.append((("operator", "stops Spark, and starts the workers"), False, self._put_spark(joined, WORKERS)))
        if who == ENTERING:
            self._entering(s, tuple(ids), out)

    def _entering(self, s: State, ids: tuple[int, ...], out: Moves) -> None:
        """J8: the driver initialises the id of each task, and then starts slots."""
        left = [k for k in range(self.setting.partitions) if k not in ids]
        if not left or not self._initialises_all():
            out.append((("driver", "has entered its slots"), True, self._put_spark(s, SLOTS)))
        for k in left if self._initialises_all() else []:
            phase = self.transaction(s, k).phase
            if phase == ONGOING:
                out.append((("driver", f"init of id{k}: the open transaction is aborted"), True, self._fence(s, k)))
            elif phase == IDLE:
                after = self._put_spark(self._taken(s, k, -1), ENTERING, *sorted((*ids, k)))
                out.append((("driver", f"init of id{k}: done"), True, after))

    def _initialises_all(self) -> bool:
        return True

    def _launching(self, s: State, out: Moves) -> None:
        self._moving_on(s, out)
        if self.spark(s)[0] == SLOTS:
            super()._launching(s, out)

    def _noticing(self, s: State, out: Moves) -> None:
        """A worker that was stopped ends when it hears of it."""
        if self.spark(s)[0] == WORKERS:
            super()._noticing(s, out)
            return
        worker = self.worker(s, 0)
        if any(worker.lanes):
            after = self._put_worker(s, 0, Worker(worker.deaths, (None,) * self.setting.partitions))
            out.append((("w0", "hears that it was stopped, and ends"), True, after))

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        """What a Spark task does behind its driver is not calm; and one that failed ends."""
        if self.setting.workers[w] != "slot" or self.spark(s)[0] == SLOTS:
            super()._lane(s, w, p, lane, out)
            return
        effect = self._effect(s, w, p)
        found: Moves = []
        if not isinstance(effect, do.Discard):
            super()._lane(s, w, p, lane, found)
        for label, _, after in found:
            out.append((label, False, after))
