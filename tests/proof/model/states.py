"""Values that a state is made of, see `world`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.task import Doing
from tests.proof.model.machine import offsets_of
from tests.proof.model.stores import NOTHING_HELD, Changelog, Held

State: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[tuple[int, int], ...]
"""A delivery: (number of the binding, offset) of each message."""

Delivered: TypeAlias = tuple[tuple[Step, str], ...]
"""Steps with what became of them: `o`utput, `f`ork of two, `e`rror, `q`uarantined, `n`il, and `x`, an
error besides an output."""

Label: TypeAlias = tuple[str, str]
"""Who moves, and the move."""

Moves: TypeAlias = list[tuple[Label, bool, State]]
"""Transitions: label, whether it is calm, and where it leads. Calm: no fault, no zombie, nothing late."""

IDLE, ONGOING, COMMITTING, ABORTING = range(4)
NOT_OURS, MET, REMEDIED = range(1, 4)
"""Of `Part.reset`."""

HOLE: Final = -1
"""In a backing log: a marker, an aborted record, or one that the cleaner took."""

RECORDS: Final = {"o": 1, "f": 2, "e": 1, "q": 1, "n": 0, "d": 0, "x": 2}

PAST_GATE: Final = frozenset({Doing.SENDING_OFFSETS, Doing.EMITTING, Doing.PRODUCING, Doing.FLUSHING, Doing.COMMITTING})
"""Past P5: a revocation waits for these (A3). The same as in `task.interpreter`."""


class Turn(NamedTuple):
    """
    A lane whose effect is due.

    Attributes:
        s: the state.
        w: the worker's number.
        p: the partition.
        lane: what it is there.
        owner: whether the partition is its worker's; what a zombie does is not calm.
        out: transitions are added here.
    """

    s: State
    w: int
    p: int
    lane: Lane
    owner: bool
    out: Moves


class Outcome(NamedTuple):
    """
    One record of an output or errors topic: `number` (from 0) of the records of its delivery.

    `view` is what its step saw with its tailer, in worlds with `Setting.tailed`.
    """

    step: Step
    kind: str
    number: int
    of: int
    view: tuple[int, int] = (0, 0)


class Lane(NamedTuple):
    """
    One task in one worker.

    Attributes:
        task: its number.
        effect: what it waits for; -1: to be assigned.
        session: whether it has one; it is current while the partition's `holder` is this worker.
        carried: what user code gave, to be produced behind the next attempt.
        said: whether it was told of its revocation.
        aborted: whether its init ended a transaction of a session that lives.
        alone: whether nothing else of the process may run user code now (Q2a).
        turn: the input of alts that its next batch begins with, in worlds with `Setting.turns`.
        fetched: what it read and announced, in worlds with `Setting.compacts`: what is cleaned later does not matter.
        store: what its process holds of the store, in worlds with `Setting.stores`.
        own: what `handlers`, `tables` and `outbox` keep with it.
    """

    task: int
    effect: int = -1
    session: bool = False
    carried: Delivered = ()
    said: bool = False
    aborted: bool = False
    alone: bool = False
    turn: int = 0
    fetched: tuple[Step, ...] = ()
    store: Held = NOTHING_HELD
    own: Any = None


class Worker(NamedTuple):
    """A process: how often it died, and its lanes by partition."""

    deaths: int
    lanes: tuple[Lane | None, ...]


class Part(NamedTuple):
    """
    What the brokers know of one task.

    Attributes:
        log: backing partition: 2r for record r in an open transaction, 2r + 1 when it is committed, or `HOLE`.
        outputs: committed ones.
        loose: those of the open transaction.
        holder: worker whose session initialised last; -1: none is current.
        phase: of the transaction.
        marked: whether the backing partition is part of it.
        pending: its offsets.
        held: the group's offsets; empty: none.
        killed: ends of the newest snapshot's ranges, and how many processes died or lost the task under it.
        lost: incarnation of a process that lost the task, until it has polled again, in worlds with `Setting.others`: a
            loss counts as a death (Q1), and until it polls the process keeps no other task back.
        shared: how often such a snapshot was open when user code of another task killed the process.
        reset: another program set the group's offsets: `NOT_OURS`; the task was taken over since: `MET`; they were
            deleted, as the refusal advises: `REMEDIED`; 0: they are the task's.
        grown: messages that arrived since the world began, of those that `Setting.grows` speaks of.
        begin: where the task was pointed first, or its first record; what arrives from there on must be delivered.
        ledger: an effect's target: number of the last step, owner, and the steps in the order in which they arrived.
        cleaned: messages that compaction took before they were delivered.
        base: deliveries, outputs, errors and nils before the task was moved last; `outputs` begin with that move.
        mover: incarnation of the tool that moved the task last.
        changes: the store's changelog.
        table: messages of the table that arrived since the world began, in worlds with `Setting.tables`; of the tailed
            topic, in worlds with `Setting.tailed`.
        target: what `outbox` keeps with it: the database, in worlds with `Setting.target`. What `tailing` keeps: what
            the first call of each step saw. What `marking` keeps: what is missing of the log.
        started: at-most-once: steps that user code got, in order.
        excused: at-most-once: a process died or lost the task, or a step was under way when its task ended.
        delivered: at-least-once: steps whose outcomes have landed.
        asked: the replay topic: which errors are to be replayed, see `replaying`.
        wrong: a violation that was seen when it happened.
    """

    log: tuple[int, ...] = ()
    outputs: tuple[Outcome, ...] = ()
    loose: tuple[Outcome, ...] = ()
    holder: int = -1
    phase: int = IDLE
    marked: bool = False
    pending: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    killed: tuple[tuple[int, ...], int] = ((), 0)
    lost: str = ""
    shared: int = 0
    reset: int = 0
    grown: int = 0
    begin: tuple[int, ...] = ()
    ledger: tuple[int, int, tuple[Step, ...]] = (0, -1, ())
    cleaned: tuple[int, ...] = ()
    base: tuple[int, ...] = (0, 0, 0, 0)
    mover: str = ""
    changes: Changelog = ()
    table: int = 0
    target: Any = None
    started: tuple[Step, ...] = ()
    excused: bool = False
    delivered: tuple[Step, ...] = ()
    asked: tuple[tuple[int, int], ...] = ()
    wrong: str = ""


class Group(NamedTuple):
    """Who is a member, who owns each partition (-1: no worker), and which ones are being revoked."""

    members: tuple[bool, ...]
    owners: tuple[int, ...]
    revoking: tuple[bool, ...]


class Faults(NamedTuple):
    """
    How many of each may happen.

    Attributes:
        crash: deaths of a process.
        move: rebalances; starts of further slots; group offsets that a program sets; records of an intruder. Staged:
            a second driver; checkpoints that are new or restored.
        net: requests or replies that are lost or late; time-outs of the coordinator; errors that are retried.
        zombie: members that are expelled and do not know it; Spark's tasks that are taken for lost.
        total: of all together.
    """

    crash: int
    move: int
    net: int
    zombie: int
    total: int

    def spend(self, kind: int) -> Faults | None:
        """What is left after one of this kind, by its place; None: there is none left."""
        if not self[kind] or not self.total:
            return None
        left = list(self)
        left[kind] -= 1
        left[4] = total = left[4] - 1
        return Faults(*left) if total else Faults(0, 0, 0, 0, 0)


CRASH, MOVE, NET, ZOMBIE = range(4)
"""Places in `Faults`."""

NO_FAULTS: Final = Faults(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    One world.

    Attributes:
        name: for the command line.
        about: what it is for.
        inputs: by binding, messages by offset: `o`utput, `f`ork, `e`rror, `n`il, `?` any of o, n and e, `r` may be
            retried, `k` kills, `s` stops on purpose, `.` a marker; with `handlers`, `c` asks for a commit.
        pairing: see `Spec`.
        workers: `native`, `slot`, or `tool` with `moves`; `renamed`, `wider`, `narrower` and `dropper` see the modules
            `renaming`, `migrating` and `dropping`; in staged worlds see `staging`.
        partitions: of each input; all have the same messages, except for `others`.
        others: in the place of `inputs`, from partition 1 on; markers are at the same places.
        batch: the most steps in one transaction.
        effects: user code acts on a target that is fenced by step number and owner (E1).
        errors: an errors topic takes what cannot be delivered.
        eager: a rebalance takes all partitions, not one.
        grows: how many of the last messages arrive one by one, at any time.
        turns: batches of alts take from the inputs as `core.turns` says, not in every order that is allowed.
        moves: the lives of a tool that resets all tasks (X2): starts, and deaths.
        compacts: how many messages of the only input may be compacted away, at any time; never the last one.
        stores: user code changes a store.
        handlers: the store is a state handler's.
        tables: `own`: user code looks up a table's partition; `whole`: a table that each process holds once.
        timers: by the offset of the message that sets it, when a timer is due, see `timers`; `.` sets none.
        fires: by the same offset, what becomes of the timer, as in `inputs`.
        replays: how many requests to replay an error message arrive, at any time (X1).
        again: by offset, what becomes of a message when it is replayed, as in `inputs`.
        target: user code writes into a target, which commits the attempt too (E1).
        restores: an old backup of the target may be restored, and an operator then restores the newest state.
        feed: the messages come from a source that is no topic (G1).
        window: messages that this source delivers without an acknowledgement (B1); 0: it has places instead.
        tailed: how many messages arrive one by one in a topic that user code reads with a tailer (L1).
        tails_itself: the tailed topic is the input.
        fixed_views: each call of a step must see the same of it (S5).
        reorders: every second life of a worker declares its inputs in the other order (O7).
        start: see `Spec`.
        forgets: a broker that dies may come back without the end of the backing partition's log, see `marking`.
        intruder: a program may write into the backing partition, with another transactional id.
        resets: a program may set the group's offsets, and an operator then deletes them.
        strategy: see `Spec`.
        changes: the strategy that an operator gives to all tasks; the second worker runs with it.
        stateless: staged: Spark keeps nothing between two batches.
        checkpoints: staged: `other`: a query with a new checkpoint may be started; `restored`: an old copy of the
            checkpoint may be put in its place.
        faults: how many.
    """

    name: str
    about: str
    inputs: tuple[str, ...] = ("oo",)
    pairing: str = "single"
    workers: tuple[str, ...] = ("native", "native")
    partitions: int = 1
    others: tuple[str, ...] = ()
    batch: int = 2
    effects: bool = False
    errors: bool = True
    eager: bool = False
    grows: int = 0
    turns: bool = False
    moves: int = 0
    compacts: int = 0
    stores: bool = False
    handlers: bool = False
    tables: str = ""
    timers: str = ""
    fires: str = ""
    replays: int = 0
    again: str = ""
    target: bool = False
    restores: bool = False
    feed: bool = False
    window: int = 0
    tailed: int = 0
    tails_itself: bool = False
    fixed_views: bool = False
    reorders: bool = False
    start: str = "earliest"
    forgets: bool = False
    intruder: bool = False
    resets: bool = False
    strategy: str = "exactly-once"
    changes: str = ""
    stateless: bool = True
    checkpoints: str = ""
    faults: Faults = NO_FAULTS


QUARANTINE_AFTER: Final = 2

MEANS: Final[dict[str, list[tuple[str, str]]]] = {
    "o": [("o", "")],
    "f": [("f", "")],
    "e": [("e", "")],
    "n": [("n", "")],
    "?": [("o", ""), ("n", ""), ("e", "")],
    "r": [("o", ""), ("", "retry")],
    "k": [("", "kill")],
    "s": [("", "interrupt")],
}
"""What user code may do with a message of each kind: an outcome, or why it goes no further."""


def holds(part: Part) -> bool:
    """Whether a transaction holds readers or offsets up; one with nothing in it ends unnoticed."""
    return part.phase > ONGOING or bool(part.pending or part.marked)


def put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    """The same tuple with another item there."""
    return (*items[:at], item, *items[at + 1 :])


def unowned(group: Group, p: int) -> Group:
    """The group when no worker owns `p`."""
    return group._replace(owners=put(group.owners, p, -1), revoking=put(group.revoking, p, False))


def settled(entry: int, won: bool) -> int:
    """A log entry after the markers of its transaction."""
    if entry < 0 or entry & 1:
        return entry
    return entry | 1 if won else HOLE


def newest_below(log: tuple[int, ...], high: int) -> int | None:
    """Read committed: the newest record below `high`, -1: there is none, None: an open transaction is in the way."""
    newest = -1
    for entry in log[:high]:
        if entry >= 0:
            if not entry & 1:
                return None
            newest = entry >> 1
    return newest


def ranges(record: Record) -> tuple[int, ...]:
    """What a snapshot is about: where its ranges begin and end, which timers, which replay; empty: no snapshot."""
    if not isinstance(record, Snapshot):
        return ()
    timers = (record.step, record.steps) if record.timers else ()
    replay = (-1, *offsets_of(record.replays)) if record.replay else ()
    return offsets_of(record.positions) + offsets_of(record.ends) + timers + replay


def outcomes_of(carried: Delivered) -> tuple[Outcome, ...]:
    """The records that a batch of steps leaves."""
    return tuple(
        Outcome(step, ("e" if i else "o") if kind == "x" else kind, i, RECORDS[kind])
        for step, kind in carried
        for i in range(RECORDS[kind])
    )


def counts(kinds: str) -> tuple[int, ...]:
    """`Totals` of steps that ended so."""
    outputs, errors, nils = sum(map(kinds.count, "ofx")), sum(map(kinds.count, "eq")), kinds.count("n")
    messages = kinds.count("o") + 2 * kinds.count("f") + kinds.count("x")
    return len(kinds), outputs, errors, nils, messages


def shown(record: Record) -> str:
    """A record, for people."""
    if of := record.staged:
        text = f"{type(record).__name__} {record.sequence}, publication {of.number}: batch {of.batch} of {of.query}"
        return f"{text}, attempt {of.attempt or 'unnamed'}"
    text = f"{type(record).__name__} {record.sequence} at {offsets_of(record.positions)}"
    if isinstance(record, Snapshot):
        text += f" up to {offsets_of(record.ends)}, {record.starts} deaths{', left' if record.left else ''}"
    return text
