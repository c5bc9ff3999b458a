"""Steps that were called and wait for their commit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cues_kafka.core.delivery import provenance_prefix
from cues_kafka.core.events import Halt
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.ports import Awaited, BatchReport, Coordinates, Positions, Sink, TransactionalSink, WireMessage
from cues_kafka.sinks.calls import Calls
from cues_kafka.state.handlers import Handlers
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.imperative import Hands
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.calling.placements import Placements
from cues_kafka.task.calling.replayed import Replayed
from cues_kafka.task.calling.turnstile import Mark, Turnstile
from cues_kafka.task.following import Tables

Taken = tuple[tuple[int, WireMessage], ...]
"""The consumed messages of one step, each with the index of its binding, the lead's first."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """
    What the calls of one task have besides their messages.

    Attributes:
        values: the values of parameters from `opts=`, `system=` and their like, by name.
        sink: where the calls write besides Kafka; None: nowhere that the lane knows of.
        stores: the task's stores, which are then the sink, too; None: it has none.
        tables: those that it looks up; None: it has none.
        handlers: those of its stores that are objects of the user's; None: it has none.
        timed: as `values`, for the function of its timers.
        target: commits what the calls write outside of Kafka with the attempt (E1); None: nothing does.
        placed: told which messages the function is called with, before each call; None: nothing asks for it.
        calls: what the function calls by `effects=` and knows its step (E4); None: nothing.
        hands: the task's tailers and appenders (L1); None: it has none.
        placements: looks whether messages are in their keys' partitions; None: nothing counts on it.
        awaited: what is waited for before each chunk of calls.
    """

    values: Mapping[str, Any]
    sink: Sink | None = None
    stores: Stores | None = None
    tables: Tables | None = None
    handlers: Handlers | None = None
    timed: Mapping[str, Any] = field(default_factory=dict)
    target: TransactionalSink | None = None
    placed: Callable[[Sequence[Coordinates]], None] | None = None
    calls: Calls | None = None
    hands: Hands | None = None
    placements: Placements | None = None
    awaited: Sequence[Awaited] = ()


@dataclass(slots=True)
class Batch:
    """
    Steps that were called and wait for their commit.

    Attributes:
        spec: the task.
        sequence: the sequence number of the attempt that commits it.
        topic_ids: by input binding, for coordinates.
        context: what the calls have besides their messages.
        starts: deaths on exactly these steps so far.
        records: what to produce.
        deliveries, outputs, errors, messages, drained, timers: counts, see `Totals`.
        size: bytes of keys and values.
        kept: steps that the target has committed already, in parts.
        parts: how many parts those are.
        halt: why it ended early.
        cause: the user's exception behind `halt`.
        closed: whether it is committed as it is: the user asked for a commit (`step.request_commit`), or a step spoiled
            the handlers.
        tentative: whether the first failure ends the run, because all of its steps are called again one by one (E1).
        spoiled: whether the step behind its last one raised, and so left its traces in the handlers.
        tails: where the tailers stood when it was closed (L2).
        most: how many steps it may have before a timer that is due must wait for the next batch (F3).
        until_s: when timers that are due must wait for the next batch, by `now`.
        most_bytes: with how many bytes they must wait, too.
        fired: the timer whose step is taken now; None: messages are.
        replayed: the replay whose step is taken now; None: messages, or a timer, are.
        replays: how many of its steps requests to replay an error message began.
        behind: where the task stands in its replay topic behind it; empty: where it stood.
        turnstile: what each of its steps passes before it is called, at-most-once (W2); None: they need not.
        steps: those of its earlier chunks; only kept where there are handlers.
        retrying: earlier calls of its first step; only kept where there are handlers.
        now: the monotonic clock that retries are timed by.
        began_s: when it was opened, by that clock.
        today: the time of day, for timestamps.
        notes: what is logged about its first errors once it is committed.
        about: what is logged about the step before which it halted.
    """

    spec: Spec
    sequence: int
    topic_ids: Mapping[str, bytes]
    context: CallContext
    starts: int = 0
    records: Outbox = field(default_factory=Outbox)
    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    messages: int = 0
    drained: int = 0
    timers: int = 0
    most: int = 0
    until_s: float = math.inf
    most_bytes: float = math.inf
    fired: Fired | None = None
    replayed: Replayed | None = None
    replays: int = 0
    behind: Positions = ()
    size: int = 0
    kept: int = 0
    parts: int = 0
    halt: Halt | None = None
    cause: BaseException | None = None
    closed: bool = False
    tentative: bool = False
    spoiled: bool = False
    turnstile: Turnstile | None = None
    steps: list[Any] = field(default_factory=list)
    retrying: Retrying | None = None
    ends: Positions = ()
    tails: Positions = ()
    now: Callable[[], float] = time.monotonic
    today: Now = field(default_factory=lambda: Now(time.time))
    notes: list[dict[str, Any]] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)
    began_s: float = 0.0
    _prefixes: dict[tuple[str, ...], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began_s = self.now()

    def mark(self) -> Mark:
        """What the batch holds now."""
        return Mark(
            *(len(self.records), self.deliveries, self.outputs, self.errors, self.messages, self.size, len(self.notes)),
            *(self.drained, self.timers),
        )

    def back_to(self, mark: Mark) -> None:
        """Drop what was added since."""
        self.records.cut(mark.records)
        self.deliveries, self.outputs, self.errors = mark.deliveries, mark.outputs, mark.errors
        self.messages, self.size, self.drained, self.timers = mark.messages, mark.size, mark.drained, mark.timers
        del self.notes[mark.notes :]

    def report(self) -> BatchReport:
        """What observers are told when the batch is committed."""
        seconds = self.now() - self.began_s
        return BatchReport(
            self.deliveries, self.outputs, self.errors, self.messages, seconds, deaths=self.starts, notes=self.notes
        )

    @property
    def totals(self) -> Totals:
        """Counts for the record."""
        return self.mark().totals._replace(replays=self.replays)

    @property
    def is_full(self) -> bool:
        """Whether timers that are due must wait for the next batch, for its size or its time."""
        return self.size >= self.most_bytes or self.now() >= self.until_s

    @property
    def begun_by(self) -> Fired | Replayed | None:
        """What names the present step, and stands in its provenance; None: its messages do."""
        return self.fired or self.replayed

    @property
    def begun_by_messages(self) -> int:
        """Steps that messages began, and no timer."""
        return self.deliveries - self.timers

    def prefix(self, bindings: tuple[str, ...]) -> bytes:
        """The shared part of the provenance header of steps that consume these bindings."""
        if (found := self._prefixes.get(bindings)) is None:
            inputs = [(binding, self.topic_ids[binding]) for binding in bindings]
            found = self._prefixes[bindings] = provenance_prefix(self.spec.full_name, self.sequence, inputs)
        return found


@dataclass(frozen=True, slots=True)
class Retrying:
    """Earlier calls of the first step: their number, and when the first one began (monotonic)."""

    attempt: int
    since_s: float
