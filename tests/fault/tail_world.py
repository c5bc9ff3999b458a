"""The graph with a tailer whose workers are killed, and the body of the processes that run it (see test_tail_kills)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cues_kafka import Appender, CommitPolicy, Graph, Json, Kafka, Processor, Retry, Source, Tailer, Topic, start
from tests.fault.killing import Killing, Point

PARTITIONS = 2
BAD = 7
"""Of ten numbers, the one whose step fails behind its moves and appends."""


class NotNow(Exception):
    """Raised by the first call of some steps in each process."""


CALLED: set[int] = set()


def work(n: int, old: Tailer, archive: Appender, step: Any) -> list[Any]:
    """Take two of the old messages, and archive them; the answer says where they were."""
    taken = [one.value for one in old.messages(limit=2)]
    archive.append({"n": n, "taken": taken})
    with Path(os.environ["TAIL_CALLS"]).open("a", encoding="utf-8") as file:
        file.write(f"{step.hash} {taken}\n")
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 == 4 and n not in CALLED:
        CALLED.add(n)
        raise NotNow
    return [n, taken]


def graph(prefix: str) -> Graph:
    """One processor. Quarantine is off: several kills may meet one message."""
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Source(f"{prefix}.old"),
        Processor(
            work,
            inputs=f"{prefix}.numbers",
            outputs=f"{prefix}.done",
            tailers={"old": f"{prefix}.old"},
            appenders={"archive": f"{prefix}.archive"},
            retry=Retry(on=(NotNow,), first_s=0.05),
            quarantine_after=None,
        ),
        errors=f"{prefix}.failed",
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, calls: str, point: Point | None) -> None:
    """Run until idle, or be killed before or after the nth effect of a name."""
    os.environ["TAIL_CALLS"] = calls
    policy = CommitPolicy(max_messages=4)
    with start(graph(prefix), Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=Killing(point)) as running:
        running.wait_idle(timeout_s=60)
