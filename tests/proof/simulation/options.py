"""What a seed decides, as one frozen value that is printed whole and written down as JSON."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["pipe", "sink", "fork", "join", "alts"]
Strategy: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]


EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
AT_MOST_ONCE: Final = "at-most-once"
STRATEGIES: tuple[Strategy, ...] = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """
    One processor of the graph.

    Attributes:
        name: of the processor.
        kind: pipe, sink (no output), fork (two outputs), join or alts (two inputs).
        inputs: topics.
        outputs: topics.
        effects: the function leaves a trace outside of Kafka.
        batch: it gets lists.
        nil: percent of the deliveries that end with nothing.
        fails: percent that end as an error; 0 without an errors topic.
        retries: percent that raise what is worth another call, once or twice.
        rekeys: outputs get a key of their own, so they change partitions.
        store: the function counts its calls in a store, before it fails or gives something.
        handler: the store is in an object that cannot undo one step.
        strategy: of its delivery.
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    effects: bool = False
    batch: bool = False
    nil: int = 0
    fails: int = 0
    retries: int = 0
    rekeys: bool = False
    store: bool = False
    handler: bool = False
    strategy: Strategy = EXACTLY_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    One run. Rates are per mille of the moments at which the fault could happen.

    Attributes:
        seed: what the rest was drawn from, and what the schedule is drawn from.
        schedule: another schedule for the same options.
        sources: topics that messages are sent to.
        parts: the processors.
        partitions: of every topic.
        workers: processes at the beginning; each runs all processors.
        messages: to send, over all sources.
        steps: of the schedule under faults, before everything is healed.
        errors: whether there is an errors topic.
        quarantine_after: deaths on one message before it becomes an error.
        poison: messages that kill their process whenever a function gets them.
        max_messages: of the commit policy, steps in one transaction.
        idle_s: of the commit policy.
        cooperative: how groups rebalance; False is eager.
        static: workers have instance names, and a successor takes its predecessor's place at once.
        slots: queries with slots run the processors, not native workers.
        kill: before or after an effect, its process is gone.
        pause: before or after an effect, others go on, sometimes until its session is over.
        ahead: while a commit is under way, its own worker fetches and calls on meanwhile (P7).
        refuse: a request never reaches the cluster.
        lose: a request is applied and its reply is lost.
        late: a request fails for the client and arrives later.
        suspect: a commit succeeds, and a repeated request is still on its way.
        stale: the cluster answers watermarks from its past.
        move: a worker joins, leaves, restarts or is expelled.
        compact: a backing topic is compacted.
        forget: a group without members loses its offsets.
        inside: kills and pauses come in the middle of user code, too, where it is not exactly-once.
        joint: the tasks of a processor in a process have one session together (J1).
        change: an operator stops the workers, changes the strategy of a processor, and starts them again.
        hold: an operator pauses a processor, or lets it go on.
        most: the most faults; later ones do not happen.
        skipped: numbers of faults that do not happen.
    """

    seed: int
    schedule: int = 0
    sources: tuple[str, ...] = ("s0",)
    parts: tuple[Part, ...] = ()
    partitions: int = 1
    workers: int = 1
    messages: int = 200
    steps: int = 300
    errors: bool = True
    quarantine_after: int | None = 2
    poison: int = 0
    max_messages: int = 10
    idle_s: float = 5.0
    cooperative: bool = True
    static: bool = False
    slots: bool = False
    kill: int = 0
    pause: int = 0
    ahead: int = 0
    refuse: int = 0
    lose: int = 0
    late: int = 0
    suspect: int = 0
    stale: int = 0
    move: int = 0
    compact: int = 0
    forget: int = 0
    inside: bool = False
    joint: bool = False
    change: int = 0
    hold: int = 0
    most: int | None = None
    skipped: tuple[int, ...] = ()

    @property
    def blames_poison(self) -> bool:
        """Whether a message that is quarantined must be one that kills: nothing else ends a process or a membership."""
        return not (self.kill or self.pause or self.move or self.slots or self.mixed)

    @property
    def mixed(self) -> bool:
        """Whether a processor may have another strategy than exactly-once at some time."""
        return bool(self.change) or any(part.strategy != EXACTLY_ONCE for part in self.parts)

    @classmethod
    def of_seed(cls, seed: int, changes: Mapping[str, Any] | None = None) -> Options:
        """
        Draw everything.

        Args:
            seed: any number.
            changes: fields that are not drawn, as `changes_of` gives them or as JSON does.
        """
        return dataclasses.replace(_drawn(seed), **_read(changes or {}))

    def replace(self, **changes: Any) -> Options:
        """The same but for these."""
        return dataclasses.replace(self, **changes)

    def changes(self) -> dict[str, Any]:
        """The fields that are not as the seed alone gives them."""
        drawn, found = _drawn(self.seed), {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(drawn, field.name):
                found[field.name] = [dataclasses.asdict(p) for p in value] if field.name == "parts" else value
        return found

    def command(self) -> str:
        """What replays this run."""
        changes = self.changes()
        added = f" --with '{json.dumps(changes, separators=(',', ':'))}'" if changes else ""
        return f"python -m tests.proof.simulation --seed {self.seed}{added}"

    def __str__(self) -> str:
        """All fields, one a line, the processors below each other."""
        lines = [f"{f.name:17} {getattr(self, f.name)!r}" for f in fields(self) if f.name != "parts"]
        return "\n".join([*lines, *(f"{'part':17} {part}" for part in self.parts)])


DELIVERIES = 220
"""About the number of deliveries in one run; two hundred at least."""

PAIRED = 0.7
"""Of the messages of a join's smaller input, those that find another one in their partition, about."""

DEEDS = ("change", "hold")
"""Fields of `Options` that are rates of what an operator does; zero in seeds below `MIXED`."""

RATES = ("kill", "pause", "ahead", "refuse", "lose", "late", "suspect", "stale", "move", "compact", "forget", *DEEDS)
"""The swarm: fields of `Options` that are rates of faults."""

_MOST: Mapping[str, tuple[int, ...]] = {
    "kill": (0, 3, 10, 25),
    "pause": (0, 5, 10, 30),
    "refuse": (0, 5, 20, 50),
    "lose": (0, 5, 20, 50),
    "late": (0, 5, 20, 50),
    "suspect": (0, 20, 100),
    "stale": (0, 20, 100),
    "move": (0, 5, 20, 50),
    "compact": (0, 0, 5, 20),
    "forget": (0, 0, 5, 20),
}

_AHEAD = (500, 1000, 1000, 1000)
"""Rates of `ahead`: commits under which something can be called are rare beside those of recoveries."""


DEADLY = 0.1
"""Of the seeds, those in which processes die of one message and of nothing else, so that it alone may be blamed."""


MIXED = 1_000_000
"""Seeds from here on have processors of all strategies. Those below are older, and keep their meaning."""

STORES = 0.4
"""Of the processors that can have a store, those that have one; drawn apart, as `ahead`."""

HANDLERS = 0.2
"""Of those, the ones where a handler has it; not of those that get lists."""


def _read(changes: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    if "parts" in found:
        found["parts"] = tuple(part if isinstance(part, Part) else _part(part) for part in found["parts"])
    return found


def _part(data: Mapping[str, Any]) -> Part:
    fields_: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
    return Part(**fields_)


def _keeping(seed: int, part: Part) -> Part:
    store = _chance(f"store {seed} {part.name}", STORES)
    handler = store and not part.batch and _chance(f"handler {seed} {part.name}", HANDLERS)
    return dataclasses.replace(part, store=store, handler=handler)


JOINT = 2_000_000
"""Seeds from here on have joint sessions, and at least two tasks for each processor; half of them have strategies."""


def _drawn(seed: int) -> Options:
    if seed >= JOINT:
        draw = random.Random(f"joint {seed}")  # a schedule, no secret
        like = seed - JOINT + (MIXED if draw.random() < 0.5 else 0)
        return _drawn(like).replace(seed=seed, joint=True, slots=False, partitions=draw.choice((2, 3, 4)))
    return _mixed(seed, _of_faults(seed)) if seed >= MIXED else _of_faults(seed)


def _mixed(seed: int, drawn: Options) -> Options:
    """The same with strategies, for at least one processor, and with an operator who changes things."""
    draw = random.Random(f"strategies {seed}")  # a schedule, no secret
    must = draw.randrange(len(drawn.parts))
    parts = tuple(_with_strategy(draw, part, always=n == must) for n, part in enumerate(drawn.parts))
    return drawn.replace(
        parts=parts,
        messages=drawn.messages * 5 // 4,  # what is dropped leads to nothing
        inside=draw.random() < 0.7,
        change=draw.choice((0, 0, 3, 10)),
        hold=draw.choice((0, 0, 10, 30)),
    )


def _with_strategy(draw: random.Random, part: Part, *, always: bool) -> Part:
    strategy: Strategy = draw.choice((AT_MOST_ONCE, AT_LEAST_ONCE) if always else STRATEGIES)
    if strategy == EXACTLY_ONCE:
        return part
    retries = 0 if strategy == AT_MOST_ONCE else part.retries
    return dataclasses.replace(part, strategy=strategy, retries=retries, store=False, handler=False)  # W8


def _of_faults(seed: int) -> Options:
    draw = random.Random(f"options {seed}")  # a schedule, no secret
    errors = draw.random() < 0.8
    sources = tuple(f"s{n}" for n in range(draw.choice((1, 1, 2))))
    parts = _parts(draw, sources, errors=errors)
    kept = tuple(_keeping(seed, one) for one in parts)
    quarantine_after = draw.choice((2, 2, 1, None))
    workers = draw.choice((1, 1, 2, 3))
    rates: dict[str, Any] = {name: draw.choice(most) for name, most in _MOST.items()}
    steps = draw.choice((150, 300, 450))
    single = all(len(part.inputs) == 1 for part in parts)
    slots = draw.random() < 0.2 if single else _chance(f"slots {seed}", 0.2)  # as `ahead`
    slots = slots and seed < MIXED  # they are exactly-once only (W8)
    drawn = Options(
        seed=seed,
        sources=sources,
        parts=parts if slots else kept,  # Spark keeps no stores
        partitions=draw.choice((1, 1, 2, 3)),
        workers=workers,
        messages=int(DELIVERIES / _per_message(sources, parts)) + 1,
        steps=steps // 4 if slots else steps,  # a step of a slot is a whole range
        errors=errors,
        quarantine_after=quarantine_after if errors else None,
        poison=int(errors and quarantine_after is not None and draw.random() < 0.1),
        max_messages=draw.choice((1, 3, 10, 10, 40, 40, 1000)),
        idle_s=draw.choice((0.5, 5.0, 60.0)),
        cooperative=draw.random() < 0.7,
        static=draw.random() < 0.5,
        slots=slots,
        ahead=random.Random(f"ahead {seed}").choice(_AHEAD),  # drawn apart: the rest of a seed is older
        **rates,
    )
    apart = _chance(f"deadly {seed}", DEADLY)  # as `ahead`
    return drawn.replace(poison=1, kill=0, pause=0, move=0) if apart and drawn.quarantine_after else drawn


def _chance(what: str, share: float) -> bool:
    return random.Random(what).random() < share


def _per_message(sources: tuple[str, ...], parts: tuple[Part, ...]) -> float:
    """About how many deliveries each message leads to."""
    share = dict.fromkeys(sources, 1 / len(sources))
    total = 0.0
    for part in parts:
        come = [share[topic] for topic in part.inputs]
        deliveries = PAIRED * min(come) if part.kind == "join" else sum(come)
        total += deliveries
        for topic, rate in zip(part.outputs, (1.0, 0.5), strict=False):
            share[topic] = deliveries * rate * (100 - part.nil) * (100 - part.fails) / 10_000
    return total


def _parts(draw: random.Random, sources: tuple[str, ...], *, errors: bool) -> tuple[Part, ...]:
    """One processor behind the other; each reads topics that are there, the first ones all sources."""
    topics, parts = list(sources), list[Part]()
    for number in range(draw.choice((1, 1, 2, 3))):
        if len(topics) >= 2 and (number == 0 or draw.random() < 0.5):
            kind: Kind = draw.choice(("join", "alts"))
            inputs = tuple(draw.sample(topics, 2)) if number else tuple(sources)
        else:
            kind = draw.choice(("pipe", "pipe", "fork", "sink"))
            inputs = (topics[-1],)
        part = _one(draw, f"p{number}", kind, inputs, errors=errors)
        parts.append(part)
        topics += part.outputs
    return tuple(parts)


def _one(draw: random.Random, name: str, kind: Kind, inputs: tuple[str, ...], *, errors: bool) -> Part:
    count = {"sink": 0, "fork": 2}.get(kind, 1)
    return Part(
        name=name,
        kind=kind,
        inputs=inputs,
        outputs=tuple(f"{name}{letter}" for letter in "ab"[:count]),
        effects=kind == "sink" or draw.random() < 0.3,
        batch=kind in ("pipe", "sink") and draw.random() < 0.25,
        nil=draw.choice((0, 0, 10, 40)),
        fails=draw.choice((0, 5, 20)) if errors else 0,
        retries=draw.choice((0, 0, 0, 3)),
        rekeys=draw.random() < 0.3,
    )
