"""A user's module for a standalone cluster: numbers are doubled directly, and summed up staged, with state."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cues_kafka import DataFrameProcessor, Graph, Json, Processor, Source, Topic

NAME = os.environ.get("CLUSTER_GRAPH", "cluster")
HELD = os.environ.get("CLUSTER_HELD", "held")
WIDTH, KEYS = 2, 3

HOLD = 250
"""The first process that doubles this number stays there until it is killed."""


@dataclass(frozen=True)
class Number:
    """What comes in, and twice as much goes out."""

    n: int


@dataclass(frozen=True)
class Sum:
    """The numbers so far that leave this rest."""

    rest: str
    numbers: int
    total: int


def double(number: Number) -> Number:
    """Pipe."""
    if number.n == HOLD:
        hold()
    return Number(2 * number.n)


def hold() -> None:
    """Write down which process this is, and stay; others go on."""
    try:
        with Path(HELD).open("x") as file:
            file.write(f"{os.getpid()}\n")
    except FileExistsError:
        return
    threading.Event().wait()


def add(numbers: Any) -> Any:
    """The sums so far, in each batch those that it has changed."""
    from pyspark.sql import functions as f

    rests = numbers.groupBy((f.col("n") % KEYS).cast("string").alias("rest"))
    return rests.agg(f.count("*").alias("numbers"), f.sum("n").alias("total"))


graph = Graph(
    NAME,
    Source(f"{NAME}.in"),
    Processor(double, inputs=f"{NAME}.in", outputs=f"{NAME}.doubled"),
    DataFrameProcessor(add, inputs=f"{NAME}.in", outputs=f"{NAME}.sums", output_mode="update"),
    topics={
        f"{NAME}.in": Topic(value=Json(Number), partitions=WIDTH),
        f"{NAME}.doubled": Topic(value=Json(Number), partitions=WIDTH),
        f"{NAME}.sums": Topic(value=Json(Sum), key="rest", partitions=WIDTH),
    },
)
