"""The job of the pages in Quix Streams: ``python quix_orders.py``."""

from __future__ import annotations

import json
import os
from typing import Any

from quixstreams import Application, State

NAME = os.environ.get("NAME", "shop")

app = Application(
    broker_address=os.environ.get("BROKER", "localhost:9092"),
    consumer_group=NAME,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.1,
    state_dir=os.environ.get("STATE", "state"),
    consumer_extra_config={"session.timeout.ms": 10_000},
    producer_extra_config={"compression.type": "lz4"},
)
orders = app.topic(f"{NAME}.orders", value_deserializer="bytes")
counts = app.topic(f"{NAME}.counts", value_serializer="json")
errors = app.topic(f"{NAME}.errors", value_serializer="json")


def check(value: bytes) -> dict[str, Any]:
    """The order, or why there is none: an exception would stop the application."""
    try:
        order = json.loads(value)
        if order["cents"] <= 0:
            raise ValueError("cents must be positive")
        return {"order": order}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": repr(error), "value": value.decode(errors="replace")}


def count(checked: dict[str, Any], counts: State) -> dict[str, Any]:
    """Count the orders of the message's key, which is the customer."""
    orders = counts.get("orders", 0) + 1
    counts.set("orders", orders)
    return {"id": checked["order"]["id"], "orders": orders}


checked = app.dataframe(orders).apply(check)
checked[checked.contains("error")].to_topic(errors)
checked[checked.contains("order")].apply(count, stateful=True).to_topic(counts)

if __name__ == "__main__":
    app.run()
