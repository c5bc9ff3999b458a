"""The graph of `spark_start`: three queries on one input, each written in another way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from cues_kafka import DataFrameProcessor, Graph, Json, Processor, Source, Topic

NAME = "CUES_BENCH_SPARK_START"
"""The variable with the name of the run's graph, with which its topics begin."""

WIDTH = 2
QUERIES = ("plain", "direct", "staged")


@dataclass(frozen=True)
class Order:
    """What is sent."""

    n: int


def plain(order: Order) -> Order:
    return order


def direct(orders: Any) -> Any:
    return orders.select("n", "_cues")


def staged(orders: Any) -> Any:
    return orders.repartition(WIDTH, "n").select("n")


def make(name: str) -> Graph:
    """The graph of a run."""
    source = f"{name}.orders"
    return Graph(
        name,
        Source(source),
        Processor(plain, inputs=source, outputs=f"{name}.plain"),
        DataFrameProcessor(direct, inputs=source, outputs=f"{name}.direct"),
        DataFrameProcessor(staged, inputs=source, outputs=f"{name}.staged"),
        topics={f"{name}.{topic}": Topic(value=Json(Order), partitions=WIDTH) for topic in ("orders", *QUERIES)},
    )


graph = make(os.environ.get(NAME, "start"))
