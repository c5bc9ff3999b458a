"""The graph whose errors are replayed while its workers are killed, and the body of these (see test_replay_kills)."""

from __future__ import annotations

from cues_kafka import CommitPolicy, Graph, Json, Kafka, Processor, Source, State, Step, Store, Topic, start
from tests.fault.killing import Killing, Point

ROUND = 5
"""Multiples of this number fail until the bug is fixed."""

FIXED = False


def work(n: int, step: Step, seen: State[int]) -> list[int | None]:
    """The number, and which replay it is; how many there were is in a store."""
    if n % ROUND == 0 and not FIXED:
        raise ValueError(f"{n} is too round")
    seen["all"] = seen.get("all", 0) + 1
    return [n, step.replay]


def graph(prefix: str) -> Graph:
    """One processor. Quarantine is off: several kills may meet one message."""
    return Graph(
        prefix,
        Source(f"{prefix}.in"),
        Processor(
            work,
            inputs=f"{prefix}.in",
            outputs=f"{prefix}.out",
            state={"seen": Store(Json(int))},
            quarantine_after=None,
        ),
        errors=f"{prefix}.errors",
        defaults=Topic(value=Json(), partitions=1),
    )


def run(bootstrap: str, prefix: str, point: Point | None) -> None:
    """Run with the fix, until the process is killed before or after the nth effect of a name, or from outside."""
    global FIXED  # noqa: PLW0603  # of this process
    FIXED = True
    policy = CommitPolicy(max_messages=4)
    with start(graph(prefix), Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=Killing(point)) as running:
        running.wait()
