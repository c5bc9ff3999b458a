"""Finds the codec of a declaration: a table from the declaration's class to the function that makes its codec."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.raw import RawCodec
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import Avro, CodecSpec, Json, Raw
from cues_kafka.ports import Codec


class MadeFor(NamedTuple):
    """
    What a codec is made for.

    Attributes:
        topic: the topic's name.
        cluster: the options of its cluster, `Kafka(...)` or `Memory()`; None: planned offline, so the codec is made
            but not used.
        part: which part of a message it converts.
    """

    topic: str
    cluster: Any = None
    part: Literal["key", "value"] = "value"


def codec_for(declaration: CodecSpec, made_for: MadeFor) -> Codec:
    """
    Make the codec of a declaration. A task does this once, never for each message.

    Raises:
        ConfigError: there is no codec for this class of declarations.
        GraphError: the class of `Json(cls)` has a field that cannot travel.
    """
    make = MAKERS.get(type(declaration))
    if make is None:
        raise ConfigError(f"{declaration!r:.200} is not a codec. Declare Json(), Json(SomeDataclass) or Raw().")
    return make(declaration, made_for)


@cache
def _json(declaration: Json) -> Codec:
    """One for each class: compiling it takes a while, and topics can share it."""
    return JsonCodec(Any if declaration.cls is None else declaration.cls)


def _avro(_: Avro, __: MadeFor) -> Codec:
    raise ConfigError(
        "Avro(...) for topics can be declared, but this release does not run it. Declare Json(SomeDataclass) or Raw()."
    )


MAKERS: Final[dict[type[CodecSpec], Callable[[Any, MadeFor], Codec]]] = {
    Json: lambda declaration, _: _json(declaration),
    Avro: _avro,
    Raw: lambda *_: RawCodec(),
}
"""The maker of each class of declarations. A maker imports its codec's library when it is called."""
