"""What a world is made of besides its workers' doings: states, the transaction coordinator, logs, inputs and the group.

See `world` for what stands for what.
"""

from __future__ import annotations

from typing import Any

from cues_kafka.core.records import Record, Snapshot, Totals, Writer
from cues_kafka.core.spec import Input, Move, Spec
from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.core.task import Task
from cues_kafka.core.turns import take
from tests.proof.model import stores
from tests.proof.model.machine import Facts, Key, Machine, Register, offsets_of
from tests.proof.model.states import (
    ABORTING,
    COMMITTING,
    HOLE,
    IDLE,
    MET,
    NO_FAULTS,
    NOT_OURS,
    ONGOING,
    QUARANTINE_AFTER,
    Faults,
    Group,
    Lane,
    Moves,
    Part,
    Setting,
    State,
    Step,
    Worker,
    put,
    ranges,
    settled,
    shown,
    unowned,
)


class Cluster:
    """A setting, the numbers that its states are made of, and what the brokers do."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.bindings = tuple("ab"[: len(setting.inputs)])
        names = tuple(Input(binding, f"topic-{binding}") for binding in self.bindings)
        facts = Facts(names, tuple(b.encode() * 16 for b in self.bindings), tuple(map(len, setting.inputs)))
        facts = facts._replace(replay="g.p.replay" if setting.replays else "")
        self.machine = Machine(facts)
        self.values: Register[tuple[Any, ...]] = Register()
        self.places = [tuple(i for i, kind in enumerate(log) if kind != ".") for log in setting.inputs]
        self.hashes: dict[tuple[int, Step], bytes] = {}
        self._workers = len(setting.workers)
        self._group = self._workers + setting.partitions
        self._net, self._faults = self._group + 1, self._group + 2

    # States.

    def first(self) -> State:
        """No worker owns anything, nothing is written; all workers are members."""
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

    def healed(self, s: State) -> State:
        """The same state where no fault may happen any more."""
        return (*s[: self._faults], self.values.number(NO_FAULTS), *s[self._faults + 1 :])

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

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        setting, kind = self.setting, self.setting.workers[w]
        return Spec(
            graph="g",
            processor="p",
            partition=p,
            inputs=self.machine.facts.inputs[:: -1 if setting.reorders and deaths % 2 else 1],
            pairing=setting.pairing,
            effects=setting.effects or setting.target,
            target=setting.target,
            errors=setting.errors,
            transactional_id=f"g.p.{p}",
            group="g.p",
            backing="g.p.backing",
            start=setting.start,
            width=setting.partitions,
            slot=kind == "slot",
            quarantine_after=QUARANTINE_AFTER,
            compacted=setting.compacts > 0,
            move=move,
            stores=((stores.STORE, "g.p.steps.changelog"),) if setting.stores else (),
            timers=bool(setting.timers),
            replay=self.machine.facts.replay,
            writer=Writer(f"g.p.{p}", kind, f"w{w}", f"w{w}.{deaths}"),
        )

    def _new_lane(self, w: int, deaths: int, p: int) -> Lane:
        return Lane(self.machine.new(self._spec(w, deaths, p)))

    # Inputs, and how far they are delivered.

    def ends(self, record: Record) -> tuple[int, ...]:
        """Up to where a record says that the inputs are delivered."""
        return offsets_of(record.positions)

    def finished(self, p: int, part: Part) -> bool:
        """Whether no message is left that may be delivered."""
        record = self.newest(part)
        offsets = offsets_of(record.positions) if record else part.begin
        if not offsets:
            return False
        rest = self.rest(offsets, self.highs(part), part.cleaned)
        logs = self.logs(p)
        following = [log[offsets[0]] for log, offsets in zip(logs, rest, strict=True) if offsets]
        short = self.setting.pairing == "join" and not all(rest)
        return short or not following or (len(following) == 1 and following[0] == "s")

    def logs(self, p: int) -> tuple[str, ...]:
        """What the messages of a partition are, by binding."""
        return self.setting.others or self.setting.inputs if p else self.setting.inputs

    def newest(self, part: Part) -> Record | None:
        """The newest committed record."""
        committed = [entry >> 1 for entry in part.log if entry >= 0 and entry & 1]
        return self.machine.record(committed[-1]) if committed else None

    def rest(
        self, offsets: tuple[int, ...], highs: tuple[int, ...] | None = None, cleaned: tuple[int, ...] = ()
    ) -> list[tuple[int, ...]]:
        """Of each binding, the offsets of the messages from there on, as far as they have arrived and still exist."""
        rows = zip(self.places, offsets, highs or self.machine.facts.high, strict=True)
        return [tuple(o for o in places if at <= o < high and o not in cleaned) for places, at, high in rows]

    def highs(self, part: Part) -> tuple[int, ...]:
        """The ends of the inputs as they are now."""
        missing = self.setting.grows - part.grown
        return tuple(high - missing for high in self.machine.facts.high) if missing else self.machine.facts.high

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
        after = part._replace(
            log=log, outputs=outputs, loose=(), phase=IDLE, marked=False, pending=(), held=held, reset=reset,
            changes=stores.marked(part.changes, won=won),
        )  # fmt: skip
        record = self._last(part) if won else None
        tool = record is not None and record.writer.runtime == "tool" and not isinstance(record, Snapshot)
        moved = tool and record and not record.batch.deliveries  # else it has published what a target was ahead with
        return self._begun_anew(after, record) if moved and record else after

    def _begun_anew(self, part: Part, record: Record) -> Part:
        """X2: from here on every message is due once more, and nothing of before counts as its outcome."""
        totals = record.totals
        base = (totals.deliveries, totals.outputs, totals.errors, totals.nils)
        return part._replace(outputs=(), begin=offsets_of(record.positions), base=base, mover=record.writer.incarnation)

    def _decide(self, s: State, p: int) -> Part:
        """EndTxn with commit: from now on the transaction happened, whatever becomes of the reply."""
        part = self.part(s, p)
        opened = self._opened(part)
        killed, shared = part.killed, part.shared
        wrong = part.wrong
        for number in opened:
            record = self.machine.record(number)
            ends = ranges(record)
            if not ends or ends != killed[0]:
                killed, shared = (ends, 0 if self._lives(s, p, record) else 1), 0
            wrong = wrong or self._chain(self.newest(part), record, part, killed[1])
        if part.reset == MET:
            wrong = wrong or f"I12: a recovery wrote although the group's offsets are {part.held}"
        if part.killed[1] <= QUARANTINE_AFTER and any(outcome.kind == "q" for outcome in part.loose):
            wrong = wrong or f"I11: quarantined after {part.killed[1]} deaths on that message"
        if self.setting.compacts:
            wrong = wrong or self._innocent(part, p)
        if len(opened) != 1:
            wrong = wrong or f"I2: a transaction with {len(opened)} task records was committed"
        begin = part.begin or (part.pending if self.setting.grows else ())
        return part._replace(phase=COMMITTING, killed=killed, shared=shared, wrong=wrong, begin=begin)

    def _opened(self, part: Part) -> list[int]:
        """The records of the open transaction."""
        return [entry >> 1 for entry in part.log if entry >= 0 and not entry & 1]

    def _innocent(self, part: Part, p: int) -> str:
        """I11 where the message that killed may be gone. Faults alone are too few for a quarantine."""
        taken = [o.step for o in part.loose if o.kind == "q"]
        blamed = [step for step in taken if any(self.logs(p)[b][offset] != "k" for b, offset in step)]
        return f"I11: {blamed[0]} is quarantined and never killed" if blamed else ""

    def _lives(self, s: State, p: int, record: Record) -> bool:
        """Whether who wrote a record still has the task; if not, it was counted as dead before it became visible."""
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
        if record.step != (before.step if before else 0) + record.batch.taken:
            return f"I13: step {record.step} of {shown(record)} does not follow from the record before it"
        if record.totals != (before.totals if before else Totals()).plus(record.batch):
            return f"I13: totals {record.totals} of {shown(record)} do not follow from the record before it"
        if part.pending != offsets_of(record.positions):
            return f"I2: offsets {part.pending} beside positions {offsets_of(record.positions)}"
        if isinstance(record, Snapshot) and record.starts > killed:
            return f"I11: {record.starts} deaths are recorded where {killed} happened"
        if before and record.writer.runtime != "tool" and record.strategy == EXACTLY_ONCE:
            ends = zip(offsets_of(record.positions), offsets_of(before.positions), strict=True)
            if any(now < was for now, was in ends):
                return f"I3: positions of {shown(record)} go back, from those of {shown(before)}"
        keeps = self.setting.effects or self.setting.target
        if isinstance(record, Snapshot) and isinstance(before, Snapshot) and keeps:
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

    def _ended(self, s: State, p: int) -> State:
        """After EndTxn: what is open is committed; where nothing is, the coordinator says yes once more."""
        part = self.part(s, p)
        return self._put_part(s, p, self._decide(s, p)) if part.phase == ONGOING else s

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

    def _is_member(self, s: State, w: int) -> bool:
        """The check in TxnOffsetCommit; who is outside on purpose is not asked (D4)."""
        if self.setting.workers[w] == "tool":
            return not any(self.group(s).members)  # it is the only member, or its generation is over
        return self.setting.workers[w] == "slot" or self.group(s).members[w]

    def _killed(self, s: State, p: int) -> State:
        part = self.part(s, p)
        if not part.killed[0]:
            return s
        return self._put_part(s, p, part._replace(killed=(part.killed[0], part.killed[1] + 1)))

    def _taken_away(self, s: State, p: int, w: int) -> State:
        """A process lost a task that it may have announced a step of."""
        s = self._killed(s, p)
        if not self.setting.others:
            return s
        return self._put_part(s, p, self.part(s, p)._replace(lost=f"w{w}.{self.worker(s, w).deaths}"))

    def _shared(self, s: State, p: int, incarnation: str) -> State:
        """Another task's message killed the process: a death too many for an announced step that had one already."""
        part = self.part(s, p)
        record = self._last(part)
        announced = isinstance(record, Snapshot) and not record.left and record.writer.incarnation == incarnation
        if not announced or not record or part.lost == incarnation:
            return s
        part = part._replace(shared=part.shared + 1)
        if part.shared > 1 and isinstance(record, Snapshot) and record.steps == 1:
            part = part._replace(
                wrong=f"I11: {part.shared} deaths in other tasks' messages count on one message at {ranges(record)}"
            )
        return self._put_part(s, p, part)

    def _last(self, part: Part) -> Record | None:
        """The newest record that is committed, or will be as soon as its markers are written."""
        decided = [entry >> 1 for entry in part.log if entry >= 0 and (entry & 1 or part.phase == COMMITTING)]
        return self.machine.record(decided[-1]) if decided else None
