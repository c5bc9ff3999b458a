"""The framework's side: ``cues-kafka run benchmarks/graphs.py:graph``. Names come from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from benchmarks.work import Payment, count, forward, settle, settle_plain
from cues_kafka import Graph, Json, Processor, Raw, Store, Topic
from cues_kafka.graph.declare import CodecSpec

ENV = "BENCH_"


def make(name: str, source: str, target: str, codec: str, partitions: int) -> Graph:
    """A graph with one pipe between two topics."""
    works: dict[str, tuple[Callable[..., Any], CodecSpec]] = {
        "json": (settle, Json(Payment)),
        "dict": (settle_plain, Json()),
        "raw": (forward, Raw()),
        "state": (count, Raw()),
    }
    fn, value = works[codec]
    state = {"counts": Store(Json(int))} if codec == "state" else {}
    pipe = Processor(fn, name="pipe", inputs=source, outputs=target, state=state)
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
    )
