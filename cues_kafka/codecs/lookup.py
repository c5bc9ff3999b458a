"""Finds the codec of a declaration: a table from the declaration's class to the function that makes its codec."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.formats import format_of, subject_of
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.own import OwnCodec
from cues_kafka.codecs.raw import RawCodec
from cues_kafka.errors import ConfigError
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf, SchemaSpec
from cues_kafka.ports.codec import WireCodec


class MadeFor(NamedTuple):
    """
    The purpose of a codec.

    Attributes:
        topic: the topic's name.
        cluster: the options of its cluster, `Kafka(...)` or `Memory()`; None: planned offline, so the codec is made
            but not used.
        part: which part of a message it converts.
    """

    topic: str
    cluster: Any = None
    part: Literal["key", "value"] = "value"


def codec_for(declaration: CodecSpec, made_for: MadeFor) -> WireCodec:
    """
    Make the codec of a declaration. A task does this once, never for each message.

    Raises:
        ConfigError: there is no codec for this class of declarations.
        GraphError: the class of `Json(cls)`, or the schema of a user's codec, has a field that cannot travel.
    """
    make = MAKERS.get(type(declaration))
    if make is not None:
        return make(declaration, made_for)
    if isinstance(declaration, Codec):
        return OwnCodec(declaration.open(made_for.topic, made_for.part))
    raise ConfigError(
        f"{declaration!r:.200} is not a codec. Declare Json(...), Avro(...), Raw() or a cues_kafka.Codec of your own."
    )


@cache
def _json(declaration: Json) -> WireCodec:
    """One for each class: compiling it takes a while, and topics can share it."""
    return JsonCodec(Any if declaration.cls is None else declaration.cls)


def _of_schema(declared: SchemaSpec, made_for: MadeFor) -> WireCodec:
    if not declared.registry:
        return _alone(declared)
    subject = subject_of(declared, made_for.topic, made_for.part)
    return format_of(declared).codec(declared, subject, _schemas(made_for), made_for.part)


@cache
def _alone(declared: SchemaSpec) -> WireCodec:
    """One for each declaration, like those of JSON."""
    return format_of(declared).codec(declared)


def _schemas(made_for: MadeFor) -> Any:
    """The cluster's registry; offline one that is never asked."""
    options = getattr(made_for.cluster, "registry", None)
    if options is None and made_for.cluster is not None:
        raise ConfigError(
            f"{made_for.topic!r} is declared with registry=True, and the cluster has no registry. Write "
            "Kafka(..., registry=Registry('http://host:8081')), or [registry] url in cues-kafka.toml."
        )
    if options is None:
        return _NoRegistry()
    from cues_kafka.codecs.registry import schemas_of  # noqa: PLC0415

    return schemas_of(options)


class _NoRegistry:
    """The registry of a graph that is planned offline: its codecs are made and not used."""


MAKERS: Final[dict[type[CodecSpec], Callable[[Any, MadeFor], WireCodec]]] = {
    Json: lambda declaration, _: _json(declaration),
    Avro: _of_schema,
    JsonSchema: _of_schema,
    Protobuf: _of_schema,
    Raw: lambda *_: RawCodec(),
    ErrorMessages: lambda *_: error_messages(),
}
"""The maker of each class of declarations. A maker imports its codec's library when it is called."""
