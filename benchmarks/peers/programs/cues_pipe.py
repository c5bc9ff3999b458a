"""The pipe in cues-kafka: ``cues-kafka run cues_pipe.py:graph``."""

from __future__ import annotations

import os

from cues_kafka import Graph, Processor, Raw, Source, Topic

NAME = os.environ.get("NAME", "shop")
PARTITIONS = int(os.environ.get("PARTITIONS", "4"))


def forward(value: bytes) -> bytes:
    """Return the value as it is."""
    return value


graph = Graph(
    NAME,
    Source(f"{NAME}.values"),
    Processor(forward, inputs=f"{NAME}.values", outputs=f"{NAME}.copies"),
    defaults=Topic(value=Raw(), partitions=PARTITIONS),
)
