"""`async def` on a real broker, in a native worker; tests/spark has the same in Spark's slots."""

from __future__ import annotations

import asyncio
from typing import Any

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, start
from cues_kafka.testing.fixtures import KafkaFixture

COUNT = 300


async def slow(n: int) -> dict[str, int]:
    """Later messages answer sooner; says how many calls were under way."""
    under_way = sum(task.get_coro().__qualname__.endswith("one") for task in asyncio.all_tasks())  # type: ignore[union-attr]
    await asyncio.sleep(0.002 if n % 7 else 0.02)
    if n % 50 == 13:
        raise ValueError(f"bad {n}")
    return {"n": n, "under_way": under_way}


def graph_of(name: str) -> Graph:
    """A pipe of coroutines."""
    pipe = Processor(slow, inputs=f"{name}.in", outputs=f"{name}.out", concurrency=8)
    return Graph(name, Source(f"{name}.in"), pipe, errors=f"{name}.bad", defaults=Topic(value=Json(), partitions=1))


def check(running: Any, name: str) -> None:
    """Everything once, in order, and side by side."""
    running.send_many(f"{name}.in", list(range(COUNT)))
    running.wait_idle(timeout_s=120)
    found = [message.value for message in running.messages(f"{name}.out")]
    assert [one["n"] for one in found] == [n for n in range(COUNT) if n % 50 != 13]
    assert len(running.messages(f"{name}.bad")) == COUNT // 50
    assert max(one["under_way"] for one in found) > 1


def test_coroutines_are_committed_in_order_natively(kafka: KafkaFixture) -> None:
    """With their errors in their place."""
    name = kafka.unique("later")
    with start(graph_of(name), Kafka(kafka.bootstrap)) as running:
        check(running, name)
