"""A function that fails in the middle, in Quix Streams: ``python quix_fork.py``."""

from __future__ import annotations

import os

from quixstreams import Application, State

NAME = os.environ.get("NAME", "shop")

app = Application(
    broker_address=os.environ.get("BROKER", "localhost:9092"),
    consumer_group=NAME,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.1,
    state_dir=os.environ.get("STATE", "state"),
    on_processing_error=lambda *_: True,  # go on with the next message
)
numbers = app.topic(f"{NAME}.numbers", value_deserializer="json")
first = app.topic(f"{NAME}.first", value_serializer="json")
second = app.topic(f"{NAME}.second", value_serializer="json")


def count(number: int, counts: State) -> dict[str, int]:
    """Count all messages."""
    counts.set("all", counts.get("all", 0) + 1)
    return {"number": number, "count": counts.get("all")}


def fail(counted: dict[str, int]) -> int:
    """Fail at each tenth message."""
    if counted["number"] % 10 == 0:
        raise ValueError("a tenth message")
    return counted["count"]


counted = app.dataframe(numbers).apply(count, stateful=True)
counted.apply(lambda both: both["number"]).to_topic(first)
counted.apply(fail).to_topic(second)

if __name__ == "__main__":
    app.run()
