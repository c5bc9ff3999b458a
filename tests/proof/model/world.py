"""The world around the core: brokers, group, network and workers, as compact states with numbered transitions.

A state is a tuple of small integers, one for each worker, each partition, the group, the network and the faults that
are left; the integers name values of the classes below, of which equal ones are kept once. Workers run the production
`Task` (see `machine`); what stands here in the place of `task.interpreter` does its effects as atomic
transitions.

What a transition is. An effect that talks to the broker is one transition: the request arrives, is applied and
answered. In the place of it, and at the price of a fault, the request is lost, or applied with its reply lost, or comes
late: the caller fails now, and the request arrives at any later moment or never. Markers are transitions of their own.
A worker may die before or after each of them, in user code, and in recovery.

Why fewer transitions than effects are enough (`Faults` says how many faults may come together; there is no other
reduction):

- A reply changes its own lane only, and the next effect is a transition of its own. So a death, a pause or a rebalance
  between "applied" and "answered" is the same as one directly behind the answer.
- `Produce` fills a buffer in memory, and facts of the inputs never change: both are answered at once (`Machine.tell`).
- Epochs are compared with the coordinator's newest only. So a session is "current" or not (`Part.holder`), and requests
  on their way that bear an older epoch, or come from a member that was expelled, are taken away: they are refused.
- What user code does ahead of a commit (P7) is void or becomes the next batch; it is called after the commit here. A
  target holds a lock meanwhile; so it is called before the commit in `ahead`.
- An incarnation is compared for equality only; it is the worker's number and how often it died.

What the brokers do here: transaction protocol V1, where an EndTxn that comes late ends whatever transaction of its
epoch is open (KAFKA-17754); partition verification (a Produce that comes late is taken only into an open transaction of
its epoch); the check of the member, not of the partition, in TxnOffsetCommit; coordinator time-outs; an eager cleaner.

Bounds that are none of the protocol's. A zombie that has failed once does nothing more before it hears that it was
expelled. An init that waits aborts at most one transaction of a session that lives. Without both, two could abort each
other's transactions without end, and logs would grow without end.

Not here: replicas and truncation, recreated topics, added partitions, retention, expiry of ids, stale answers of others
than the backing partition's leader.
"""

from collections.abc import Iterator
from dataclasses import replace

from cues_kafka.core.records import Attempt, Snapshot, Totals
from cues_kafka.core.spec import Move
from tests.proof.model.lanes import Lanes
from tests.proof.model.machine import Key
from tests.proof.model.states import (
    CRASH,
    HOLE,
    IDLE,
    MET,
    MOVE,
    NET,
    NOT_OURS,
    ONGOING,
    REMEDIED,
    ZOMBIE,
    Faults,
    Group,
    Lane,
    Moves,
    State,
    Worker,
    holds,
    put,
    shown,
    unowned,
)


class World(Lanes):
    """A setting, and everything that can happen in it."""

    def moves(self, s: State) -> Moves:
        """All transitions; the first calm one is what a healed world does next."""
        out: Moves = []
        for _ in self._stages(s, out):
            pass
        return out

    def calm(self, s: State) -> State | None:
        """The state behind the first calm one of `moves`, without making those behind it; None: no move is calm."""
        out: Moves = []
        looked = 0
        for _ in self._stages(s, out):
            for _, calm, after in out[looked:]:
                if calm:
                    return after
            looked = len(out)
        return None

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """Append all transitions, in order; it stops behind each of their kinds, and behind each lane."""
        self._markers(s, out)
        if self.setting.resets:
            self._resetting(s, out)
        if self.setting.grows:
            self._growing(s, out)
        if self.setting.compacts:
            self._compacting(s, out)
        yield
        if self.setting.moves:
            self._operating(s, out)
        self._asking(s, out)
        if self.setting.intruder:
            self._intruding(s, out)
        self._rebalancing(s, out)
        yield
        for w, worker in enumerate(self.workers(s)):
            for p, lane in enumerate(worker.lanes):
                if lane is not None:
                    self._lane(s, w, p, lane, out)
                    yield
        self._launching(s, out)
        self._noticing(s, out)
        yield
        faults = self.faults(s)
        if self.net(s):
            self._arriving(s, out)
        if faults.total:
            self._breaking(s, faults, out)
        yield

    def done(self, s: State) -> bool:
        """Whether all is delivered, up to a deliberate stop, and nothing is left open."""
        busy = self.setting.moves and any(self.worker(s, len(self.setting.workers) - 1).lanes)
        return not busy and all(self.finished(p, part) and not holds(part) for p, part in enumerate(self.parts(s)))

    # What comes from outside.

    def _growing(self, s: State, out: Moves) -> None:
        """A message arrives, at no price: that is what inputs do."""
        for p, part in enumerate(self.parts(s)):
            if part.grown < self.setting.grows:
                after = self._put_part(s, p, part._replace(grown=part.grown + 1))
                out.append(((f"input p{p}", f"has grown to {self.highs(self.part(after, p))}"), False, after))

    def _asking(self, s: State, out: Moves) -> None:
        """Requests to replay errors arrive, see `replaying`."""

    def _operating(self, s: State, out: Moves) -> None:
        """
        An operator stops the workers, or believes so, and has all tasks begin again, while the group has no member.

        What is to be moved, and behind which record, is decided here, by what is visible now.
        """
        w, group = len(self.setting.workers) - 1, self.group(s)
        lives, lanes = self.worker(s, w)
        if lives == self.setting.moves or any(lanes):
            return
        if any(group.members):
            after = s
            for member in range(w):
                after = self._expelled(after, member) if group.members[member] else after
            out.append((("operator", "stops the workers"), False, after))
            return
        begin = self.machine.facts.positions((0,) * len(self.bindings))
        wanted: list[Lane | None] = []
        for p, part in enumerate(self.parts(s)):
            record = self.newest(part)
            there = record is not None and not isinstance(record, Snapshot) and record.positions == begin
            move = Move(after=record.sequence if record else -1, positions=begin)
            wanted.append(None if there else Lane(self.machine.new(self._spec(w, lives + 1, p, move))))
        after = self._put_worker(s, w, Worker(lives + 1, tuple(wanted)))
        out.append((("operator", "resets all tasks"), False, after))

    def _compacting(self, s: State, out: Moves) -> None:
        """The cleaner takes a message that has no outcome yet, at no price; the last one of a log is never taken."""
        for p, part in enumerate(self.parts(s)):
            delivered = {offset for outcome in part.outputs for _, offset in outcome.step}
            if len(part.cleaned) == self.setting.compacts:
                continue
            for offset in self.places[0][:-1]:
                if offset not in delivered and offset not in part.cleaned:
                    cleaned = tuple(sorted((*part.cleaned, offset)))
                    after = self._put_part(s, p, part._replace(cleaned=cleaned))
                    out.append(((f"input p{p}", f"is compacted: {offset} is gone"), False, after))

    def _intruding(self, s: State, out: Moves) -> None:
        """I14: a record with another id, right in all but who wrote it; the next own one must not build on the old."""
        for p, part in enumerate(self.parts(s)):
            record = self.newest(part)
            spent = self._spend(s, MOVE) if part.phase == IDLE and record else None
            if spent is not None and record:
                foreign = Attempt(
                    sequence=record.sequence + 1,
                    step=record.step,
                    positions=record.positions,
                    totals=record.totals,
                    batch=Totals(),
                    owner=record.owner,
                    born=record.born,
                    writer=replace(record.writer, runtime="tool", incarnation="intruder"),
                    fingerprint=record.fingerprint,
                )
                number = self.machine.records.number(foreign)
                log = (*part.log, number << 1 | 1, HOLE)
                out.append(
                    (("intruder", f"writes {shown(foreign)}"), False, self._put_part(spent, p, part._replace(log=log)))
                )

    def _resetting(self, s: State, out: Moves) -> None:
        """A program sets the group's offsets back (`MOVE`), while nothing is open; an operator deletes them (R5)."""
        for p, part in enumerate(self.parts(s)):
            if part.reset in (NOT_OURS, MET):
                after = self._put_part(s, p, part._replace(held=(), reset=REMEDIED))
                out.append((("operator", f"deletes the group's offsets of p{p}"), True, after))
            elif not part.reset and any(part.held) and part.phase == IDLE:
                spent = self._spend(s, MOVE)
                if spent is not None:
                    after = self._put_part(spent, p, part._replace(held=(0,) * len(part.held), reset=NOT_OURS))
                    out.append((("another program", f"sets the group's offsets of p{p} back"), False, after))

    # Faults.

    def _arriving(self, s: State, out: Moves) -> None:
        """Requests that come late; nothing that is late is calm."""
        for i, message in enumerate(self.net(s)):
            kind, p = message[0], message[1]
            rest = self._put_net(s, self.net(s)[:i] + self.net(s)[i + 1 :])
            after = self._arrived(rest, kind, p, message)
            out.append(((f"broker p{p}", f"gets what was late: {kind}"), False, after))

    def _arrived(self, s: State, kind: str, p: int, message: Key) -> State:
        part = self.part(s, p)
        if kind == "init":  # no task waits for it, so what it is refused it does not ask again
            if part.phase == ONGOING:
                return self._fence(s, p)
            return self._taken(s, p, -1) if part.phase == IDLE else s
        if part.phase != ONGOING:
            return s  # refused: the transaction that it was for is over
        if kind == "end":
            return self._ended(s, p)
        if kind == "offsets":
            return self._put_part(s, p, part._replace(pending=message[3]))
        if kind == "record":
            return self._put_part(
                s, p, part._replace(log=(*part.log, message[2] << 1, *self._settled_beside(message[2])))
            )
        return self._put_part(s, p, part._replace(loose=part.loose + message[2]))

    def _breaking(self, s: State, faults: Faults, out: Moves) -> None:
        group = self.group(s)
        if faults.net:
            self._timing_out(s, out)
        for w, worker in enumerate(self.workers(s)):
            busy = any(lane is not None and lane.effect >= 0 for lane in worker.lanes)
            if faults.crash and busy:
                self._dying(s, w, out)
            if faults.zombie and group.members[w] and any(lane is not None for lane in worker.lanes):
                spent = self._spend(s, ZOMBIE)
                assert spent
                out.append((("group", f"expels w{w}, which does not know it"), False, self._expelled(spent, w)))
        if faults.move:
            self._moving(s, group, out)

    def _timing_out(self, s: State, out: Moves) -> None:
        for p, part in enumerate(self.parts(s)):
            if part.phase == ONGOING:
                spent = self._spend(s, NET)
                assert spent
                out.append(((f"broker p{p}", "aborts a transaction that took too long"), False, self._fence(spent, p)))

    def _dying(self, s: State, w: int, out: Moves) -> None:
        spent = self._spend(s, CRASH)
        assert spent
        dead = self._dead(spent, w)
        out.append(((f"w{w}", "dies; its successor takes its place"), False, dead))
        if self.group(s).members[w]:
            out.append(((f"w{w}", "dies, and its session ends"), False, self._expelled(dead, w, dead=True)))

    def _expelled(self, s: State, w: int, *, dead: bool = False) -> State:
        """The session ended; the member's requests on their way are refused. Its process goes on, if it lives."""
        group = self.group(s)
        for p, owner in enumerate(group.owners):
            if owner == w:
                group = unowned(group, p)
                s = s if dead else self._taken_away(s, p, w)
        group = group._replace(members=put(group.members, w, False))
        net = tuple(m for m in self.net(s) if m[0] != "offsets" or m[2] != w)
        s = self._put_net(self._put_group(s, group), net)
        if dead:
            deaths = self.worker(s, w).deaths
            s = self._put_worker(s, w, Worker(deaths, (None,) * self.setting.partitions))
        return s

    def _moving(self, s: State, group: Group, out: Moves) -> None:
        """A rebalance takes one partition from its owner, or all; and one in which the owner's patience ends."""
        spent = self._spend(s, MOVE)
        assert spent
        for p, owner in enumerate(group.owners):
            if owner < 0:
                continue
            if group.revoking[p]:
                lane = self.worker(s, owner).lanes[p]
                if lane is not None:
                    after = self._put_lane(self._taken_away(spent, p, owner), owner, p, None)
                    out.append(((f"w{owner}/p{p}", "waits no longer, and abandons the task"), False, after))
            elif not any(group.revoking):
                taken = tuple(o >= 0 for o in group.owners) if self.setting.eager else put(group.revoking, p, True)
                after = self._put_group(spent, group._replace(revoking=taken))
                out.append((("group", f"revokes p{p}"), False, after))
