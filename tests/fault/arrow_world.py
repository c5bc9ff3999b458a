"""The graph with columns that is killed, and the body of the processes that run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cues_kafka import Graph, Json, Kafka, Processor, Source, Store, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from tests.fault.killing import Killing, Point

PARTITIONS = 2
BAD = 7
"""Of ten numbers this one is refused."""


@dataclass
class Number:
    """What is read, and written again."""

    n: int
    group: str


@dataclass
class Total:
    """The sum of a group in one call."""

    group: str
    n: int


def grouped(numbers: Any) -> list[tuple[str, int]]:
    """The sum of each group."""
    import pyarrow as pa

    table = pa.Table.from_batches([numbers]).group_by("group").aggregate([("n", "sum")])
    return [(row["group"], row["n_sum"]) for row in table.to_pylist()]


def work(numbers: Any, sums: Any) -> dict[str, Any]:
    """Even numbers one by one, and sums of all, in the topic and in the store."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = grouped(numbers)
    for group, total in found:
        sums[group] = sums.get(group, 0) + total
    if any(n % 10 == BAD for n in numbers["n"].to_pylist()):
        raise ValueError("bad")
    groups, totals = zip(*found, strict=True)
    even = numbers.filter(pc.equal(pc.bit_wise_and(numbers["n"], 1), 0))
    return {"even": even, "sums": pa.table({"group": list(groups), "n": list(totals)})}


def graph(prefix: str) -> Graph:
    """Quarantine is off, because kills may meet one message three times."""
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(
            work,
            inputs=f"{prefix}.numbers",
            outputs={"even": f"{prefix}.even", "sums": f"{prefix}.sums"},
            errors=f"{prefix}.failed",
            state={"sums": Store()},
            batch="arrow",
            quarantine_after=None,
        ),
        defaults=Topic(value=Json(Number), partitions=PARTITIONS),
        topics={f"{prefix}.sums": Topic(value=Json(Total), key="group")},
    )


def run(bootstrap: str, prefix: str, point: Point | None) -> None:
    """Run until idle, or be killed at the nth time at a point."""
    policy = CommitPolicy(max_messages=8)
    hook = Killing(point)
    with start(graph(prefix), Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=hook) as running:
        running.wait_idle(timeout_s=60)
