"""What a task is at one moment: its state, its newest record, and what is due. `machine` has the transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.records import Attempt, Choice, Record, Snapshot
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import is_published
from cues_kafka.core.taking import Unsettled
from cues_kafka.ports.log import Positions

ALONE_AT = 1
"""Q2a: deaths on a single step after which nothing else of its process runs while it is delivered."""


class Doing(Enum):
    """What a task does. It waits for the answer to one effect, but in NEW, READY, STOPPED and RELEASED."""

    NEW = "new"
    INITIALISING = "initialising"
    FETCHING_OFFSETS = "fetching offsets"
    FETCHING_WATERMARK = "fetching watermark"
    READING_NEWEST = "reading newest"
    FETCHING_INPUTS = "fetching inputs"
    ASKING_TARGET = "asking target"
    FETCHING_SIBLING = "fetching sibling"
    FETCHING_PARTS = "fetching parts"
    ASSIGNING = "assigning"
    READY = "ready"
    CALLING = "calling"
    BEGINNING = "beginning"
    SENDING_OFFSETS = "sending offsets"
    EMITTING = "emitting"
    PRODUCING = "producing"
    FLUSHING = "flushing"
    COMMITTING = "committing"
    DISCARDING = "discarding"
    STOPPED = "stopped"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Due:
    """
    The task must deliver exactly these ranges next, in this order of bindings. `starts` deaths count on them.

    With `timers` it must fire exactly its first `steps` timers next (F3), with `replay` deliver the next request (Y1).
    """

    ends: Positions
    steps: int
    choice: Choice
    starts: int
    timers: bool = False
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """
    One processor at one partition, at one moment.

    Attributes:
        spec: what never changes.
        state: see `Doing`.
        record: the newest committed record; None before the first.
        pending: the record of the transaction under way.
        then: the state that the transaction under way leads to: CALLING, READY, ASSIGNING, FETCHING_INPUTS, STOPPED or
            RELEASED.
        halt: why the task stops, or stopped.
        expected: offset at which the next task record must land (P6a).
        follows: `expected` is behind a transaction of this session; else it is what R3 found (P6b).
        due: ranges that must be delivered as they are: those of a retry, or of the snapshot just committed.
        first: this start of the task has begun no batch of steps yet (S1).
        careful_until: one step per transaction up to here (Q2).
        careful_timers: how many timers must fire one per transaction (F3).
        choice: what remains of a recorded choice of alts, with effects and in careful mode.
        owner: sequence of the first record of this start; None before it.
        rounds: returns to R1 since the last commit of an attempt (R7).
        recovered_at_s: monotonic time of the last answer to R5.
        fenced_at_s: monotonic time at which the task was last fenced.
        fenced_twice: the task was fenced twice within `FENCED_WITHIN_S` and has delivered nothing since.
        stale_since_s: monotonic time since which R5 would refuse for what may be a stale answer.
        left_due: the newest record may be a snapshot of this process that does not say `left` (Q1). Only before R4,
            and after a stop.
        leaving: the task was revoked while it recovered, and goes on only to commit what it owes (see `owes`).
        offsets: the answer to R2, while R3 to R5 go on.
        inputs: the answer to R5.
        tail_facts: the same for tailers and the replay topic.
        tail_ends: up to where tailers show messages to the due steps, or to the next one, which was put off (S5).
        carried: at-most-once: what the next transaction commits of the batch that was called last (W1).
        resolved: at-least-once: where a start begins whose offsets were sent, and whose record is not there yet (W6).
    """

    spec: Spec
    state: Doing = Doing.NEW
    record: Record | None = None
    pending: Record | None = None
    then: Doing = Doing.READY
    halt: Halt | None = None
    expected: int = 0
    follows: bool = False
    due: Due | None = None
    first: bool = True
    careful_until: Positions = ()
    careful_timers: int = 0
    choice: Choice = ()
    owner: int | None = None
    rounds: int = 0
    recovered_at_s: float | None = None
    fenced_at_s: float | None = None
    fenced_twice: bool = False
    stale_since_s: float | None = None
    left_due: bool = False
    leaving: bool = False
    offsets: tuple[tuple[str, int | None], ...] = ()
    inputs: tuple[tuple[str, InputFacts], ...] = ()
    tail_facts: tuple[tuple[str, InputFacts], ...] = ()
    tail_ends: Positions = ()
    carried: Unsettled | None = None
    resolved: Positions = ()

    @property
    def positions(self) -> Positions:
        """The next offset of each input, by the newest committed record."""
        return self.record.positions if self.record else ()

    @property
    def careful(self) -> bool:
        """Whether the next step must be alone in its transaction (Q2, F3)."""
        return self.careful_timers > 0 or before(self.positions, self.careful_until)

    @property
    def step_by_step(self) -> bool:
        """Whether the next batch has one step: in careful mode, or where the next step was put off (S5)."""
        return self.careful or bool(self.tail_ends)

    @property
    def snapshot_due(self) -> bool:
        """Whether the shell says `Polled`, and waits for `Call`, before it touches a message (S1, S2, S5, G3, W1)."""
        if self.spec.rules.takes:
            return True
        kept = self.spec.fixed_views or (self.spec.effects and self.spec.pairing == "alts")
        due = self.first or self.due is not None or kept
        return due and self.spec.rules.snapshots and not self.spec.feed

    @property
    def takes_replays(self) -> bool:
        """Whether a request of the replay topic may come next (Y1): nothing that was announced or put off is due."""
        stands = bool(self.spec.replays and self.record and self.record.replays)
        return stands and self.due is None and not (self.choice or self.step_by_step)

    @property
    def messages_first(self) -> bool:
        """
        Whether messages that are there come before any request (Y1): in each start, where calls have effects.

        The process before may have called the next message without a snapshot. A target that goes by step numbers would
        take its effect for that of a replay in its place.
        """
        return self.first and self.spec.effects

    @property
    def pipelined(self) -> bool:
        """Whether user code may be called while a commit is under way (P7)."""
        waits = self.snapshot_due or self.careful or self._seen_at_once or self._commits_something_else
        return self.spec.rules.ahead and not waits

    @property
    def _commits_something_else(self) -> bool:
        """
        Whether the record under way is none that a batch of messages follows at once (P7).

        Behind a snapshot comes the attempt that it announces, also that of a replay (Y1), which may be announced where
        no snapshot is due. Behind a task's first record comes a recovery, and behind the last one nothing.
        """
        return self.pending is not None and not (isinstance(self.pending, Attempt) and self.then is Doing.READY)

    @property
    def _seen_at_once(self) -> bool:
        """
        Whether something is seen outside of Kafka of a call that is thrown away (P7).

        A target holds what user code writes in an open transaction, until the commit before it is known (E1). Stores,
        tailers and timers beside a target are not called ahead: no world shows that they may be.
        """
        spec = self.spec
        return spec.effects and not (spec.target and not (spec.stores or spec.tailers or spec.timers))

    @property
    def alone(self) -> bool:
        """
        Whether nothing else of the process may run user code from now until `settled` (Q2a).

        One death is counted on the due step. The next one must be its own: if a message of another task killed the
        process meanwhile, that death would count on this step.
        """
        due = self.due
        return due is not None and due.steps == 1 and due.starts >= ALONE_AT and not self.quarantined

    @property
    def settled(self) -> bool:
        """Whether a death of the process now would count on no step of this task (Q1)."""
        if self.state is Doing.READY:
            return not self.must_leave(self.record)
        return self.state in (Doing.NEW, Doing.STOPPED, Doing.RELEASED)

    @property
    def published(self) -> bool:
        """Whether the part that this slot publishes is committed (T3)."""
        return is_published(self.spec.staged, self.record)

    @property
    def next_sequence(self) -> int:
        """The sequence of the record that follows the pending one, or the newest one if none is pending."""
        newest = self.pending or self.record
        return newest.sequence + 1 if newest else 0

    @property
    def next_base(self) -> int:
        """The number of the last step before the next batch: that of the pending record, or of the newest one."""
        newest = self.pending or self.record
        return newest.step if newest else 0

    @property
    def quarantined(self) -> bool:
        """Whether the due step has killed its process too often (Q3)."""
        after = self.spec.quarantine_after
        return after is not None and self.due is not None and self.due.steps == 1 and self.due.starts > after

    @property
    def in_doubt(self) -> Unsettled | None:
        """W3: what is carried, and whether a commit of it was asked for and has no answer."""
        if self.carried is None or self.state is not Doing.COMMITTING:
            return self.carried
        return replace(self.carried, doubtful=True)

    @property
    def may_owe_left(self) -> bool:
        """Whether the newest record may be a snapshot that must say `left`; only R4 tells what the last commit did."""
        return self.left_due or self.must_leave(self.record) or self.must_leave(self.pending)

    @property
    def owes(self) -> bool:
        """Whether it must recover if it is revoked meanwhile: to say `left` (Q1), or for a batch in its hands (W2)."""
        if self.state is Doing.STOPPED:
            return self.left_due
        return self.may_owe_left or (self.carried is not None and (self.carried.due or self.carried.doubtful))

    def must_leave(self, record: Record | None) -> bool:
        """Whether this record is a snapshot of this process that does not say `left` yet (Q1)."""
        mine = record is not None and record.writer.incarnation == self.spec.writer.incarnation
        return mine and isinstance(record, Snapshot) and not record.left and not record.staged


def before(positions: Positions, until: Positions) -> bool:
    """Whether any binding stands before its place in `until`."""
    ends = {p.binding: p.offset for p in until}
    return any(p.offset < ends.get(p.binding, 0) for p in positions)
