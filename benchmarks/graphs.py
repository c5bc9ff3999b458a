"""The framework's side: ``cues-kafka run benchmarks/graphs.py:graph``. Names come from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from benchmarks.work import TAKE, Payment, count, forward, settle, settle_plain
from cues_kafka import CommitPolicy, Graph, Json, Processor, Raw, Store, Topic
from cues_kafka.graph.declare import CodecSpec

ENV = "BENCH_"

STORES = {
    "state": Store(Json(int)),
    "disk": Store(Json(int), on_disk=True),
    "ttl": Store(Json(int), ttl="1 minute"),
    "disk-ttl": Store(Json(int), ttl="1 minute", on_disk=True),
}
"""By the codec of a pipe whose function has a store."""


def make(name: str, source: str, target: str, codec: str, partitions: int, *, most: int = TAKE) -> Graph:
    """A graph with one pipe between two topics, with up to `most` messages in a transaction."""
    works: dict[str, tuple[Callable[..., Any], CodecSpec]] = {
        "json": (settle, Json(Payment)),
        "dict": (settle_plain, Json()),
        "raw": (forward, Raw()),
        **dict.fromkeys(STORES, (count, Raw())),
    }
    fn, value = works[codec]
    state = {"counts": STORES[codec]} if codec in STORES else {}
    commit = CommitPolicy(max_messages=most)
    pipe = Processor(fn, name="pipe", inputs=source, outputs=target, state=state, commit=commit)
    return Graph(name, pipe, defaults=Topic(value=value, partitions=partitions))


def group(name: str) -> str:
    """The consumer group of the graph's only processor."""
    return f"{name}.pipe"


if f"{ENV}NAME" in os.environ:
    graph = make(
        os.environ[f"{ENV}NAME"],
        os.environ[f"{ENV}SOURCE"],
        os.environ[f"{ENV}TARGET"],
        os.environ[f"{ENV}CODEC"],
        int(os.environ[f"{ENV}PARTITIONS"]),
        most=int(os.environ[f"{ENV}MOST"]),
    )
