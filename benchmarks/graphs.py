"""The framework's side: ``cues-kafka run benchmarks/graphs.py:graph``. Names come from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.work import COLUMNS, TAKE, Payment, count, forward, row_of, settle, settle_plain
from cues_kafka import CommitPolicy, Delta, Graph, Json, Processor, Raw, Sink, Sql, Store, Topic
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.processor_fields import Strategy

ENV = "BENCH_"

STORES = {
    "state": Store(Json(int)),
    "disk": Store(Json(int), on_disk=True),
    "ttl": Store(Json(int), ttl="1 minute"),
    "disk-ttl": Store(Json(int), ttl="1 minute", on_disk=True),
}
"""By the codec of a pipe whose function has a store."""

STRATEGIES: dict[str, Strategy] = {"least": "at-least-once", "most": "at-most-once"}
"""By the codec of a pipe of another strategy; its values are raw."""

INSERT = "INSERT INTO rows (key, value) VALUES (%s, %s)"


def copy(values: list[bytes], db: Any) -> None:
    """Write a row for each message, by `COPY`."""
    db.insert("rows", COLUMNS, list(map(row_of, values)))


def copy_and_forward(values: list[bytes], db: Any) -> list[bytes]:
    """The same, and give each message."""
    db.insert("rows", COLUMNS, list(map(row_of, values)))
    return values


def execute_many(values: list[bytes], db: Any) -> None:
    """Write a row for each message, by `executemany`."""
    db.executemany(INSERT, list(map(row_of, values)))


def execute_each(value: bytes, db: Any) -> None:
    """Write the row of one message."""
    db.execute(INSERT, row_of(value))


DATABASES: dict[str, tuple[Callable[..., Any], bool, bool]] = {
    "copy": (copy, True, False),
    "copy-out": (copy_and_forward, True, True),
    "many": (execute_many, True, False),
    "each": (execute_each, False, False),
}
"""By the codec of a pipe whose function has a database: the function, whether it takes lists, and whether it gives."""


DELTA = "delta"
"""The codec of a pipe into a table of Delta Lake, which has the graph's name; its values are those of `json`."""


def make(name: str, source: str, target: str, codec: str, partitions: int, *, most: int = TAKE) -> Graph:
    """A graph with one pipe between two topics, with up to `most` messages in a transaction."""
    commit = CommitPolicy(max_messages=most)
    if codec in DATABASES:
        fn, batch, gives = DATABASES[codec]
        database: dict[str, Any] = {"batch": batch, "effects": {"db": Sql(env=f"{ENV}DATABASE")}}
        pipe = Processor(
            fn, name="pipe", inputs=source, outputs=target if gives else None, errors=None, commit=commit, **database
        )
        return Graph(name, pipe, defaults=Topic(value=Raw(), partitions=partitions))
    if codec == DELTA:
        table = Delta(env=f"{ENV}LAKE").table(name)
        sink = Sink("pipe", inputs=source, into=table, errors=None, commit=commit)
        return Graph(name, sink, defaults=Topic(value=Json(Payment), partitions=partitions))
    works: dict[str, tuple[Callable[..., Any], CodecSpec]] = {
        "json": (settle, Json(Payment)),
        "dict": (settle_plain, Json()),
        "raw": (forward, Raw()),
        **dict.fromkeys(STRATEGIES, (forward, Raw())),
        **dict.fromkeys(STORES, (count, Raw())),
    }
    fn, value = works[codec]
    state = {"counts": STORES[codec]} if codec in STORES else {}
    strategy = STRATEGIES.get(codec)
    pipe = Processor(fn, name="pipe", inputs=source, outputs=target, state=state, commit=commit, strategy=strategy)
    return Graph(name, pipe, defaults=Topic(value=value, partitions=partitions))


def chain(name: str, topics: Sequence[str]) -> Graph:
    """Make a graph with a pipe of raw values from each of these topics to the next one."""
    pipes = [
        Processor(forward, name=f"pipe{number}", inputs=source, outputs=target)
        for number, (source, target) in enumerate(pairwise(topics), start=1)
    ]
    return Graph(name, *pipes, defaults=Topic(value=Raw()))


def group(name: str) -> str:
    """The consumer group of the graph's only processor."""
    return f"{name}.pipe"


if f"{ENV}CHAIN" in os.environ:
    graph = chain(os.environ[f"{ENV}NAME"], os.environ[f"{ENV}CHAIN"].split())
elif f"{ENV}NAME" in os.environ:
    graph = make(
        os.environ[f"{ENV}NAME"],
        os.environ[f"{ENV}SOURCE"],
        os.environ[f"{ENV}TARGET"],
        os.environ[f"{ENV}CODEC"],
        int(os.environ[f"{ENV}PARTITIONS"]),
        most=int(os.environ[f"{ENV}MOST"]),
    )
