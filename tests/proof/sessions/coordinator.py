"""Transactions of several tasks, under the transactional id of one: what the brokers do with them.

What `tests.proof.model.cluster` says of one task's transaction holds for each share of a larger one: it is shown a
transaction with this share alone. So checks of records, deaths and offsets are those of all other worlds.
"""

from __future__ import annotations

from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.workers.joint.rounds import SessionState
from tests.proof.model.machine import Key
from tests.proof.model.states import (
    ABORTING,
    COMMITTING,
    HOLE,
    IDLE,
    NET,
    ONGOING,
    Moves,
    Outcome,
    Part,
    Setting,
    State,
    put,
)
from tests.proof.model.world import World
from tests.proof.sessions.states import JointSetting, Share, Transaction


class Coordinator(World):
    """States with sessions and transactions, and what happens to these without a worker."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        assert isinstance(setting, JointSetting)
        self.joint = setting
        self._sessions = self._faults + 1
        self._transactions = self._sessions + self._workers

    # States.

    def first(self) -> State:
        """No session, no transaction; or the first process has all tasks, and waits for messages."""
        number = self.values.number
        sessions = [number((SessionState(),))] * self._workers
        s: State = (*super().first(), *sessions, *[number(Transaction())] * self.setting.partitions)
        while self.joint.begun and not self._at_rest(s):
            tasks = range(self.setting.partitions)
            waits = self.session(s, 0).id is None and 0 not in self.joint.former
            at_rest = {f"w0/p{p}" for p in tasks if self._is_idle(s, p)}
            later = {f"assigns p{p} to w0" for p in tasks if waits and p != self.joint.first_id}
            s = next(
                after
                for (who, what), calm, after in self.moves(s)
                if calm
                and who not in at_rest
                and what not in later
                and (who.startswith(("w0", "broker")) or what.endswith("to w0"))
            )
        return s

    def _at_rest(self, s: State) -> bool:
        """Whether all tasks of the first worker wait for messages, and nothing is open."""
        tasks = range(self.setting.partitions)
        return all(self._is_idle(s, p) for p in tasks) and not any(self.transaction(s, k).shares for k in tasks)

    def _is_idle(self, s: State, p: int) -> bool:
        """Whether a task of the first worker waits for messages, and has delivered what it has to."""
        lane = self.worker(s, 0).lanes[p]
        waits = lane is not None and lane.effect >= 0 and isinstance(self.machine.effects.items[lane.effect], do.Await)
        return waits and (p not in self.joint.delivered or self.finished(p, self.part(s, p)))

    def session(self, s: State, w: int) -> SessionState:
        """The session of a worker that has one for all of its tasks."""
        (session,) = self.values.items[s[self._sessions + w]]
        return session  # type: ignore[no-any-return]

    def transaction(self, s: State, k: int) -> Transaction:
        """What the coordinator knows of the id of task `k`."""
        return self.values.items[s[self._transactions + k]]  # type: ignore[return-value]

    def _put_session(self, s: State, w: int, session: SessionState) -> State:
        return put(s, self._sessions + w, self.values.number((session,)))

    def _put_transaction(self, s: State, k: int, transaction: Transaction) -> State:
        return put(s, self._transactions + k, self.values.number(transaction))

    def _spend(self, s: State, kind: int) -> State | None:
        left = self.faults(s).spend(kind)
        return None if left is None else put(s, self._faults, self.values.number(left))

    def done(self, s: State) -> bool:
        """Whether all is delivered, and no transaction holds readers or offsets up."""
        busy = self.setting.moves and any(self.worker(s, len(self.setting.workers) - 1).lanes)
        open_ = any(self.transaction(s, k).shares for k in range(self.setting.partitions))
        return not busy and not open_ and all(self.finished(p, part) for p, part in enumerate(self.parts(s)))

    def finished(self, p: int, part: Part) -> bool:
        """See `Cluster`; what a broker always refuses is not delivered."""
        record = self.newest(part)
        at = self.ends(record)[0] if record else -1
        return (p > 0 and at == self.joint.refused >= 0) or super().finished(p, part)

    # A share as the only one of its transaction.

    def _alone_in(self, s: State, p: int, share: Share, phase: int) -> Part:
        """The part as it would be if this share were all of the transaction, and no other one were open."""
        part = self.part(s, p)
        hidden = (
            HOLE if entry >= 0 and not entry & 1 and i not in share.places else entry
            for i, entry in enumerate(part.log)
        )
        return part._replace(
            log=tuple(hidden), loose=share.loose, pending=share.offsets, marked=share.backing, phase=phase
        )

    def _beside_others(self, s: State, p: int, share: Share, after: Part) -> Part:
        """The reverse: what other transactions have open is seen again."""
        before = self.part(s, p).log
        seen = (
            before[i] if i < len(before) and before[i] >= 0 and not before[i] & 1 and i not in share.places else entry
            for i, entry in enumerate(after.log)
        )
        return after._replace(log=tuple(seen), loose=(), pending=(), marked=False)

    def _pending(self, s: State, p: int) -> bool:
        """Whether any transaction holds offsets of this task."""
        shares = (share for k in range(self.setting.partitions) for share in self.transaction(s, k).shares)
        return any(share.p == p and share.offsets for share in shares)

    def _opened_here(self, s: State, k: int) -> State:
        return self._put_transaction(s, k, self.transaction(s, k)._replace(phase=ONGOING))

    def _added(self, s: State, k: int, p: int, **new: Any) -> State:
        """More in the share of a task; the transaction is open from now on."""
        transaction = self.transaction(s, k)
        share = next((one for one in transaction.shares if one.p == p), Share(p))._replace(**new)
        others = tuple(one for one in transaction.shares if one.p != p)
        return self._put_transaction(s, k, Transaction(ONGOING, tuple(sorted((*others, share)))))

    def _share(self, s: State, k: int, p: int) -> Share:
        return next((one for one in self.transaction(s, k).shares if one.p == p), Share(p))

    def _landed(self, s: State, k: int, p: int, number: int) -> State:
        """A record in the backing log, not visible before its marker."""
        part = self.part(s, p)
        share = self._share(s, k, p)
        s = self._added(s, k, p, places=(*share.places, len(part.log)), backing=True)
        return self._put_part(s, p, part._replace(log=(*part.log, self._entry(number), *self._settled_beside(number))))

    def _sent_out(self, s: State, k: int, p: int, outcomes: tuple[Outcome, ...]) -> State:
        return self._added(s, k, p, loose=self._share(s, k, p).loose + outcomes) if outcomes else s

    # The end of a transaction.

    def _ended(self, s: State, p: int) -> State:
        """After EndTxn with commit, of id `p`: see `Cluster`."""
        transaction = self.transaction(s, p)
        if transaction.phase != ONGOING:
            return s
        for share in transaction.shares:
            alone = self._put_part(s, share.p, self._alone_in(s, share.p, share, ONGOING))
            s = self._put_part(s, share.p, self._beside_others(s, share.p, share, self._decide(alone, share.p)))
        return self._over(self._put_transaction(s, p, transaction._replace(phase=COMMITTING)), p)

    def _fence(self, s: State, p: int) -> State:
        s = self._taken(s, p, -1)
        return self._over(self._put_transaction(s, p, self.transaction(s, p)._replace(phase=ABORTING)), p)

    def _over(self, s: State, k: int) -> State:
        """A transaction with nothing in it ends at once."""
        transaction = self.transaction(s, k)
        return s if transaction.shares else self._put_transaction(s, k, Transaction())

    def _markers(self, s: State, out: Moves) -> None:
        for k in range(self.setting.partitions):
            transaction = self.transaction(s, k)
            if transaction.phase not in (COMMITTING, ABORTING):
                continue
            shares = transaction.shares
            backing = [share.p for share in shares if share.backing or share.loose]
            offsets = [share.p for share in shares if share.offsets]
            steps: list[tuple[str, list[int], list[int]]] = [("all", backing, offsets)]
            if self.joint.markers == "offsets":
                steps = [("offsets", [], offsets), ("backing", backing, [])]
            elif self.joint.markers == "apart":
                steps = [("offsets", [], offsets), *((f"p{p}", [p], []) for p in backing)]
            for what, these, group in steps:
                if these or group:
                    after = self._marked_here(s, k, these, group)
                    out.append(((f"broker id{k}", f"writes the markers: {what}"), True, after))

    def _marked_here(self, s: State, k: int, backing: list[int], offsets: list[int]) -> State:
        transaction = self.transaction(s, k)
        won = transaction.phase == COMMITTING
        left = []
        for share in transaction.shares:
            now = share._replace(offsets=share.offsets if share.p in offsets else ())
            if share.p not in backing:
                now = now._replace(places=(), backing=False, loose=())
            rest = share._replace(offsets=() if now.offsets else share.offsets)
            if share.p in backing:
                rest = rest._replace(places=(), backing=False, loose=())
            over = rest == Share(share.p)
            if now != Share(share.p):
                s = self._put_part(
                    s,
                    share.p,
                    self._marked_share(s, now, won=won, over=over and not self._decided_elsewhere(s, k, share.p)),
                )
            left += [] if over else [rest]
        after = transaction._replace(shares=tuple(left)) if left else Transaction()
        return self._put_transaction(s, k, after)

    def _decided_elsewhere(self, s: State, k: int, p: int) -> bool:
        """Whether another transaction is committed that has this task, and lacks markers."""
        others = (self.transaction(s, j) for j in range(self.setting.partitions) if j != k)
        return any(one.phase == COMMITTING and any(share.p == p for share in one.shares) for one in others)

    def _marked_share(self, s: State, share: Share, *, won: bool, over: bool) -> Part:
        phase = COMMITTING if won else ABORTING
        part = self.part(s, share.p)
        if share.backing or share.loose:
            view = self._alone_in(s, share.p, share, phase)
            after = self._beside_others(s, share.p, share, self._marked(view))
        else:
            after = part._replace(held=share.offsets if won else part.held)
        return after._replace(phase=IDLE if over and won else part.phase)

    # Faults.

    def _arrived(self, s: State, kind: str, p: int, message: Key) -> State:
        phase = self.transaction(s, p).phase
        if kind == "init":
            if phase == ONGOING:
                return self._fence(s, p)
            return self._taken(s, p, -1) if phase == IDLE else s
        if phase != ONGOING:
            return s
        if kind == "end":
            return self._ended(s, p)
        if kind == "offsets":
            for q, offsets in message[3]:
                s = self._added(s, p, q, offsets=offsets)
            return s
        if kind == "record":
            return self._landed(s, p, message[2], message[3])
        return self._sent_out(s, p, message[2], message[3])

    def _timing_out(self, s: State, out: Moves) -> None:
        for k in range(self.setting.partitions):
            if self.transaction(s, k).phase == ONGOING:
                spent = self._spend(s, NET)
                assert spent
                after = self._fence(spent, k)
                out.append(((f"broker id{k}", "aborts a transaction that took too long"), False, after))
