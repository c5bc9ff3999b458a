"""Errors as data: error messages as values, the codec that has them, and what an errors topic gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.names import check_written_topic
from cues_kafka.ports.log import Coordinates

ERROR_VERSION = 1
"""What an error message means. Fields that are added with a default leave it as it is."""


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """
    An exception that led to another one.

    Attributes:
        exception: name of its class.
        text: what it says.
        trace: `file:function:line` of its frames outside cues-kafka, the innermost last; at most 10.
    """

    exception: str
    text: str
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMessage:
    """
    An error message, which is committed in the place of all outputs of one delivery.

    Attributes:
        graph: name of the graph.
        processor: name of the processor.
        task: `processor/partition`.
        consumed: coordinates of the consumed messages, in the order of bindings.
        topics: their topics, in the same order.
        hash: the delivery hash, 16 bytes.
        kind: `raised`, `decode`, `output`, `quarantine` or `retries exhausted`.
        exception: name of the exception's class.
        text: what the exception says.
        location: `file:function:line` of the innermost frame of the user's; of an output that was refused, the first
            line of the function; or empty.
        context: what `step.error_context()` and `error_context()` were given. Where several gave one name, the
            innermost counts.
        attempts: calls of the function for this step in this process.
        starts: deaths in user code before this one.
        timestamp_ms: when it failed, milliseconds since the epoch.
        key: of the lead input.
        payload: raw bytes of the lead input's value, where `Errors(payload=True)` asks for it; of a value that was not
            decoded also without that: the value of the input that failed, after deaths that of the lead. `payload_of`
            reads it with the codec of the topic.
        truncated: fields that were cut.
        version: of what the message means.
        declaration: what the processor was declared as, as `Graph.to_dict` writes it; of `opts=` the names alone.
        trace: `file:function:line` of the exception's frames outside cues-kafka, the innermost last; at most 10.
        causes: the exceptions that led to this one, the nearest first; at most 5.
        redacted: fields that `Errors(redact=)` names. The payload is then the value in JSON without them.
    """

    graph: str
    processor: str
    task: str
    consumed: tuple[Coordinates, ...]
    topics: tuple[str, ...]
    hash: bytes
    kind: str
    exception: str
    text: str
    location: str = ""
    context: Mapping[str, Any]
    attempts: int = 1
    starts: int = 0
    timestamp_ms: int
    key: bytes | None = None
    payload: bytes | None = None
    truncated: tuple[str, ...] = ()
    version: int = ERROR_VERSION
    declaration: Mapping[str, Any] = field(default_factory=dict)
    trace: tuple[str, ...] = ()
    causes: tuple[ErrorCause, ...] = ()
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorMessages(CodecSpec):
    """
    Error messages: values are `ErrorMessage`.

    The errors topics of a graph have this codec without being told. Declare it to read those of another graph, or to
    pass error messages on to a topic.
    """

    kind: ClassVar[str] = "errors"

    @property
    def record(self) -> type[Any]:
        return ErrorMessage


@known_arguments()
@dataclass(frozen=True, slots=True)
class Errors:
    """
    An errors topic, and what its messages carry: ``errors=Errors("shop.errors", payload=True)``.

    Attributes:
        topic: its name.
        payload: whether each message carries the value of its (lead) input, as far as there is room.
        redact: names of fields that no payload has, wherever they are in the value. Payloads are then JSON. Bytes that
            cannot be read are left out, because the fields cannot be found in them.
    """

    topic: str
    payload: bool = field(default=False, kw_only=True)
    redact: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_written_topic(self.topic, "Errors")
        if not isinstance(self.payload, bool):
            raise GraphError(f"Errors({self.topic!r}, payload={self.payload!r}): takes True or False.")
        if isinstance(self.redact, str):
            raise GraphError(f"Errors({self.topic!r}, redact={self.redact!r}): write redact=({self.redact!r},).")
        names = tuple(self.redact)
        if not all(isinstance(name, str) and name for name in names):
            raise GraphError(f"Errors({self.topic!r}, redact={self.redact!r}): takes names of fields.")
        object.__setattr__(self, "redact", names)


def check_errors(given: object, what: str) -> None:
    """
    Check an argument `errors=`.

    Raises:
        GraphError: it is not the name of a topic that users may write, `Errors`, or nothing.
    """
    if not (given is None or given is False or isinstance(given, Errors)):
        check_written_topic(given, what)


def errors_topic(given: str | Errors | Literal[False] | None) -> str | None:
    """The topic that an argument `errors=` names; None: it names none."""
    return given.topic if isinstance(given, Errors) else given or None
