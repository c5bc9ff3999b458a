"""Streaming frames that several tests of Spark begin with."""

from __future__ import annotations

from typing import Any

from cues_kafka import Kafka
from cues_kafka.spark import register


def frame_of(session: Any, options: Kafka, topic: str, kind: str = "cues") -> Any:
    """A topic from its beginning, by the public source or another one with its options."""
    register(session)
    return (
        session.readStream.format(kind)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
