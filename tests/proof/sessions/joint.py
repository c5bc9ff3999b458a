"""What workers do whose tasks share one session (J1 to J9), beside those that have one for each task.

A task still asks for everything itself: `Init`, `Begin`, `SendOffsets`, `Flush`, `Commit`, `Discard`. The session
answers for all tasks that are in its transaction, in one transition, and an error ends the transaction for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.states import transaction
from cues_kafka.workers.joint.rounds import BeforeLeaving, RoundStage, SessionState, Tasks, rounds_of
from tests.proof.model.machine import offsets_of
from tests.proof.model.states import (
    IDLE,
    NET,
    ONGOING,
    PAST_GATE,
    Lane,
    Moves,
    Outcome,
    Setting,
    State,
    Turn,
    shown,
)
from tests.proof.sessions.session import Sessions
from tests.proof.sessions.states import First, Met


class JointWorld(Sessions):
    """A setting whose native workers have one session each, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._does[do.Begin] = self._begin

    def moves(self, s: State) -> Moves:
        """
        See `World.moves`; a session ends with the task whose id it has.

        Tasks that have returned to R1 come last, those that did so most often behind the others: what holds a task up
        may be the transaction of an id that another task initialises, and a healed world is a fair one.
        """
        self._later: list[tuple[int, Moves]] = []
        found = super().moves(s)
        for _, more in sorted(self._later, key=lambda one: one[0]):
            found += more
        return [(label, calm, self._kept_together(s, after)) for label, calm, after in found]

    def calm(self, s: State) -> State | None:
        """The first calm one of `moves`, without the others: most of the time of a search goes into it."""
        self._later = []
        try:
            self._all_moves(s, First())
        except Met as met:
            return self._kept_together(s, met.after)
        for _, more in sorted(self._later, key=lambda one: one[0]):
            for _, calm, after in more:
                if calm:
                    return self._kept_together(s, after)
        return None

    def _all_moves(self, s: State, out: Moves) -> None:
        """What `World.moves` adds to `out` in a world without faults, of what joint worlds have."""
        self._markers(s, out)
        if self.setting.moves:
            self._operating(s, out)
        self._rebalancing(s, out)
        for w, worker in enumerate(self.workers(s)):
            for p, lane in enumerate(worker.lanes):
                if lane is not None:
                    self._lane(s, w, p, lane, out)
        self._launching(s, out)
        self._noticing(s, out)

    def _kept_together(self, before: State, s: State) -> State:
        """J5: a session without the task of its id is over, and so is a transaction that lacks one of its tasks."""
        for w in range(self._workers):
            if s[w] == before[w] or self.session(s, w).id is None:
                continue
            for q, lane in enumerate(self.worker(s, w).lanes):
                if lane is None:
                    s = self._left(s, w, q)
        return s

    def _dead(self, s: State, w: int, *, by: int | None = None) -> State:
        return self._put_session(super()._dead(s, w, by=by), w, SessionState())

    # A transaction.

    def _begin(self, turn: Turn, effect: Any) -> None:
        """J3: what waits when a transaction begins goes into it; the session has one at a time."""
        s, w, p, *_ = turn
        if self._per_task(s, w):
            self._go_on(turn, effect)
            return
        session = self.session(s, w)
        if session.round:
            return
        if not session.live:
            self._initialise_session(turn)
            return
        waiting = [q for q in range(self.setting.partitions) if isinstance(self._effect(s, w, q), do.Begin)]
        for tasks in rounds_of({q: self.task(self.worker(s, w).lanes[q]) for q in waiting}):  # type: ignore[arg-type]
            if tasks[0] == p:
                self._offers(turn, tasks)

    def _offers(self, turn: Turn, tasks: Tasks) -> None:
        """P5, J3: offsets come first, of all tasks in one request, and the member's generation is looked at there."""
        s, w, _, _, _, out = turn
        told = s
        session = self.session(s, w).begins(tasks)
        for q in tasks:
            told = self._told(told, w, q, "done")
            session = session.asks(q)
        self._offer(self._put_session(told, w, session), w, tasks, turn, out)

    def _send_offsets(self, turn: Turn, _: Any) -> None:
        self._offer(turn.s, turn.w, (turn.p,), turn, turn.out)

    def _offer(self, s: State, w: int, tasks: Tasks, turn: Turn, out: Moves) -> None:
        who, k, calm = f"w{w}/{self._shown(tasks)}", self._id(s, w, tasks[0]), turn.owner
        if not self._has_epoch(s, w, k, tasks):
            out.append(((who, f"offsets under id{k}: fenced"), calm, self._over_for(s, w, tasks, "fenced", k)))
            return
        if self.transaction(s, k).phase not in (IDLE, ONGOING):
            return
        sent = tuple((q, offsets_of(self._effect(s, w, q).positions)) for q in tasks)
        opened = self._opened_here(s, k)
        if not self._is_member(s, w):
            self._refused(opened, w, k, tasks, who, calm=calm, out=out)
            return
        taken = opened
        for q, offsets in sent:
            taken = self._added(taken, k, q, offsets=offsets)
        told = taken
        for q in tasks:
            told = self._told(told, w, q, "done")
        told = self._gone_on(told, w, tasks)
        out.append(((who, f"offsets under id{k}: {dict(sent)}"), calm, told))
        late = self._send(opened, ("offsets", k, w, sent))
        lost = [("lost", s), ("taken, no reply", taken), ("will come late", late)]
        self._wrong(s, w, tasks, "offsets", *lost, out=out)

    def _gone_on(self, s: State, w: int, tasks: Tasks) -> State:
        """J3: the session did what all tasks of the round had asked for, and all of them ask for what comes next."""
        if self._per_task(s, w):
            return s
        session = self.session(s, w).answered()
        for q in tasks:
            session = session.asks(q)
        return self._put_session(s, w, session)

    def _in_round(self, s: State, w: int, p: int, stage: RoundStage) -> Tasks:
        """J3: the tasks for all of which the session does now what this one asks for; empty: it waits for others."""
        if self._per_task(s, w):
            return (p,)
        under_way = self.session(s, w).round
        if under_way is None or under_way.stage is not stage or not under_way.due:
            return ()
        return under_way.tasks if under_way.tasks[0] == p else ()

    def _refused(self, s: State, w: int, k: int, tasks: Tasks, who: str, *, calm: bool, out: Moves) -> None:
        """The worker has left the group. With a session for each task its records may have landed before (P5)."""
        out.append(((who, f"offsets under id{k}: no member any more"), calm, self._over_for(s, w, tasks, "no member")))
        if self._per_task(s, w):
            landed = self._all_written(s, w, k, tasks)
            after = self._over_for(landed, w, tasks, "no member")
            out.append(((who, f"offsets under id{k}: no member any more, and records have landed"), calm, after))

    def _holding(self, s: State, w: int, p: int) -> tuple[int, tuple[Outcome, ...]]:
        lane = self.worker(s, w).lanes[p]
        assert lane is not None
        return self._loose(lane)

    def _all_written(self, s: State, w: int, k: int, tasks: Iterable[int]) -> State:
        """The records of these tasks, and their outcomes, are there."""
        for q in tasks:
            number, outcomes = self._holding(s, w, q)
            s = self._sent_out(self._landed(s, k, q, number), k, q, outcomes)
        return s

    def _flush(self, turn: Turn, _: Any) -> None:
        """P6 of all tasks: what each is told of its own records."""
        s, w, p, _, calm, out = turn
        tasks = self._in_round(s, w, p, RoundStage.RECORDS)
        if not tasks:
            return
        who, k = f"w{w}/{self._shown(tasks)}", self._id(s, w, p)
        if not self._has_epoch(s, w, k, tasks):
            out.append(((who, f"produce under id{k}: fenced"), calm, self._over_for(s, w, tasks, "fenced", k)))
            return
        if self.transaction(s, k).phase not in (IDLE, ONGOING):
            return
        refused = tuple(q for q in tasks if self._is_refused(s, w, q))
        full = self._all_written(s, w, k, tasks)
        what = "; ".join(f"p{q} {shown(self.machine.record(self._holding(s, w, q)[0]))}" for q in tasks)
        out.append(((who, f"produce under id{k}: {what}"), calm, self._reported(s, full, w, tasks, missing=refused)))
        if self._spend(s, NET) is None:
            return
        for q in tasks:
            number, outcomes = self._holding(s, w, q)
            others = self._all_written(s, w, k, [other for other in tasks if other != q])
            added = self._sent_out(self._added(others, k, q, backing=True), k, q, outcomes)
            late = [("record", self._send(added, ("record", k, q, number)))]
            if outcomes:
                late.append(("outcomes", self._send(self._landed(others, k, q, number), ("outcomes", k, q, outcomes))))
            for kind, world in late:
                spent = self._spend(world, NET)
                assert spent
                first = -1 if kind == "record" else len(self.part(s, q).log)
                after = self._reported(s, spent, w, tasks, missing=(q,), first=first)
                out.append(((who, f"produce: the {kind} of p{q} will come late"), False, after))
        lost = [("lost", s), ("written, no reply", full)]
        if len(tasks) > 1:
            lost += [(f"p{q} is written, no reply", self._all_written(s, w, k, (q,))) for q in tasks]
        self._wrong(s, w, tasks, "produce", *lost, out=out)

    def _is_refused(self, s: State, w: int, p: int) -> bool:
        """Whether the broker takes no output of this batch."""
        _, outcomes = self._holding(s, w, p)
        return p > 0 and any((0, self.joint.refused) in outcome.step for outcome in outcomes)

    def _reported(
        self, before: State, after: State, w: int, tasks: Tasks, *, missing: Tasks, first: int | None = None
    ) -> State:
        """P6, P6a: each task hears of its own records; where one does not go on, the transaction ends for all."""
        for q in tasks:
            count = 1 + len(self._holding(before, w, q)[1])
            high: int | None = len(self.part(before, q).log)
            delivered = count
            if q in missing:
                delivered = count - 1
                high = None if first == -1 else high
            if high is not None and self._is_below(after, w, q, high):
                after = self._told(after, w, q, "failed", "a marker of a session before is missing", False)
            else:
                after = self._told(after, w, q, "flushed", delivered, count, high)
        going = [q for q in tasks if isinstance(self._effect(after, w, q), do.Commit)]
        if len(going) == len(tasks):
            return self._gone_on(after, w, tasks)
        return self._over_for(after, w, tasks, "records of another task are not right")

    def _is_below(self, s: State, w: int, p: int, place: int) -> bool:
        """P6b, J4: only behind a commit of the same session the commit of this one would write the missing marker."""
        lane = self.worker(s, w).lanes[p]
        assert lane is not None
        task = self.task(lane)
        below = task.follows and place == task.expected - transaction.MARKER
        return below and not (self._per_task(s, w) or self.session(s, w).knows_marker(p))

    def _commit(self, turn: Turn, _: Any) -> None:
        """P7 of all tasks."""
        s, w, p, _, calm, out = turn
        tasks = self._in_round(s, w, p, RoundStage.COMMIT)
        if not tasks:
            return
        who, k = f"w{w}/{self._shown(tasks)}", self._id(s, w, p)
        if not self._has_epoch(s, w, k, tasks):
            out.append(((who, f"commit under id{k}: fenced"), calm, self._over_for(s, w, tasks, "fenced", k)))
            return
        if self.transaction(s, k).phase not in (IDLE, ONGOING):
            return
        ended = self._ended(s, k)
        out.append(((who, f"commit under id{k}: done"), calm, self._answered(ended, w, tasks, None)))
        variants = [("lost", s), ("done, no reply", ended), ("will come late", self._send(s, ("end", k)))]
        self._wrong(s, w, tasks, "commit", *variants, out=out)
        spent = self._spend(ended, NET)
        if spent is not None:
            out.append(((who, "commit: done, no reply, asks again"), False, spent))
            told = self._answered(self._send(spent, ("end", k)), w, tasks, "repeated")
            out.append(((who, "commit: done at the second try, the first will come late"), False, told))

    def _answered(self, s: State, w: int, tasks: Tasks, suspect: str | None) -> State:
        """P8, J4: behind a suspect commit only the session is another one: what the commit did is known."""
        joint = not self._per_task(s, w)
        if joint:
            s = self._put_session(s, w, self.session(s, w).concluded(suspect=bool(suspect)))
        for q in tasks:
            s = self._told(s, w, q, "committed", None if joint else suspect)
        return s

    # The group.

    def _fetch_offsets(self, turn: Turn, effect: Any) -> None:
        """R2: offsets that the transaction of any id holds are not stable."""
        s, w, p, lane, owner, out = turn
        if self._pending(s, p) and self._require_stable():
            out.append(
                ((self._name(w, p), "group offsets: not stable"), owner, self._failed(s, w, p, lane, "unstable"))
            )
            return
        super()._fetch_offsets(turn, effect)

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        """A3, J5: a revocation of the task whose id the session has waits for the session: its round, and an init."""
        group = self.group(s)
        if self.task(lane).state not in PAST_GATE:
            revoked = group.owners[p] == w and group.revoking[p] and group.members[w] and not lane.said
            waits = self._leaving(s, w, p) if revoked else BeforeLeaving.NOTHING
            if waits is BeforeLeaving.SESSION:
                self._initialise(Turn(s, w, p, lane, owner=True, out=out), p, own=True)
            if waits is not BeforeLeaving.NOTHING:
                return
        rounds, found = self.task(lane).rounds, out
        if rounds:
            found = []
            self._later.append((rounds, found))
        super()._lane(s, w, p, lane, found)

    def _rebalancing(self, s: State, out: Moves) -> None:
        """A new generation: requests on their way that bear the former one are refused."""
        found: Moves = []
        super()._rebalancing(s, found)
        for label, calm, after in found:
            changed = "acknowledges" in label[1]
            out.append((label, calm, self._regenerated(after) if changed else after))
        for w in range(self._workers):
            self._renewing(s, w, out)

    def _regenerated(self, s: State) -> State:
        return self._put_net(s, tuple(m for m in self.net(s) if m[0] != "offsets"))
