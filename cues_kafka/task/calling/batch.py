"""Steps that were called and wait for their commit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cues_kafka.core import events as on
from cues_kafka.core.delivery import provenance_prefix
from cues_kafka.core.events import Halt
from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.ports.log import Coordinates, Positions, WireMessage
from cues_kafka.ports.observer import BatchReport
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.task.calling.outputs import Now
from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.task.calling.replayed import Replayed
from cues_kafka.task.calling.turnstile import Mark, Turnstile

Taken = tuple[tuple[int, WireMessage], ...]
"""The consumed messages of one step, each with the index of its binding, the lead's first."""


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
        more: whether records come when it is closed, of all of its steps.
        buffer: what its messages were taken from; None: something else, such as a tool, has them.
        tail_ends: up to where tailers show messages to the calls (S5).
        now: the monotonic clock that retries are timed by.
        began_s: when it was opened, by that clock.
        today: the time of day, for timestamps.
        notes: what is logged about its first errors once it is committed.
        about: what is logged about the step before which it halted.
    """

    spec: Spec
    sequence: int
    topic_ids: Mapping[str, bytes]
    context: Any  # a `CallContext`, whose participants take batches: so its type cannot be named here
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
    more: bool = False
    buffer: Buffer | None = None
    tail_ends: Positions = ()
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

    def called(self) -> on.Called:
        """The event that commits it."""
        return on.Called(self.ends, self.totals, self.halt, tails=self.tails, replays=self.behind)

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
    def may_stop(self) -> bool:
        """Whether the task may stop, or wait, for what the function wants: a replay never does that (Y1)."""
        return self.replayed is None

    def coordinates(self, taken: Taken) -> tuple[Coordinates, ...]:
        """The coordinates of consumed messages, in the order of bindings; of a timer, those whose step set it."""
        if (begun_by := self.begun_by) is not None:
            return begun_by.consumed
        inputs, ids, partition = self.spec.inputs, self.topic_ids, self.spec.partition
        rows = [(inputs[index].binding, message) for index, message in taken]
        return tuple([Coordinates(binding, ids[binding], partition, message.offset()) for binding, message in rows])

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
