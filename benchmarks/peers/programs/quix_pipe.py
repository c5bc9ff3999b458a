"""The pipe in Quix Streams: ``python quix_pipe.py``."""

from __future__ import annotations

import os

from quixstreams import Application

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
values = app.topic(f"{NAME}.values", value_deserializer="bytes")
copies = app.topic(f"{NAME}.copies", value_serializer="bytes")
app.dataframe(values).to_topic(copies)

if __name__ == "__main__":
    app.run()
