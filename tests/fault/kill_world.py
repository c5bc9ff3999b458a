"""The graph that is killed at every effect, and the body of the processes that run it (see test_kill_points)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cues_kafka import (
    Graph,
    Handler,
    Json,
    Kafka,
    Message,
    Out,
    Processor,
    Source,
    State,
    StateHandler,
    Step,
    Store,
    Timer,
    Timers,
    Topic,
    start,
)
from cues_kafka.graph.declare import CommitPolicy
from tests.fault.killing import Killing, Point

PARTITIONS = 2
TOPICS = ("clean", "all", "even", "pairs", "tallies", "echoes")
BAD, NIL, WORSE, WORST = 7, 3, 4, 5
"""Of ten numbers: one becomes an error, one nothing, one an error after it has changed a store, and one a handler."""


def clean(n: int) -> int | None:
    """Pipe: an error, a nil, or the number."""
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    return None if n % 10 == NIL else n


def route(n: int) -> Iterator[Out]:
    """Fork: both outputs or none."""
    yield Out("all", n)
    if n % 2 == 0:
        yield Out("even", n)


class Kinds(StateHandler):
    """How many of each kind there were; each commit tells those that changed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.changed: set[str] = set()

    def add(self, n: int) -> None:
        """Count a number."""
        self.counts[str(n % 3)] += 1
        self.changed.add(str(n % 3))

    def drain(self) -> Iterator[Any]:
        """The new counts."""
        return (Out("kinds", [kind, self.counts[kind]]) for kind in sorted(self.changed))

    def checkpoint(self) -> Iterator[tuple[bytes, bytes | None]]:
        """The new counts."""
        changed, self.changed = sorted(self.changed), set()
        return ((kind.encode(), b"%d" % self.counts[kind]) for kind in changed)

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """The committed counts."""
        self.counts = Counter({kind.decode(): int(count) for kind, count in entries})
        self.changed = set()


def pair(left: int, right: int, counts: Kinds) -> dict[str, list[int]]:
    """Join with a handler: what was made in lockstep meets again."""
    counts.add(left)
    if left % 10 == WORST:
        raise ValueError(f"worst {left}")
    return {"pairs": [left, right]}


def tally(n: int, seen: State[Any]) -> list[int]:
    """Pipe with a store: how many of its kind there were; what a failed step has counted is dropped."""
    kind = str(n % 3)
    seen[kind] = seen.get(kind, 0) + 1
    if n % 10 == WORSE:
        raise ValueError(f"worse {n}")
    return [n, seen[kind]]


def call(n: int, step: Step) -> int:
    """Pipe with timers: each is due before the next message."""
    step.schedule(str(n), at=step.time_ms)
    return n


def echo(timer: Timer, echoes: State[Any], step: Step) -> Message:
    """What a timer gives: how many there were; one of them fails behind its change."""
    echoes["all"] = echoes.get("all", 0) + 1
    if int(timer.key) % 10 == WORSE:
        raise ValueError(f"worse {timer.key}")
    return Message(-int(echoes["all"]), partition=int(step.task.rpartition("/")[2]))


def keep(pairs: list[int], step: Any) -> None:
    """Sink: an effect whose name is the delivery hash."""
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as ledger:  # noqa: PTH123 - appended in one write
        ledger.write(json.dumps([step.hash, pairs]) + "\n")


def graph(prefix: str) -> Graph:
    """
    Four kinds of processors, with a store, a handler and timers, between topics of one test's own.

    Quarantine is off: forty kills from outside may meet one message three times, and it would become an error (I11).
    """
    never: dict[str, Any] = {"quarantine_after": None}
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(clean, inputs=f"{prefix}.numbers", outputs=f"{prefix}.clean", **never),
        Processor(route, inputs=f"{prefix}.clean", outputs={"all": f"{prefix}.all", "even": f"{prefix}.even"}, **never),
        Processor(
            pair,
            inputs={"left": f"{prefix}.clean", "right": f"{prefix}.all"},
            outputs={"pairs": f"{prefix}.pairs", "kinds": f"{prefix}.kinds"},
            state={"counts": Handler(Kinds)},
            **never,
        ),
        Processor(
            tally, inputs=f"{prefix}.clean", outputs=f"{prefix}.tallies", state={"seen": Store(Json(int))}, **never
        ),
        Processor(
            call,
            inputs=f"{prefix}.clean",
            outputs=f"{prefix}.echoes",
            state={"echoes": Store(Json(int)), "timers": Timers(echo)},
            **never,
        ),
        Processor(keep, inputs=f"{prefix}.pairs", **never),
        errors=f"{prefix}.failed",
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, ledger: str, point: Point | None, sessions: int = 0) -> None:
    """Run until idle, or be killed before or after the nth effect of a name."""
    os.environ["LEDGER"] = ledger
    options = Kafka(bootstrap, sessions=sessions)
    policy = CommitPolicy(max_messages=4)
    with start(graph(prefix), options, instance=f"{prefix}.1", policy=policy, hook=Killing(point)) as running:
        running.wait_idle(timeout_s=60)


def expected(numbers: Mapping[int, int]) -> dict[str, Any]:
    """What must be there for these numbers, each in its partition; plain Python, in order per partition."""
    world: dict[str, Any] = {name: [[] for _ in range(PARTITIONS)] for name in TOPICS}
    seen: Counter[tuple[int, int]] = Counter()
    echoes: Counter[int] = Counter()
    kinds: Counter[tuple[int, str]] = Counter()
    world["failed"] = sorted(n for n in numbers if n % 10 == BAD)
    for n, partition in numbers.items():
        if n % 10 in (BAD, NIL):
            continue
        world["clean"][partition].append(n)
        world["all"][partition].append(n)
        world["echoes"][partition].append(n)
        if n % 10 != WORSE:
            echoes[partition] += 1
            world["echoes"][partition].append(-echoes[partition])
        if n % 10 != WORST:
            kinds[partition, str(n % 3)] += 1
            world["pairs"][partition].append([n, n])
        if n % 10 != WORSE:
            seen[partition, n % 3] += 1
            world["tallies"][partition].append([n, seen[partition, n % 3]])
        if n % 2 == 0:
            world["even"][partition].append(n)
    world["kinds"] = dict(kinds)
    return world
