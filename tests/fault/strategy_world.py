"""The graph whose strategies are killed, and the body of the processes that run it (see test_strategies)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cues_kafka import CommitPolicy, Graph, Json, Kafka, Message, Processor, Source, Topic, start
from tests.fault.killing import Killing, Point

PARTITIONS = 2
BAD = 7
"""Of ten numbers, the one whose step fails behind its call."""


class Phone:
    """What must not ring twice: each call is a line of a file, written before anything else can happen."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def call(self, n: int) -> None:
        """One call."""
        os.write(self._file, b"%d\n" % n)


def calls(path: Path) -> list[int]:
    """All calls, in order."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def tell(n: int, phone: Phone) -> int:
    """Ring, and say so."""
    phone.call(n)
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    return n


def graph(prefix: str, strategy: Any, phone: Callable[[], Any] = lambda: None) -> Graph:
    """One processor."""
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(tell, inputs=f"{prefix}.numbers", outputs=f"{prefix}.told"),
        errors=f"{prefix}.failed",
        strategy=strategy,
        system={"phone": phone},
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, strategy: str, path: str, point: Point | None, *, sent: int = 0) -> None:
    """Send numbers when each task has its first record; run until idle, or be killed by the nth effect of a name."""
    declared, policy = graph(prefix, strategy, lambda: Phone(path)), CommitPolicy(max_messages=4)
    cluster = Kafka(bootstrap, session_timeout_s=6.0, heartbeat_s=0.5)
    with start(declared, cluster, instance=f"{prefix}.1", policy=policy, hook=Killing(point)) as running:
        running.send_many(f"{prefix}.numbers", [Message(n, partition=n % PARTITIONS) for n in range(sent)])
        running.wait_idle(timeout_s=60)
