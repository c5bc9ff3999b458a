"""The graph that writes to tables of Delta Lake and is killed, and the body of the processes that run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cues_kafka import Delta, Graph, Json, Kafka, Processor, Sink, Source, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.sinks.delta.table import OpenedTable, TableFile
from tests.fault.killing import Killing, Point, die

PARTITIONS = 2
BAD = 7
"""Of ten numbers this one is refused behind its row."""


def one(n: int, table: Any) -> int:
    """A row and a message."""
    table.write({"n": n})
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    return n


def text(n: int, table: Any) -> None:
    """A row of another table."""
    table.write({"n": n, "last": str(n % 10)})


def graph(prefix: str, url: str, options: Mapping[str, str]) -> Graph:
    """Two functions that write rows; quarantine is off, because kills may meet one message three times."""
    lake = Delta(url, options=options)
    shared: dict[str, Any] = {"inputs": f"{prefix}.numbers", "quarantine_after": None}
    ones = lake.table("ones", columns={"n": "long"})
    texts = lake.table("texts", columns={"n": "long", "last": "string"}, partition_by="last")
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(one, outputs=f"{prefix}.one", errors=f"{prefix}.failed", effects={"table": ones}, **shared),
        Processor(text, effects={"table": texts}, **shared),
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def sink(prefix: str, url: str, options: Mapping[str, str]) -> Graph:
    """A sink alone, whose values are rows."""
    table = Delta(url, options=options).table("rows", columns={"n": "long"})
    return Graph(
        prefix,
        Source(f"{prefix}.rows"),
        Sink("rows", inputs=f"{prefix}.rows", into=table, errors=f"{prefix}.failed"),
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, url: str, options: Mapping[str, str], point: Point | None) -> None:
    """Run until idle, or be killed at the nth time at a point; `inside` is behind Delta's commit, before its answer."""
    hook = Killing(point)
    append = OpenedTable.append

    def append_and_die(
        self: OpenedTable, rows: Sequence[Any], apps: Mapping[str, int], files: Iterable[TableFile] = ()
    ) -> None:
        append(self, rows, apps, files)
        if rows and hook.at("inside", "CommitTarget"):
            die()

    OpenedTable.append = append_and_die  # type: ignore[method-assign]
    policy = CommitPolicy(max_messages=4)
    declared = graph(prefix, url, options)
    with start(declared, Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=hook) as running:
        running.wait_idle(timeout_s=100)
