"""The pipe in Faust: ``python faust_pipe.py worker``."""

from __future__ import annotations

import os

import faust

NAME = os.environ.get("NAME", "shop")

app = faust.App(
    NAME,
    broker=f"kafka://{os.environ.get('BROKER', 'localhost:9092')}",
    processing_guarantee="exactly_once",
    broker_commit_interval=0.1,
    broker_session_timeout=10,
    consumer_auto_offset_reset="earliest",
    producer_compression_type="lz4",
    topic_partitions=4,
    topic_disable_leader=True,
    web_enabled=False,
    datadir=os.environ.get("STATE", "state"),
)
values = app.topic(f"{NAME}.values", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
copies = app.topic(f"{NAME}.copies", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


@app.agent(values)
async def forward(stream: faust.Stream[bytes]) -> None:
    """Send each value on."""
    async for key, value in stream.items():
        await copies.send(key=key, value=value)


if __name__ == "__main__":
    app.main()
