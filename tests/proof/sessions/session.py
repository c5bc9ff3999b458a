"""The session of a process: whose id it has, who initialises it, and who hears that it is over (J1, J2, J4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cues_kafka.core import effects as do
from tests.proof.model.states import COMMITTING, IDLE, NET, ONGOING, Moves, State, Turn, Worker
from tests.proof.sessions.states import Session
from tests.proof.sessions.tools import Tools

Tasks = tuple[int, ...]


class Sessions(Tools):
    """Native workers that have one session each."""

    def _per_task(self, s: State, w: int) -> bool:
        """Whether a worker has a session for each of its tasks: a former release, a slot of Spark, a tool."""
        if self.setting.workers[w] != "native":
            return True
        return w in self.joint.former and not (self.joint.upgraded and self.worker(s, w).deaths)

    def _retired(self, s: State, w: int) -> State:
        session = self.session(s, w)
        s = self._over_for(s, w, session.inside, "the id is gone")
        s = self._over_for(s, w, self._unmarked(s, session), "markers of the former id may be missing")
        return self._forgotten(self._put_session(s, w, Session()), w)

    def _unmarked(self, s: State, session: Session) -> Tasks:
        """J4: the tasks of the last transaction, if the id is given up before the markers of it are written."""
        return session.last if self.transaction(s, session.id).phase == COMMITTING else ()

    def _forgotten(self, s: State, w: int) -> State:
        """J4: what a task expects is of a session before; `Lane.session` says whether it is of this one."""
        deaths, lanes = self.worker(s, w)
        return self._put_worker(s, w, Worker(deaths, tuple(lane and lane._replace(session=False) for lane in lanes)))

    # Who is told what.

    def _effect(self, s: State, w: int, p: int) -> Any:
        lane = self.worker(s, w).lanes[p]
        return self.machine.effects.items[lane.effect] if lane is not None and lane.effect >= 0 else None

    def _told(self, s: State, w: int, p: int, *key: Any) -> State:
        lane = self.worker(s, w).lanes[p]
        assert lane is not None
        return self._tell(s, w, p, lane, *key)

    def _over_for(self, s: State, w: int, tasks: Iterable[int], why: str, fenced: int = -1) -> State:
        """P8, J4: the session is discarded, and all tasks of its transaction fail. `fenced`: the id that was taken."""
        if not self._per_task(s, w):
            s = self._forgotten(self._put_session(s, w, self.session(s, w)._replace(live=False, inside=())), w)
        for q in tasks:
            effect = self._effect(s, w, q)
            if effect is not None and not isinstance(effect, do.Discard | do.Stop):
                s = self._told(s, w, q, "failed", why, q == fenced)
        return s

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
        return p if self._per_task(s, w) else self.session(s, w).id

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

    def _ids(self, s: State, w: int) -> Iterator[int]:
        """J1: the id is kept as long as its task is there; else it is that of any other task."""
        session = self.session(s, w)
        if session.id >= 0:
            yield session.id
            return
        owned = [q for q, lane in enumerate(self.worker(s, w).lanes) if lane is not None]
        yield from owned if self.joint.any_id else owned[:1]

    def _init(self, turn: Turn, effect: Any) -> None:
        """J2: the own id, and beside it the id of each task that recovers."""
        s, w, p, *_ = turn
        if self._per_task(s, w):
            if self.setting.workers[w] != "tool" or self._all_ended(turn):
                self._initialise(turn, p, own=True)
            return
        session = self.session(s, w)
        if session.live and session.id != p:
            self._initialise(turn, p, own=False)
        elif session.live:
            if not session.inside:
                self._initialise(turn, p, own=True)
        elif self._first_to_ask(s, w) == p:
            for k in self._ids(s, w):
                self._initialise(turn, k, own=True)

    def _first_to_ask(self, s: State, w: int) -> int:
        """Of the tasks that need a session now."""
        asks = (q for q in range(self.setting.partitions) if isinstance(self._effect(s, w, q), do.Init | do.Begin))
        return next(asks, -1)

    def _initialise(self, turn: Turn, k: int, *, own: bool) -> None:
        """R1: InitProducerId of id `k`; an init that is not for the own session leaves none behind."""
        s, w, p, lane, owner, out = turn
        what = f"init of id{k}" if own else f"throwaway init of id{k}"
        who, phase = self._name(w, p), self.transaction(s, k).phase
        if phase == ONGOING:
            alive = self._open_elsewhere(s, k)
            if not (alive and lane.aborted):
                after = self._put_lane(s, w, p, lane._replace(aborted=alive))
                out.append(((who, f"{what}: the open transaction is aborted"), owner, self._fence(after, k)))
            return
        if phase != IDLE:
            return
        taken = self._taken(self._claimed(s, w, k) if k == p else s, k, w if own else -1)
        if own and not self._per_task(s, w):
            taken = self._put_session(taken, w, Session(k, live=True))
        waits = isinstance(self._effect(s, w, p), do.Init)
        told = taken
        if waits and (k == p or self._per_task(s, w)):
            told = self._tell(taken, w, p, lane._replace(session=True), "initialised")
        out.append(((who, f"{what}: done"), owner, told))
        if not waits:
            return
        dead = s if not own or self._per_task(s, w) else self._put_session(s, w, Session(k))
        variants = [("applied, no reply", self._taken(dead, k, -1)), ("will come late", self._send(dead, ("init", k)))]
        for how, after in variants:
            spent = self._spend(after, NET)
            if spent is not None:
                out.append(((who, f"{what}: {how}"), False, self._told(spent, w, p, "failed", "no answer", False)))
