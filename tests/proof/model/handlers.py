"""A world whose task keeps its state in a handler of the user's: what the shell tells it, and when (R4b, P7, P8).

`handling` says how a batch goes; it runs the shell's code. Here is what the lane does around it: a recovery makes void
what the handler holds, a batch is told of its commit, and a handler that failed stops the task, which is tried again.
"""

from __future__ import annotations

from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.records import Attempt
from cues_kafka.core.task import Doing, Task
from cues_kafka.state.handlers import Standing
from tests.proof.model.handling import Asked, Calling, Kept, Went
from tests.proof.model.machine import offsets_of
from tests.proof.model.states import NET, Lane, Setting, State, Step, Turn
from tests.proof.model.stores import Value
from tests.proof.model.world import World


class HandlerWorld(World):
    """A setting with `handlers`, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._calling = Calling(self._spec(0, 0, 0), asks="c" in setting.inputs[0])

    def _kept(self, lane: Lane) -> Kept:
        kept = lane.own
        return kept if isinstance(kept, Kept) else Kept()

    def _value(self, p: int, lane: Lane) -> Value:
        return self._kept(lane).value if lane.carried else lane.store.value

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """As the lane settles a batch: its handler hears of the commit, once the task's record shows it."""
        kept, task = self._kept(lane), self.task(lane)
        if key == ("committed", None) and isinstance(task.pending, Attempt):
            lane = lane._replace(own=self._settled_behind(kept, task.pending))
        return super()._tell(s, w, p, lane, *key)

    def _settled_behind(self, kept: Kept, record: Attempt) -> Kept:
        if record.sequence != kept.sealed:
            return kept
        standing = kept.standing.committed(record.sequence)
        return kept._replace(standing=standing, sealed=-1, value=(), row=0)

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        """As `Lane.assign` does it; a commit without an answer may have been one."""
        task, kept = self.task(turn.lane), self._kept(turn.lane)
        kept = kept._replace(standing=self._voided(task, kept.standing), retrying=False)
        record = task.record
        if isinstance(record, Attempt) and record.writer == task.spec.writer:
            kept = self._settled_behind(kept, record)
        own = kept._replace(sealed=-1, value=())
        super()._begin_to_read(turn._replace(lane=turn.lane._replace(own=own)), assign)

    def _voided(self, task: Task, standing: Standing) -> Standing:
        return standing.voided(initial=not (task.record and task.record.stores))

    def _stopped(self, turn: Turn, stop: do.Stop) -> None:
        """A task whose handler failed is tried again, too."""
        s, w, p, lane, owner, out = turn
        lane = lane._replace(own=self._kept(lane)._replace(row=0))
        if stop.halt.kind != "unhandled":
            super()._stopped(turn._replace(lane=lane), stop)
            return
        after = self._tell(s, w, p, lane, "assigned", True)
        out.append(((self._name(w, p), "tries again after its handler failed"), owner, after))

    def _run(self, turn: Turn, steps: tuple[Step, ...]) -> None:
        """User code for these steps, in one chunk or with the first one alone: every way in which it can end."""
        wrong = self._identified(self.task(turn.lane), steps)
        chunks = {1, len(steps)}
        ways = [went for chunk in sorted(chunks) for went in self._ways(turn, steps, chunk)]
        for went in dict.fromkeys(ways):
            self._gone(turn, steps, went._replace(wrong=went.wrong or wrong))

    def _ways(self, turn: Turn, steps: tuple[Step, ...], chunk: int, *, quarantine: bool = False) -> tuple[Went, ...]:
        faults, record = self.faults(turn.s), self.task(turn.lane).record
        assert record
        asked = Asked(
            kept=self._kept(turn.lane),
            committed=turn.lane.store.value,
            record=record.sequence,
            begun=bool(record.stores),
            steps=steps,
            kinds="".join(self._kind(turn.p, step) for step in steps),
            chunk=chunk,
            room=min(faults.net, faults.total),
            quarantine=quarantine,
        )
        return self._calling.ways(asked)

    def _gone(self, turn: Turn, steps: tuple[Step, ...], went: Went) -> None:
        s, w, p, lane, owner, out = turn
        task, who = self.task(lane), self._name(w, p)
        after: State | None = s
        for _ in range(went.faults):
            assert after is not None
            after = self._spend(after, NET)
        assert after is not None
        if went.wrong:
            after = self._put_part(after, p, self.part(after, p)._replace(wrong=f"R4b: {went.wrong}"))
        if went.killed >= 0:
            after = self._dead(after, w, by=p)
            out.append(((who, f"calls user code, which kills its process after {went.killed}"), owner, after))
            return
        kinds = "".join(kind for _, kind in went.carried)
        lane = lane._replace(carried=went.carried, fetched=(), own=went.kept)
        if not went.carried and went.halt == "retry" and task.state is Doing.READY:
            after = self._put_lane(after, w, p, lane)
        else:
            ended = steps[: len(went.carried)]
            ends = self._behind(offsets_of(task.positions), ended) if ended else ()
            after = self._tell(after, w, p, lane, "called", ends, went.totals, went.halt)
        what = f"calls user code: {kinds or 'nothing'} {went.halt}, {went.faults} faults of it or its handler"
        out.append(((who, what), owner and not went.faults, after))

    def _quarantine(self, turn: Turn, quarantine: do.Quarantine) -> None:
        task = self.task(turn.lane)
        steps = self._due(task, 1, quarantine.choice)
        if self._behind(offsets_of(task.positions), steps) != offsets_of(quarantine.ends):
            super()._quarantine(turn, quarantine)
            return
        for went in self._ways(turn, steps, 1, quarantine=True):
            taken = tuple((step, "q") for step, _ in went.carried)
            self._gone(turn, steps, went._replace(carried=taken))
