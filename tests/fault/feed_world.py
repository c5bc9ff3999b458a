"""A feed that is killed at every effect, and the body of the processes that run it (see test_feed_kills)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cues_kafka import Feed, Files, Graph, Json, Kafka, Processor, SqlOutbox, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from tests.fault.killing import Killing, Point

PARTITIONS = 2
TASKS = 2
DATABASE = "FEED_DATABASE"
"""The variable with the address of a database; without it the feed reads files."""

BAD = 7
"""Of ten lines, one is not JSON and becomes an error message."""


def double(n: int) -> int:
    """What is behind the feed."""
    return 2 * n


def graph(prefix: str, directory: str) -> Graph:
    """A feed of two tasks, or of the database that the environment names; and a processor behind it."""
    source: Any = Files(f"{directory}/*.jsonl", tasks=TASKS)
    if DATABASE in os.environ:
        source = SqlOutbox(env=DATABASE, keep=False)
    return Graph(
        prefix,
        Feed(source, into=f"{prefix}.ingress", name="files", poll_seconds=0.05),
        Processor(double, inputs=f"{prefix}.ingress", outputs=f"{prefix}.doubles", quarantine_after=None),
        errors=f"{prefix}.failed",
        defaults=Topic(value=Json(int), partitions=PARTITIONS),
    )


def write(directory: Path, name: str, numbers: range) -> None:
    """Append lines to a file."""
    with (directory / name).open("a") as opened:
        opened.writelines(f"not {n}\n" if n % 10 == BAD else f"{n}\n" for n in numbers)


def run(bootstrap: str, prefix: str, directory: str, point: Point | None) -> None:
    """Run until idle, or be killed before or after the nth effect of a name; of the feed only."""
    policy = CommitPolicy(max_messages=4)
    with start(
        graph(prefix, directory), Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=Killing(point)
    ) as running:
        running.wait_idle(timeout_s=60)
