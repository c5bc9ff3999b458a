"""A worker whose compiled module crashes in the middle of a batch: `python -m`, with address, prefix and the batch."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from cues_kafka import Graph, Kafka, Processor, Raw, Source, Topic, start
from cues_kafka.brokers.kafka.compiled.loaded import loaded


def same(value: bytes) -> bytes:
    """A pipe."""
    return value


def graph_of(prefix: str) -> Graph:
    """A pipe over two partitions."""
    return Graph(
        f"{prefix}-g",
        Source(f"{prefix}-in"),
        Processor(same, name="same", inputs=f"{prefix}-in", outputs=f"{prefix}-out"),
        defaults=Topic(value=Raw(), partitions=2),
    )


def crash_in(batch: int) -> None:
    """Have the module enqueue half of this batch, and then read where nothing is."""
    module: Any = loaded().module
    whole, left = module.produce, batch

    def produce(producer: Any, begin: int, columns: tuple[list[Any], ...], header: str) -> Any:
        nonlocal left
        left -= 1
        if left:
            return whole(producer, begin, columns, header)
        half = max(1, len(columns[0]) // 2)
        whole(producer, begin, tuple(column[:half] for column in columns), header)
        return ctypes.string_at(0)

    module.produce = produce


if __name__ == "__main__":
    bootstrap, prefix, batch = sys.argv[1:]
    if int(batch):
        crash_in(int(batch))
    with start(graph_of(prefix), Kafka(bootstrap, session_timeout_s=6.0, heartbeat_s=0.5)) as running:
        running.wait_idle(timeout_s=60)
