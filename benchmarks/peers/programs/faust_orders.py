"""The job of the pages in Faust: ``python faust_orders.py worker``."""

from __future__ import annotations

import json
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
orders = app.topic(f"{NAME}.orders", key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
counts = app.topic(f"{NAME}.counts", key_type=bytes, value_serializer="json", key_serializer="raw")
errors = app.topic(f"{NAME}.errors", key_type=bytes, value_serializer="json", key_serializer="raw")
table = app.Table("orders", default=int)


@app.agent(orders)
async def count(stream: faust.Stream[bytes]) -> None:
    """Send the order's count, or the error: an exception would drop the message."""
    async for key, value in stream.items():
        try:
            order = json.loads(value)
            if order["cents"] <= 0:
                raise ValueError("cents must be positive")
        except (ValueError, KeyError, TypeError) as error:
            await errors.send(key=key, value={"error": repr(error), "value": value.decode(errors="replace")})
            continue
        table[order["customer"]] += 1
        await counts.send(key=key, value={"id": order["id"], "orders": table[order["customer"]]})


if __name__ == "__main__":
    app.main()
