"""Exactly-once processing of Kafka messages with plain Python functions.

The public names. Importing this package loads no client, codec library or Spark: names that need one are resolved when
they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cues_kafka.errors import (
    AbortableError,
    BrokerError,
    CodecError,
    ConfigError,
    CuesError,
    FatalError,
    Fenced,
    GraphError,
    Interrupt,
    OutputError,
    RecoveryError,
    RetriableError,
    TaskStopped,
    UnstableOffsets,
)
from cues_kafka.graph.declare import Avro, Json, Raw, Retry, Store
from cues_kafka.graph.definition import DataFrameProcessor, Graph, Processor, Source, Topic, processor
from cues_kafka.graph.filters import has_tag, has_type
from cues_kafka.graph.message import Message, Out

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka, Memory
    from cues_kafka.runtime import connect, start

_LAZY = {
    "Kafka": "cues_kafka.brokers.options",
    "Memory": "cues_kafka.brokers.options",
    "connect": "cues_kafka.runtime",
    "start": "cues_kafka.runtime",
}

__all__ = [
    "AbortableError",
    "Avro",
    "BrokerError",
    "CodecError",
    "ConfigError",
    "CuesError",
    "DataFrameProcessor",
    "FatalError",
    "Fenced",
    "Graph",
    "GraphError",
    "Interrupt",
    "Json",
    "Kafka",
    "Memory",
    "Message",
    "Out",
    "OutputError",
    "Processor",
    "Raw",
    "RecoveryError",
    "RetriableError",
    "Retry",
    "Source",
    "Store",
    "TaskStopped",
    "Topic",
    "UnstableOffsets",
    "connect",
    "has_tag",
    "has_type",
    "processor",
    "start",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
