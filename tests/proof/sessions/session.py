"""The session of a process: what it initialises, and who hears that it is over (J1, J2, J4).

What it is, and what each event makes of it, is production code: `cues_kafka.workers.joint.rounds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.workers.joint.rounds import BeforeLeaving, RecoveryInit, Tasks
from tests.proof.model.states import IDLE, NET, ONGOING, Moves, State, Turn
from tests.proof.sessions.tools import Tools


class Sessions(Tools):
    """Native workers that have one session each."""

    def _per_task(self, s: State, w: int) -> bool:
        """Whether a worker has a session for each of its tasks: a former release, a slot of Spark, a tool."""
        if self.setting.workers[w] != "native":
            return True
        return w in self.joint.former and not (self.joint.upgraded and self.worker(s, w).deaths)

    # Who is told what.

    def _effect(self, s: State, w: int, p: int) -> Any:
        lane = self.worker(s, w).lanes[p]
        return self.machine.effects.items[lane.effect] if lane is not None and lane.effect >= 0 else None

    def _told(self, s: State, w: int, p: int, *key: Any) -> State:
        lane = self.worker(s, w).lanes[p]
        assert lane is not None
        return self._tell(s, w, p, lane, *key)

    def _recover(self, s: State, w: int, tasks: Iterable[int], why: str, fenced: int | None = None) -> State:
        """J4: these tasks go back to R1, but for those that do already. `fenced`: the id that was taken."""
        for q in tasks:
            effect = self._effect(s, w, q)
            if effect is not None and not isinstance(effect, do.Discard | do.Stop):
                s = self._told(s, w, q, "failed", why, q == fenced)
        return s

    def _over_for(self, s: State, w: int, tasks: Tasks, why: str, fenced: int | None = None) -> State:
        """P8, J4: the session is discarded, and all tasks of its transaction fail."""
        if not self._per_task(s, w):
            session, failed = self.session(s, w).failed()
            s, tasks = self._put_session(s, w, session), failed or tasks
        return self._recover(s, w, tasks, why, fenced)

    def _left(self, s: State, w: int, p: int) -> State:
        """J4, J5: a task is gone; what its session is without it, and which tasks recover."""
        session, failed = self.session(s, w).left(p)
        return self._recover(self._put_session(s, w, session), w, failed, "a task of the session is gone")

    def _wrong(self, s: State, w: int, tasks: Tasks, what: str, *after: tuple[str, State], out: Moves) -> None:
        """Variants of a request that went wrong."""
        for how, world in after:
            spent = self._spend(world, NET)
            if spent is not None:
                label = f"w{w}/{self._shown(tasks)}", f"{what}: {how}"
                out.append((label, False, self._over_for(spent, w, tasks, "no answer")))

    @staticmethod
    def _shown(tasks: Tasks) -> str:
        return "+".join(f"p{q}" for q in tasks)

    # The session.

    def _id(self, s: State, w: int, p: int) -> int:
        k = self.session(s, w).id
        return p if self._per_task(s, w) or k is None else k

    def _has_epoch(self, s: State, w: int, k: int, tasks: Tasks) -> bool:
        """Whether the session was initialised last of all under this id."""
        lane = self.worker(s, w).lanes[tasks[0]]
        live = lane is not None and lane.session if self._per_task(s, w) else self.session(s, w).live
        return live and self.part(s, k).holder == w

    def _open_elsewhere(self, s: State, p: int) -> bool:
        """Whether the session that has a transaction open under the id still has an owner."""
        holder = self.part(s, p).holder
        if holder < 0 or self._per_task(s, holder):
            return super()._open_elsewhere(s, p)
        session = self.session(s, holder)
        return session.live and session.id == p

    def _init(self, turn: Turn, effect: Any) -> None:
        """J2: the own id, and beside it the id of each task that recovers."""
        s, w, p, *_ = turn
        if self._per_task(s, w):
            if self._is_initialised(s, w, p):
                self._asked(turn)
            elif self.setting.workers[w] != "tool" or self._all_ended(turn):
                self._initialise(turn, p, own=True)
            return
        what = self.session(s, w).ends(p)
        if what is RecoveryInit.THROWAWAY:
            self._initialise(turn, p, own=False)
        elif what is RecoveryInit.SESSION:
            self._initialise_session(turn)

    def _initialise_session(self, turn: Turn) -> None:
        """J1: with its id, or with one that it takes; of the tasks that need it, the first one has it done."""
        s, w, p, *_ = turn
        session = self.session(s, w)
        if session.live or self._first_to_ask(s, w) == p:
            owned = [q for q, lane in enumerate(self.worker(s, w).lanes) if lane is not None]
            ids = session.ids(owned)
            for k in ids if self.joint.any_id else ids[:1]:
                self._initialise(turn, k, own=True)

    def _renewing(self, s: State, w: int, out: Moves) -> None:
        """J4: a session that was discarded is initialised again, also if no task of the process asks for that."""
        session = self.session(s, w)
        if not session.renews or session.id is None or self._first_to_ask(s, w) >= 0:
            return
        k, group = session.id, self.group(s)
        lane = self.worker(s, w).lanes[k]
        if lane is not None:
            self._initialise(Turn(s, w, k, lane, group.owners[k] == w and group.members[w], out), k, own=True)

    def _first_to_ask(self, s: State, w: int) -> int:
        """Of the tasks that need a session now."""
        asks = (q for q in range(self.setting.partitions) if isinstance(self._effect(s, w, q), do.Init | do.Begin))
        return next(asks, -1)

    def _initialise(self, turn: Turn, k: int, *, own: bool) -> None:
        """R1: InitProducerId of id `k`; an init that is not for the own session leaves none behind."""
        s, w, p, lane, owner, out = turn
        what = f"init of id{k}" if own else f"throwaway init of id{k}"
        who, phase = self._name(w, p), self.transaction(s, k).phase
        joint = own and not self._per_task(s, w)
        if phase == ONGOING:
            alive = self._open_elsewhere(s, k)
            if not (alive and lane.aborted):
                after = self._put_lane(s, w, p, lane._replace(aborted=alive))
                out.append(((who, f"{what}: the open transaction is aborted"), owner, self._fence(after, k)))
            return
        if phase != IDLE:
            return
        taken = self._taken(self._claimed(s, w, k) if k == p else s, k, w if own else -1)
        named = self.session(s, w).takes(k) if joint else self.session(s, w)
        if joint:
            taken = self._put_session(taken, w, named.initialised())
        waits = isinstance(self._effect(s, w, p), do.Init)
        told = taken
        if waits and self._asks(w):
            told = self._put_lane(taken, w, p, lane._replace(session=True))
        elif waits and (k == p or self._per_task(s, w)):
            told = self._tell(taken, w, p, lane._replace(session=self._per_task(s, w)), "initialised")
        out.append(((who, f"{what}: done"), owner, told))
        if not waits:
            return
        dead = self._put_session(s, w, named.failed()[0]) if joint else s
        variants = [("applied, no reply", self._taken(dead, k, -1)), ("will come late", self._send(dead, ("init", k)))]
        for how, after in variants:
            spent = self._spend(after, NET)
            if spent is not None:
                out.append(((who, f"{what}: {how}"), False, self._told(spent, w, p, "failed", "no answer", False)))

    # Slots of Spark.

    def _asks(self, w: int) -> bool:
        """J8: a slot asks for the members of the group, behind its init."""
        return self.setting.workers[w] == "slot"

    def _is_initialised(self, s: State, w: int, p: int) -> bool:
        """Whether a slot has its session, and asks next."""
        lane = self.worker(s, w).lanes[p]
        return self._asks(w) and lane is not None and lane.session

    def _asked(self, turn: Turn) -> None:
        """J8: a worker has the task, or will get it, and may have recovered before the init; it saw nothing of that."""
        s, w, p, lane, owner, out = turn
        who = self._name(w, p)
        if any(self.group(s).members):
            out.append(((who, "asks for members: there are some, and gives up"), owner, self._put_lane(s, w, p, None)))
        else:
            out.append(((who, "asks for members: there are none"), owner, self._tell(s, w, p, lane, "initialised")))

    # Leaving.

    def _leaving(self, s: State, w: int, p: int) -> BeforeLeaving:
        """J5: what comes before a revoked task may leave."""
        return BeforeLeaving.NOTHING if self._per_task(s, w) else self.session(s, w).leaves(p)
