"""A function that fails in the middle, in Faust: ``python faust_fork.py worker``."""

from __future__ import annotations

import os

import faust

NAME = os.environ.get("NAME", "shop")

app = faust.App(
    NAME,
    broker=f"kafka://{os.environ.get('BROKER', 'localhost:9092')}",
    processing_guarantee="exactly_once",
    broker_commit_interval=0.1,
    consumer_auto_offset_reset="earliest",
    topic_partitions=4,
    topic_disable_leader=True,
    web_enabled=False,
    datadir=os.environ.get("STATE", "state"),
)
numbers = app.topic(f"{NAME}.numbers", key_type=bytes, key_serializer="raw", value_serializer="json")
first = app.topic(f"{NAME}.first", key_type=bytes, key_serializer="raw", value_serializer="json")
second = app.topic(f"{NAME}.second", key_type=bytes, key_serializer="raw", value_serializer="json")
table = app.Table("counts", default=int)


@app.agent(numbers)
async def fork(stream: faust.Stream[int]) -> None:
    """Count, send to the first topic, fail at each tenth message, send to the second topic."""
    async for key, number in stream.items():
        table["all"] += 1
        await first.send(key=key, value=number)
        if number % 10 == 0:
            raise ValueError("a tenth message")
        await second.send(key=key, value=table["all"])


if __name__ == "__main__":
    app.main()
