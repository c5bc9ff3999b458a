"""The graph that writes to a store of files and is killed, and the body of the processes that run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cues_kafka import Blobs, Graph, Json, Kafka, Processor, Sink, Source, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.sinks.blobs.entries import CommitLog, LogEntry
from tests.fault.killing import Killing, Point, die

PARTITIONS = 2
BAD = 7
"""Of ten numbers this one is refused behind its object."""


def one(n: int, blobs: Any) -> dict[str, Any]:
    """An object and a message that names it."""
    url = blobs.put("n.txt", str(n).encode())
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    return {"n": n, "url": url}


def graph(prefix: str, url: str, options: Mapping[str, Any]) -> Graph:
    """A function that puts objects, and a sink; quarantine is off, because kills may meet one message three times."""
    if url.startswith("s3://"):
        from tests.fault.s3_session import SESSION

        options = {**options, "session": SESSION}
    store = Blobs(url, options=options)
    shared: dict[str, Any] = {"inputs": f"{prefix}.numbers", "quarantine_after": None}
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(one, outputs=f"{prefix}.one", errors=f"{prefix}.failed", effects={"blobs": store}, **shared),
        Sink("rows", into=store.json_lines("numbers"), **shared),
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, url: str, options: Mapping[str, Any], point: Point | None) -> None:
    """Run until idle, or be killed at the nth time at a point; `inside` is after the put, before its answer."""
    hook = Killing(point)
    append = CommitLog.append

    def append_and_die(self: CommitLog, number: int, entry: LogEntry) -> bool:
        if entry.kind == "attempt" and hook.at("inside", "CommitTarget"):
            append(self, number, entry)
            die()
        return append(self, number, entry)

    CommitLog.append = append_and_die  # type: ignore[method-assign]
    policy = CommitPolicy(max_messages=4)
    declared = graph(prefix, url, options)
    with start(declared, Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=hook) as running:
        running.wait_idle(timeout_s=60)
