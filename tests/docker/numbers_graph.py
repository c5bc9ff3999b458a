"""The graph that the image of native workers runs: each call takes long enough that SIGTERM comes among them."""

from __future__ import annotations

import time

from cues_kafka import Graph, Processor, Source, Topic


def double(number: int) -> int:
    """Take two milliseconds."""
    time.sleep(0.002)
    return number * 2


graph = Graph(
    "numbers",
    Source("numbers.in"),
    Processor(double, inputs="numbers.in", outputs="numbers.out"),
    errors="numbers.errors",
    defaults=Topic(partitions=2),
)
