"""A function that fails in the middle, in cues-kafka: ``cues-kafka run cues_fork.py:graph``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

from cues_kafka import Graph, Json, Out, Processor, Source, State, Store, Topic

NAME = os.environ.get("NAME", "shop")


def fork(number: int, counts: State[int]) -> Iterator[Out[Literal["first", "second"]]]:
    """Count, send to the first topic, fail at each tenth message, send to the second topic."""
    counts["all"] = counts.get("all", 0) + 1
    yield Out("first", number)
    if number % 10 == 0:
        raise ValueError("a tenth message")
    yield Out("second", counts["all"])


graph = Graph(
    NAME,
    Source(f"{NAME}.numbers"),
    Processor(
        fork,
        inputs=f"{NAME}.numbers",
        outputs={"first": f"{NAME}.first", "second": f"{NAME}.second"},
        state={"counts": Store(Json(int))},
    ),
    defaults=Topic(value=Json(int), partitions=4),
    errors=f"{NAME}.errors",
)
