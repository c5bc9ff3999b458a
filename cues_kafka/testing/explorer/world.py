"""The world around the core: brokers, group, network and workers, as compact states with numbered transitions.

A state is a tuple of small integers, one for each worker, each partition, the group, the network and the faults that
are left; the integers name values of the classes below, of which equal ones are kept once. Workers run the production
`Task` (see `machine`); what stands here in the place of `runtime.interpreter` does its effects as atomic transitions.

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
- What user code does ahead of a commit (P7) is void or becomes the next batch; it is called after the commit here.
- An incarnation is compared for equality only; it is the worker's number and how often it died.

What the brokers do here: transaction protocol V1, where an EndTxn that comes late ends whatever transaction of its
epoch is open (KAFKA-17754); partition verification (a Produce that comes late is taken only into an open transaction of
its epoch); the check of the member, not of the partition, in TxnOffsetCommit; coordinator time-outs; an eager cleaner.

Bounds that are none of the protocol's. A zombie that has failed once does nothing more before it hears that it was
expelled. An init that waits aborts at most one transaction of somebody who lives. Without both, two could abort each
other's transactions for ever, and logs would grow without end.

Not here: replicas and truncation, topics made anew, added partitions, retention, expiry of ids, stale answers of others
than the backing partition's leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby, product
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import hashing
from cues_kafka.core.records import Attempt, Choice, Record, Snapshot, Totals, Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.task import State as Doing
from cues_kafka.core.task import Task, take
from cues_kafka.ports import Coordinates
from cues_kafka.testing.explorer.machine import Facts, Key, Machine, Register, offsets_of
from cues_kafka.testing.explorer.states import (
    ABORTING,
    COMMITTING,
    CRASH,
    HOLE,
    IDLE,
    MEANS,
    MET,
    MOVE,
    NET,
    NOT_OURS,
    ONGOING,
    PAST_GATE,
    QUARANTINE_AFTER,
    REMEDIED,
    ZOMBIE,
    Faults,
    Group,
    Lane,
    Moves,
    Outcome,
    Part,
    Setting,
    State,
    Step,
    Turn,
    Worker,
    counts,
    holds,
    newest_below,
    outcomes_of,
    put,
    ranges,
    settled,
    shown,
    unowned,
)


class World:
    """A setting, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.bindings = tuple("ab"[: len(setting.inputs)])
        names = tuple(Input(binding, f"topic-{binding}") for binding in self.bindings)
        facts = Facts(names, tuple(b.encode() * 16 for b in self.bindings), tuple(map(len, setting.inputs)))
        self.machine = Machine(facts)
        self.values: Register[tuple[Any, ...]] = Register()
        self.places = [tuple(i for i, kind in enumerate(log) if kind != ".") for log in setting.inputs]
        self.hashes: dict[tuple[int, Step], bytes] = {}
        self._workers = len(setting.workers)
        self._group = self._workers + setting.partitions
        self._net, self._faults = self._group + 1, self._group + 2
        self._does: dict[type, Callable[..., None]] = {
            do.Init: self._init,
            do.FetchOffsets: self._fetch_offsets,
            do.FetchWatermark: self._fetch_watermark,
            do.ReadNewest: self._read_newest,
            do.FetchSibling: self._fetch_sibling,
            do.AssignReader: self._assign,
            do.Begin: self._go_on,
            do.Discard: self._go_on,
            do.SendOffsets: self._send_offsets,
            do.Flush: self._flush,
            do.Commit: self._commit,
            do.Await: self._await,
            do.Call: self._call,
            do.Quarantine: self._quarantine,
            do.Stop: self._stopped,
        }

    # States.

    def first(self) -> State:
        """Nobody owns anything, nothing is written; all workers are members."""
        setting = self.setting
        nobody = (None,) * setting.partitions
        native = tuple(kind == "native" for kind in setting.workers)
        number = self.values.number
        workers = [number(Worker(0, nobody)) for _ in setting.workers]
        parts = [number(Part()) for _ in nobody]
        group = Group(native, (-1,) * setting.partitions, (False,) * setting.partitions)
        return (*workers, *parts, number(group), number(()), number(setting.faults))

    def workers(self, s: State) -> list[Worker]:
        """All of them."""
        return [self.values.items[n] for n in s[: self._workers]]  # type: ignore[misc]

    def parts(self, s: State) -> list[Part]:
        """All of them."""
        return [self.values.items[n] for n in s[self._workers : self._group]]  # type: ignore[misc]

    def part_numbers(self, s: State) -> State:
        """The numbers of the parts."""
        return s[self._workers : self._group]

    def part(self, s: State, p: int) -> Part:
        """What the brokers know of task `p`."""
        return self.values.items[s[self._workers + p]]  # type: ignore[return-value]

    def worker(self, s: State, w: int) -> Worker:
        """One process."""
        return self.values.items[s[w]]  # type: ignore[return-value]

    def group(self, s: State) -> Group:
        """The group."""
        return self.values.items[s[self._group]]  # type: ignore[return-value]

    def net(self, s: State) -> tuple[Key, ...]:
        """What is on its way."""
        return self.values.items[s[self._net]]

    def faults(self, s: State) -> Faults:
        """What may still happen."""
        return self.values.items[s[self._faults]]  # type: ignore[return-value]

    def task(self, lane: Lane) -> Task:
        """The production task of a lane."""
        return self.machine.tasks.items[lane.task]

    def _put_worker(self, s: State, w: int, worker: Worker) -> State:
        return (*s[:w], self.values.number(worker), *s[w + 1 :])

    def _put_lane(self, s: State, w: int, p: int, lane: Lane | None) -> State:
        deaths, lanes = self.worker(s, w)
        return self._put_worker(s, w, Worker(deaths, (*lanes[:p], lane, *lanes[p + 1 :])))

    def _put_part(self, s: State, p: int, part: Part) -> State:
        at = self._workers + p
        return (*s[:at], self.values.number(part), *s[at + 1 :])

    def _put_group(self, s: State, group: Group) -> State:
        return (*s[: self._group], self.values.number(group), *s[self._group + 1 :])

    def _put_net(self, s: State, net: tuple[Key, ...]) -> State:
        return (*s[: self._net], self.values.number(net), *s[self._net + 1 :])

    def _send(self, s: State, message: Key) -> State:
        return self._put_net(s, tuple(sorted((*self.net(s), message))))

    def _spend(self, s: State, kind: int) -> State | None:
        left = self.faults(s).spend(kind)
        return None if left is None else (*s[: self._faults], self.values.number(left))

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """An event for a lane; what it waits for next shows in the new state."""
        task, number = self.machine.tell(lane.task, key)
        effect = self.machine.effects.items[number]
        if isinstance(effect, do.Release):
            return self._put_lane(self._killed(s, p) if key[0] != "revoked" and self._unsaid(s, p) else s, w, p, None)
        ended = isinstance(effect, do.Discard | do.Stop)
        if ended and self._again(lane, effect, key):
            s = self._put_part(s, p, self.part(s, p)._replace(wrong="D5: a fenced slot goes on"))
        carried = () if ended else lane.carried
        return self._put_lane(s, w, p, Lane(task, number, lane.session and not ended, carried, lane.said))

    def _unsaid(self, s: State, p: int) -> bool:
        """Whether a task is given up under a snapshot without `left`: it could not be written; it counts as a death."""
        part = self.part(s, p)
        decided = [entry >> 1 for entry in part.log if entry >= 0 and (entry & 1 or part.phase == COMMITTING)]
        record = self.machine.record(decided[-1]) if decided else None
        return isinstance(record, Snapshot) and not record.left

    def _again(self, lane: Lane, effect: Any, key: Key) -> bool:
        fenced = key[0] == "failed" and key[2]
        return fenced and self.task(lane).spec.slot and not isinstance(effect, do.Stop)

    def _spec(self, w: int, deaths: int, p: int) -> Spec:
        setting, kind = self.setting, self.setting.workers[w]
        return Spec(
            graph="g",
            processor="p",
            partition=p,
            inputs=self.machine.facts.inputs,
            pairing=setting.pairing,
            effects=setting.effects,
            errors=setting.errors,
            transactional_id=f"g.p.{p}",
            group="g.p",
            backing="g.p.backing",
            start=setting.start,
            width=setting.partitions,
            slot=kind == "slot",
            quarantine_after=QUARANTINE_AFTER,
            writer=Writer(f"g.p.{p}", kind, f"w{w}", f"w{w}.{deaths}"),
        )

    def _new_lane(self, w: int, deaths: int, p: int) -> Lane:
        return Lane(self.machine.new(self._spec(w, deaths, p)))

    # What can happen.

    def moves(self, s: State) -> Moves:
        """All transitions; the first calm one is what a healed world does next."""
        out: Moves = []
        self._markers(s, out)
        if self.setting.resets:
            self._resetting(s, out)
        if self.setting.grows:
            self._growing(s, out)
        if self.setting.intruder:
            self._intruding(s, out)
        self._rebalancing(s, out)
        for w, worker in enumerate(self.workers(s)):
            for p, lane in enumerate(worker.lanes):
                if lane is not None:
                    self._lane(s, w, p, lane, out)
        self._launching(s, out)
        self._noticing(s, out)
        faults = self.faults(s)
        if self.net(s):
            self._arriving(s, out)
        if faults.total:
            self._breaking(s, faults, out)
        return out

    def done(self, s: State) -> bool:
        """Whether all is delivered, up to a deliberate stop, and nothing is left open."""
        return all(self.finished(part) and not holds(part) for part in self.parts(s))

    def finished(self, part: Part) -> bool:
        """Whether no message is left that may be delivered."""
        record = self.newest(part)
        offsets = offsets_of(record.positions) if record else part.begin
        if not offsets:
            return False
        rest = self.rest(offsets, self.highs(part))
        following = [log[offsets[0]] for log, offsets in zip(self.setting.inputs, rest, strict=True) if offsets]
        short = self.setting.pairing == "join" and not all(rest)
        return short or not following or (len(following) == 1 and following[0] == "s")

    def newest(self, part: Part) -> Record | None:
        """The newest committed record."""
        committed = [entry >> 1 for entry in part.log if entry >= 0 and entry & 1]
        return self.machine.record(committed[-1]) if committed else None

    def rest(self, offsets: tuple[int, ...], highs: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
        """Of each binding, the offsets of the messages from there on, as far as they have arrived."""
        rows = zip(self.places, offsets, highs or self.machine.facts.high, strict=True)
        return [tuple(o for o in places if at <= o < high) for places, at, high in rows]

    def highs(self, part: Part) -> tuple[int, ...]:
        """The ends of the inputs as they are now."""
        missing = self.setting.grows - part.grown
        return tuple(high - missing for high in self.machine.facts.high) if missing else self.machine.facts.high

    def _growing(self, s: State, out: Moves) -> None:
        """A message arrives, at no price: that is what inputs do."""
        for p, part in enumerate(self.parts(s)):
            if part.grown < self.setting.grows:
                after = self._put_part(s, p, part._replace(grown=part.grown + 1))
                out.append(((f"input p{p}", f"has grown to {self.highs(self.part(after, p))}"), False, after))

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

    # The transaction coordinator.

    def _markers(self, s: State, out: Moves) -> None:
        for p, part in enumerate(self.parts(s)):
            if part.phase in (COMMITTING, ABORTING):
                out.append(((f"broker p{p}", "writes the markers"), True, self._put_part(s, p, self._marked(part))))

    def _marked(self, part: Part) -> Part:
        """The transaction is over: its records become visible, or holes; the cleaner takes all but the newest."""
        won = part.phase == COMMITTING
        log = tuple(settled(entry, won) for entry in part.log)
        newest = max((i for i, entry in enumerate(log) if entry >= 0), default=0)
        log = (*(HOLE for _ in log[:newest]), *log[newest:], *((HOLE,) if part.marked else ()))
        outputs = part.outputs + part.loose if won else part.outputs
        held = part.pending if won and part.pending else part.held
        reset = 0 if won and part.pending else part.reset
        return part._replace(
            log=log, outputs=outputs, loose=(), phase=IDLE, marked=False, pending=(), held=held, reset=reset
        )  # fmt: skip

    def _decide(self, s: State, p: int) -> Part:
        """EndTxn with commit: from now on the transaction happened, whatever becomes of the reply."""
        part = self.part(s, p)
        opened = [entry >> 1 for entry in part.log if entry >= 0 and not entry & 1]
        killed = part.killed
        wrong = part.wrong
        for number in opened:
            record = self.machine.record(number)
            ends = ranges(record)
            killed = killed if ends and ends == killed[0] else (ends, 0 if self._lives(s, p, record) else 1)
            wrong = wrong or self._chain(self.newest(part), record, part, killed[1])
        if part.reset == MET:
            wrong = wrong or f"I12: a recovery wrote although the group's offsets are {part.held}"
        if part.killed[1] <= QUARANTINE_AFTER and any(outcome.kind == "q" for outcome in part.loose):
            wrong = wrong or f"I11: quarantined after {part.killed[1]} deaths on that message"
        if len(opened) != 1:
            wrong = wrong or f"I2: a transaction with {len(opened)} task records was committed"
        begin = part.begin or (part.pending if self.setting.grows else ())
        return part._replace(phase=COMMITTING, killed=killed, wrong=wrong, begin=begin)

    def _lives(self, s: State, p: int, record: Record) -> bool:
        """Whether who wrote a record still has the task; if not, he was counted as dead before it became visible."""
        group = self.group(s)
        return any(
            worker.lanes[p] is not None
            and record.writer.incarnation == f"w{w}.{worker.deaths}"
            and (self.setting.workers[w] == "slot" or (group.members[w] and group.owners[p] == w))
            for w, worker in enumerate(self.workers(s))
        )

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """I13, Q1: what each record must be to the one before it."""
        if record.sequence != (before.sequence + 1 if before else 0):
            return f"I13: sequence {record.sequence} follows {before.sequence if before else 'nothing'}"
        if record.step != (before.step if before else 0) + record.batch.deliveries:
            return f"I13: step {record.step} of {shown(record)} does not follow from the record before it"
        if part.pending != offsets_of(record.positions):
            return f"I2: offsets {part.pending} beside positions {offsets_of(record.positions)}"
        if isinstance(record, Snapshot) and record.starts > killed:
            return f"I11: {record.starts} deaths are recorded where {killed} happened"
        if isinstance(record, Snapshot) and isinstance(before, Snapshot) and self.setting.effects:
            shorter = min(record.steps, before.steps)
            if take(record.choice, shorter) != take(before.choice, shorter):
                return f"I7: the choice {before.choice} became {record.choice}"
        return ""

    def _taken(self, s: State, p: int, w: int) -> State:
        """A new epoch: the session of `w` is current, all requests on their way that bear the former are void."""
        net = tuple(message for message in self.net(s) if message[1] != p or message[0] == "init")
        part = self.part(s, p)
        reset = MET if part.reset == NOT_OURS else part.reset
        return self._put_part(self._put_net(s, net), p, part._replace(holder=w, reset=reset))

    def _fence(self, s: State, p: int) -> State:
        """The coordinator ends an open transaction with a new epoch."""
        s = self._taken(s, p, -1)
        return self._put_part(s, p, self.part(s, p)._replace(phase=ABORTING))

    # The group.

    def _rebalancing(self, s: State, out: Moves) -> None:
        group = self.group(s)
        for p, owner in enumerate(group.owners):
            if owner >= 0 and group.revoking[p] and self.worker(s, owner).lanes[p] is None:
                after = self._put_group(s, unowned(group, p))
                out.append(((f"w{owner}", f"acknowledges that p{p} is revoked"), True, after))
            elif owner < 0 and not any(group.revoking):
                self._assigning(s, p, group, out)

    def _assigning(self, s: State, p: int, group: Group, out: Moves) -> None:
        for w, member in enumerate(group.members):
            worker = self.worker(s, w)
            if member and worker.lanes[p] is None:
                after = self._put_group(s, group._replace(owners=put(group.owners, p, w)))
                after = self._put_lane(after, w, p, self._new_lane(w, worker.deaths, p))
                out.append((("group", f"assigns p{p} to w{w}"), True, after))

    def _noticing(self, s: State, out: Moves) -> None:
        """An expelled member hears of it: its lanes are lost, and it comes back as another member."""
        group = self.group(s)
        for w, member in enumerate(group.members):
            if not member and self.setting.workers[w] == "native":
                worker = self.worker(s, w)
                for lane in filter(None, worker.lanes):
                    self.machine.tell(lane.task, ("lost",))
                after = self._put_worker(s, w, Worker(worker.deaths, (None,) * self.setting.partitions))
                after = self._put_group(after, group._replace(members=put(group.members, w, True)))
                out.append(((f"w{w}", "hears that it lost its partitions, and joins again"), True, after))

    def _resetting(self, s: State, out: Moves) -> None:
        """Somebody sets the group's offsets back (`MOVE`), while nothing is open; an operator deletes them (R5)."""
        for p, part in enumerate(self.parts(s)):
            if part.reset in (NOT_OURS, MET):
                after = self._put_part(s, p, part._replace(held=(), reset=REMEDIED))
                out.append((("operator", f"deletes the group's offsets of p{p}"), True, after))
            elif not part.reset and any(part.held) and part.phase == IDLE:
                spent = self._spend(s, MOVE)
                if spent is not None:
                    after = self._put_part(spent, p, part._replace(held=(0,) * len(part.held), reset=NOT_OURS))
                    out.append((("somebody", f"sets the group's offsets of p{p} back"), False, after))

    def _is_member(self, s: State, w: int) -> bool:
        """The check in TxnOffsetCommit; who is outside on purpose is not asked (D4)."""
        return self.setting.workers[w] == "slot" or self.group(s).members[w]

    # Slots of Spark.

    def _launching(self, s: State, out: Moves) -> None:
        """Spark starts a slot whose range is not delivered: the first at any moment, a further one when none lives."""
        if "slot" not in self.setting.workers:
            return
        for p, part in enumerate(self.parts(s)):
            if self.finished(part):
                continue
            lives = any(worker.lanes[p] is not None for worker in self.workers(s))
            calm = not lives and not any(self.group(s).members)
            for w, kind in enumerate(self.setting.workers):
                worker = self.worker(s, w)
                if kind == "slot" and worker.lanes[p] is None:
                    after = s if calm else self._spend(s, MOVE)
                    if after is not None:
                        after = self._put_lane(after, w, p, self._new_lane(w, worker.deaths, p))
                        out.append(((f"w{w}", f"is started as a slot for p{p}"), calm, after))

    # Lanes.

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        group, slot = self.group(s), self.setting.workers[w] == "slot"
        owner = slot or (group.owners[p] == w and group.members[w])
        revoked = owner and not slot and group.revoking[p] and not lane.said
        if revoked and self.task(lane).state not in PAST_GATE:
            told = lane._replace(said=True)
            out.append(((f"w{w}/p{p}", "is revoked"), True, self._tell(s, w, p, told, "revoked")))
            return
        if lane.effect < 0:
            first = not slot or self.worker(s, w).deaths > 0
            out.append(((f"w{w}/p{p}", "begins to recover"), owner, self._tell(s, w, p, lane, "assigned", first)))
            return
        effect = self.machine.effects.items[lane.effect]
        if not owner and isinstance(effect, do.Discard | do.Stop):
            return  # a bound: a zombie that failed does nothing more before it hears that it is one
        self._does[type(effect)](Turn(s, w, p, lane, owner, out), effect)

    def _current(self, s: State, w: int, p: int, lane: Lane) -> bool:
        """Whether the lane's session has the coordinator's epoch."""
        return lane.session and self.part(s, p).holder == w

    def _failed(self, s: State, w: int, p: int, lane: Lane, why: str, *, fenced: bool = False) -> State:
        return self._tell(s, w, p, lane, "failed", why, fenced)

    def _lose(self, s: State, w: int, p: int, lane: Lane, what: str, *after: tuple[str, State], out: Moves) -> None:
        """Variants of a request that went wrong: in each of these worlds the caller fails."""
        for how, world in after:
            spent = self._spend(world, NET)
            if spent is not None:
                out.append(((f"w{w}/p{p}", f"{what}: {how}"), False, self._failed(spent, w, p, lane, "no answer")))

    def _init(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = f"w{w}/p{p}", self.part(s, p)
        if part.phase == ONGOING:
            alive = self._open_elsewhere(s, p)
            if not (alive and lane.aborted):  # a bound: two that init in turn could do so for ever
                after = self._put_lane(s, w, p, lane._replace(aborted=alive))
                out.append(((who, "init: the open transaction is aborted"), owner, self._fence(after, p)))
            return
        if part.phase != IDLE:
            return
        taken = self._taken(self._claimed(s, w, p), p, w)
        out.append(((who, "init: done"), owner, self._tell(taken, w, p, lane._replace(session=True), "initialised")))
        nobody = self._taken(s, p, -1)
        late = self._send(s, ("init", p))
        self._lose(s, w, p, lane, "init", ("applied, no reply", nobody), ("will come late", late), out=out)

    def _claimed(self, s: State, w: int, p: int) -> State:
        """Beside slots, whoever takes the id over counts as the end of the one before him: no group says who lives."""
        record = self.newest(self.part(s, p))
        mine = f"w{w}.{self.worker(s, w).deaths}"
        other = record is not None and record.writer.incarnation != mine
        return self._killed(s, p) if other and "slot" in self.setting.workers else s

    def _open_elsewhere(self, s: State, p: int) -> bool:
        """Whether the session that has a transaction open is still somebody's."""
        holder = self.part(s, p).holder
        lane = self.worker(s, holder).lanes[p] if holder >= 0 else None
        return lane is not None and lane.session

    def _fetch_offsets(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        part = self.part(s, p)
        if part.pending and self._require_stable():
            after = self._failed(s, w, p, lane, "unstable")
            out.append(((f"w{w}/p{p}", "group offsets: not stable"), owner, after))
            return
        after = self._tell(s, w, p, lane, "held", part.held)
        out.append(((f"w{w}/p{p}", f"group offsets: {part.held or 'none'}"), owner, after))

    def _require_stable(self) -> bool:
        return True

    def _fetch_watermark(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        high = self._watermark(self.part(s, p).log)
        after = self._tell(s, w, p, lane, "high", high)
        out.append(((f"w{w}/p{p}", f"high watermark: {high}"), owner, after))
        log = self.part(s, p).log
        stale = next((i for i in range(len(log) - 1, 0, -1) if log[i] >= 0), 0)
        spent = self._spend(s, NET) if stale else None
        if spent is not None:
            told = self._tell(spent, w, p, lane, "high", stale)
            out.append(((f"w{w}/p{p}", f"high watermark, of a leader that is none any more: {stale}"), False, told))

    def _watermark(self, log: tuple[int, ...]) -> int:
        return len(log)

    def _read_newest(self, turn: Turn, read: do.ReadNewest) -> None:
        s, w, p, lane, owner, out = turn
        number = newest_below(self.part(s, p).log, read.high)
        if number is None:
            after = self._failed(s, w, p, lane, "blocked")
            out.append(((f"w{w}/p{p}", "an open transaction blocks reading"), owner, after))
            return
        what = shown(self.machine.record(number)) if number >= 0 else "nothing"
        told = self._tell(s, w, p, lane, "newest", number, self.highs(self.part(s, p)))
        out.append(((f"w{w}/p{p}", f"reads {what}"), owner, told))

    def _fetch_sibling(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        records = [self.newest(part) for i, part in enumerate(self.parts(s)) if i != p]
        born = next((record.born for record in records if record), None)
        out.append(((f"w{w}/p{p}", f"sibling: {born}"), owner, self._tell(s, w, p, lane, "sibling", born)))

    def _go_on(self, turn: Turn, effect: Any) -> None:
        s, w, p, lane, owner, out = turn
        out.append(((f"w{w}/p{p}", type(effect).__name__), owner, self._tell(s, w, p, lane, "done")))

    def _assign(self, turn: Turn, assign: do.AssignReader) -> None:
        s, w, p, lane, owner, out = turn
        at = offsets_of(assign.positions)
        after = self._tell(s, w, p, lane, "done")
        if self.setting.grows and not self.part(s, p).begin:
            after = self._put_part(after, p, self.part(after, p)._replace(begin=at))
        out.append(((f"w{w}/p{p}", f"begins to read at {at}"), owner, after))

    # A transaction.

    def _send_offsets(self, turn: Turn, send: do.SendOffsets) -> None:
        s, w, p, lane, owner, out = turn
        who, part = f"w{w}/p{p}", self.part(s, p)
        if not self._current(s, w, p, lane):
            after = self._failed(s, w, p, lane, "fenced", fenced=True)
            out.append(((who, "offsets: fenced"), owner, after))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        opened = self._put_part(s, p, part._replace(phase=ONGOING))
        offsets = self._sent(send)
        if not self._is_member(s, w):
            out.append(((who, "offsets: no member any more"), owner, self._failed(opened, w, p, lane, "no member")))
            return
        taken = self._put_part(s, p, part._replace(phase=ONGOING, pending=offsets))
        out.append(((who, f"offsets: {offsets}"), owner, self._tell(taken, w, p, lane, "done")))
        late = self._send(opened, ("offsets", p, w, offsets))
        lost = [("lost", s), ("taken, no reply", taken), ("will come late", late)]
        self._lose(s, w, p, lane, "offsets", *lost, out=out)

    def _sent(self, send: do.SendOffsets) -> tuple[int, ...]:
        return offsets_of(send.positions)

    def _loose(self, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
        """What a transaction holds: its record, and the outcomes of an attempt that delivers."""
        record = self.task(lane).pending
        assert record
        delivers = isinstance(record, Attempt) and record.batch.deliveries
        return self.machine.records.number(record), outcomes_of(lane.carried) if delivers else ()

    def _entry(self, number: int) -> int:
        """A record as it lands: not visible before the marker."""
        return number << 1

    def _flush(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = f"w{w}/p{p}", self.part(s, p)
        number, outcomes = self._loose(lane)
        if not self._current(s, w, p, lane):
            out.append(((who, "produce: fenced"), owner, self._failed(s, w, p, lane, "fenced", fenced=True)))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        count, high = 1 + len(outcomes), len(part.log)
        opened = part._replace(phase=ONGOING, marked=True)
        landed = opened._replace(log=(*part.log, self._entry(number)))
        full = landed._replace(loose=part.loose + outcomes)
        text = f"produce: {shown(self.machine.record(number))} at {high}, {len(outcomes)} outcomes"
        out.append(
            ((who, text), owner, self._tell(self._put_part(s, p, full), w, p, lane, "flushed", count, count, high))
        )
        spent = self._spend(s, NET)
        if spent is None:
            return
        record_late = self._send(
            self._put_part(spent, p, opened._replace(loose=part.loose + outcomes)), ("record", p, number)
        )
        reports: list[tuple[str, State, int, int | None]] = [
            ("the record will come late", record_late, count - 1, None)
        ]
        if outcomes:
            late = self._send(self._put_part(spent, p, landed), ("outcomes", p, outcomes))
            reports.append(("the outcomes will come late", late, 1, high))
        for how, after, delivered, first in reports:
            told = self._tell(after, w, p, lane, "flushed", delivered, count, first)
            out.append(((who, f"produce: {how}"), False, told))
        lost = [("lost", s), ("written, no reply", self._put_part(s, p, full))]
        self._lose(s, w, p, lane, "produce", *lost, out=out)

    def _commit(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = f"w{w}/p{p}", self.part(s, p)
        if not self._current(s, w, p, lane):
            out.append(((who, "commit: fenced"), owner, self._failed(s, w, p, lane, "fenced", fenced=True)))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        ended = self._ended(s, p)
        out.append(((who, "commit: done"), owner, self._tell(ended, w, p, lane, "committed", None)))
        variants = [("lost", s), ("done, no reply", ended), ("will come late", self._send(s, ("end", p)))]
        self._lose(s, w, p, lane, "commit", *variants, out=out)
        spent = self._spend(ended, NET)
        if spent is not None:
            told = self._tell(self._send(spent, ("end", p)), w, p, lane, "committed", "repeated")
            out.append(((who, "commit: done at the second try, the first will come late"), False, told))

    def _ended(self, s: State, p: int) -> State:
        """After EndTxn: what is open is committed; where nothing is, the coordinator says yes once more."""
        part = self.part(s, p)
        return self._put_part(s, p, self._decide(s, p)) if part.phase == ONGOING else s

    # User code.

    def _await(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        task, who = self.task(lane), f"w{w}/p{p}"
        offsets = offsets_of(task.positions)
        if task.due:
            due = task.due
            after = self._tell(s, w, p, lane, "polled", offsets_of(due.ends), due.steps, due.choice)
            out.append(((who, f"polls again up to {offsets_of(due.ends)}"), owner, after))
            return
        rest = self.rest(offsets, self.highs(self.part(s, p)))
        for steps in self._cuts(task, rest):
            ends = self._behind(offsets, steps)
            if task.snapshot_due:
                choice = self._choice(steps)
                after = self._tell(s, w, p, lane, "polled", ends, len(steps), choice)
                out.append(((who, f"polls up to {ends} {choice or ''}"), owner, after))
            else:
                self._run(turn, steps)
        if not any(rest):
            self._at_the_end(turn, offsets)

    def _at_the_end(self, turn: Turn, offsets: tuple[int, ...]) -> None:
        s, w, p, lane, owner, out = turn
        high, who = self.highs(self.part(s, p)), f"w{w}/p{p}"
        if self.setting.workers[w] == "slot":
            if not lane.said:
                after = self._tell(s, w, p, lane._replace(said=True), "revoked")
                out.append(((who, "has delivered its range"), owner, after))
        elif offsets != high:
            out.append(((who, f"moves over markers to {high}"), owner, self._tell(s, w, p, lane, "idle", high)))

    def _cuts(self, task: Task, rest: list[tuple[int, ...]]) -> Iterator[tuple[Step, ...]]:
        """What may be taken at once, the largest first; one step in careful mode; a recorded choice is kept."""
        limit = 1 if task.careful else self.setting.batch
        match self.setting.pairing:
            case "join":
                rows: list[Step] = [tuple(enumerate(row)) for row in zip(*rest, strict=False)]
                yield from (tuple(rows[:n]) for n in range(min(limit, len(rows)), 0, -1))
            case "alts":
                if task.choice:
                    order = self._ordered(task.choice)
                    yield from (self._in_order(order[:n], rest) for n in range(min(limit, len(order)), 0, -1))
                else:
                    yield from self._alternatives(rest, limit)
            case _:
                single = rest[0]
                yield from (tuple(((0, o),) for o in single[:n]) for n in range(min(limit, len(single)), 0, -1))

    def _alternatives(self, rest: list[tuple[int, ...]], limit: int) -> Iterator[tuple[Step, ...]]:
        for count in range(limit, 0, -1):
            for order in product(range(len(rest)), repeat=count):
                if all(order.count(b) <= len(offsets) for b, offsets in enumerate(rest)):
                    yield self._in_order(order, rest)

    def _in_order(self, order: tuple[int, ...], rest: list[tuple[int, ...]]) -> tuple[Step, ...]:
        taken = [iter(offsets) for offsets in rest]
        return tuple(((b, next(taken[b])),) for b in order)

    def _ordered(self, choice: Choice) -> tuple[int, ...]:
        return tuple(self.bindings.index(name) for name, run in choice for _ in range(run))

    def _choice(self, steps: tuple[Step, ...]) -> Choice:
        if self.setting.pairing != "alts":
            return ()
        return tuple((self.bindings[b], len(list(run))) for b, run in groupby(steps, key=lambda step: step[0][0]))

    def _behind(self, offsets: tuple[int, ...], steps: tuple[Step, ...]) -> tuple[int, ...]:
        ends = list(offsets)
        for step in steps:
            for binding, offset in step:
                ends[binding] = offset + 1
        return tuple(ends)

    def _due(self, task: Task, count: int, choice: Choice) -> tuple[Step, ...]:
        """The steps that a call or a quarantine is for."""
        rest = self.rest(offsets_of(task.positions))
        match self.setting.pairing:
            case "join":
                return tuple(tuple(enumerate(row)) for row in zip(*rest, strict=False))[:count]
            case "alts":
                return self._in_order(self._ordered(choice)[:count], rest)
            case _:
                return tuple(((0, o),) for o in rest[0][:count])

    def _call(self, turn: Turn, call: do.Call) -> None:
        self._run(turn, self._due(self.task(turn.lane), call.steps, call.choice))

    def _run(self, turn: Turn, steps: tuple[Step, ...]) -> None:
        """User code for these steps: every way in which it can end."""
        s, w, p, lane, owner, out = turn
        task, who = self.task(lane), f"w{w}/p{p}"
        offsets = offsets_of(task.positions)
        wrong = self._identified(task, steps)
        for kinds, halt in self._results(steps):
            done = tuple(zip(steps, kinds, strict=False))
            begun = len(done) + (halt == "retry")  # who asks to be called again has acted already
            after = self._applied(s, p, task, list(steps[:begun]))
            if wrong:
                after = self._put_part(after, p, self.part(after, p)._replace(wrong=wrong))
            if halt == "kill":
                out.append(
                    ((who, f"calls user code, which kills its process after {len(done)}"), owner, self._dead(after, w))
                )
                continue
            if halt == "retry":
                spent = self._spend(after, NET)
                if spent is None or (not done and task.state is Doing.READY):
                    continue
                after = spent
            ends = self._behind(offsets, tuple(step for step, _ in done)) if done else ()
            told = self._tell(after, w, p, lane._replace(carried=done), "called", ends, counts(kinds), halt)
            out.append(((who, f"calls user code: {kinds or 'nothing'} {halt}"), owner and halt != "retry", told))
        self._deaths_inside(turn, task, steps)

    def _deaths_inside(self, turn: Turn, task: Task, steps: tuple[Step, ...]) -> None:
        """Somebody kills the process after some effects of user code."""
        s, w, p, _, _, out = turn
        spent = self._spend(s, CRASH) if self.setting.effects else None
        if spent is not None:
            for count in range(1, len(steps) + 1):
                after = self._dead(self._applied(spent, p, task, list(steps[:count])), w)
                out.append(((f"w{w}", f"dies in user code after {count} effects"), False, after))

    def _results(self, steps: tuple[Step, ...]) -> Iterator[tuple[str, str]]:
        """What user code may give: a kind for each step that it ended, and why not for more."""
        found = [("", "")]
        for step in steps:
            kind = self._kind(step)
            more = []
            for kinds, halt in found:
                if halt:
                    more.append((kinds, halt))
                else:
                    more += [(kinds + k if not h else kinds, h) for k, h in MEANS[kind]]
            found = more
        yield from found

    def _kind(self, step: Step) -> str:
        binding, offset = step[0]
        return self.setting.inputs[binding][offset]

    def _identified(self, task: Task, steps: tuple[Step, ...]) -> str:
        """I6: the hash that user code is given names the delivery, on every attempt."""
        for step in steps:
            name = hashing.delivery_hash("g", "p", self._consumed(task, step))
            if self.hashes.setdefault((task.spec.partition, step), name) != name:
                return f"I6: the hash of {step} is another one at this attempt"
        return ""

    def _consumed(self, task: Task, step: Step) -> list[Coordinates]:
        ids = self.machine.facts.ids
        return [Coordinates(self.bindings[b], ids[b], task.spec.partition, offset) for b, offset in step]

    def _applied(self, s: State, p: int, task: Task, steps: list[Step]) -> State:
        """E1: lock the row, refuse a smaller owner, skip what is applied already, set both."""
        if not self.setting.effects or not steps:
            return s
        part = self.part(s, p)
        number, owner, applied = part.ledger
        mine = task.owner if task.owner is not None else -1
        if mine < owner:
            return s
        assert task.record
        for i, step in enumerate(steps):
            if task.record.step + i + 1 > number:
                number, applied = number + 1, (*applied, step)
        return self._put_part(s, p, part._replace(ledger=(number, mine, applied)))

    def _quarantine(self, turn: Turn, quarantine: do.Quarantine) -> None:
        s, w, p, lane, owner, out = turn
        part = self.part(s, p)
        steps = self._due(self.task(lane), 1, quarantine.choice)
        ends = self._behind(offsets_of(self.task(lane).positions), steps)
        if ends != offsets_of(quarantine.ends):
            s = self._put_part(
                s, p, part._replace(wrong=f"I11: several messages up to {offsets_of(quarantine.ends)} are taken out")
            )
        carried = lane._replace(carried=((steps[0], "q"),))
        told = self._tell(s, w, p, carried, "called", ends, counts("q"), "")
        out.append(((f"w{w}/p{p}", "takes the message out, undecoded"), owner, told))

    def _stopped(self, turn: Turn, stop: do.Stop) -> None:
        """A refusal is tried again later; a slot ends; who stops on purpose stays so until an operator comes."""
        s, w, p, lane, owner, out = turn
        if self.setting.workers[w] == "slot":
            deaths, lanes = self.worker(s, w)
            after = self._put_worker(s, w, Worker(deaths + 1, put(lanes, p, None)))
            out.append(((f"w{w}/p{p}", f"ends: {stop.halt.text}"), owner, after))
        elif stop.halt.kind == "refused":
            out.append(
                (
                    (f"w{w}/p{p}", f"tries again after: {stop.halt.text}"),
                    owner,
                    self._tell(s, w, p, lane, "assigned", True),
                )
            )

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
        if kind == "init":  # nobody waits for it, so what it is refused it does not ask again
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
            return self._put_part(s, p, part._replace(log=(*part.log, message[2] << 1)))
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

    def _dead(self, s: State, w: int) -> State:
        """A new process in the place of the old one; as a static member it has its partitions at once."""
        deaths, lanes = self.worker(s, w)
        group = self.group(s)
        after: list[Lane | None] = []
        for p, lane in enumerate(lanes):
            if lane is not None:
                s = self._killed(s, p)
            mine = group.owners[p] == w and group.members[w]
            if mine and group.revoking[p]:
                group = unowned(group, p)
                mine = False
            after.append(self._new_lane(w, deaths + 1, p) if mine else None)
        return self._put_worker(self._put_group(s, group), w, Worker(deaths + 1, tuple(after)))

    def _killed(self, s: State, p: int) -> State:
        part = self.part(s, p)
        if not part.killed[0]:
            return s
        return self._put_part(s, p, part._replace(killed=(part.killed[0], part.killed[1] + 1)))

    def _expelled(self, s: State, w: int, *, dead: bool = False) -> State:
        """The session ended; the member's requests on their way are refused. Its process goes on, if it lives."""
        group = self.group(s)
        for p, owner in enumerate(group.owners):
            if owner == w:
                group = unowned(group, p)
                s = s if dead else self._killed(s, p)
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
                    after = self._put_lane(self._killed(spent, p), owner, p, None)
                    out.append(((f"w{owner}/p{p}", "waits no longer, and abandons the task"), False, after))
            elif not any(group.revoking):
                taken = tuple(o >= 0 for o in group.owners) if self.setting.eager else put(group.revoking, p, True)
                after = self._put_group(spent, group._replace(revoking=taken))
                out.append((("group", f"revokes p{p}"), False, after))
