"""What the error messages of a processor carry besides the failure: its declaration, and values as far as asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from cues_kafka.codecs.redacting import redacted
from cues_kafka.graph.data import described
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import Errors
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.processor import Processor


class Shown(TypedDict):
    """Fields of an error message: see `ErrorMessage`."""

    payload: bytes | None
    redacted: tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """
    What error messages carry.

    Attributes:
        declaration: what the processor was declared as.
        payload: whether they carry a value that could be decoded.
        redact: fields that no value has.
    """

    declaration: Mapping[str, Any] = field(default_factory=dict)
    payload: bool = False
    redact: tuple[str, ...] = ()

    def shown(self, data: bytes | None, declared: CodecSpec, decode: Callable[[], Any]) -> Shown:
        """
        A message's value as an error message carries it.

        Args:
            data: its bytes.
            declared: the codec of its topic.
            decode: gives the value; called where fields are redacted.
        """
        if data is not None and self.redact:
            data = redacted(data, declared, decode, self.redact)
        return {"payload": data, "redacted": self.redact}


NOTHING: Final = Carried()
"""Nothing but the failure."""


def carried_by(graph: Graph, part: Processor | DataFrameProcessor | Feed) -> Carried:
    """What the error messages of a part of a graph carry."""
    errors = graph.declared_errors(part)
    given = errors if isinstance(errors, Errors) else None
    if given is None:
        return Carried(described(part))
    return Carried(described(part), given.payload, given.redact)
