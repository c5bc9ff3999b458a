"""From what a declaration says of a codec to the codec that does it."""

from __future__ import annotations

from typing import Any

from cues_kafka.codecs.json import JsonCodec, TypedJsonCodec
from cues_kafka.codecs.raw import RawCodec, TextCodec
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import Avro, Json, Raw
from cues_kafka.ports import Codec

KEYS: Codec = TextCodec()
"""Keys are UTF-8 text on every topic."""


def codec_for(declaration: Any) -> Codec:
    """
    The codec of a topic's values.

    Raises:
        ConfigError: there is no codec for this kind of declaration.
        GraphError: the class of `Json(cls)` has a field that cannot travel.
    """
    match declaration:
        case Raw():
            return _RAW
        case Json(cls) if cls is not None:
            return _typed(cls)
        case Json():
            return _JSON
        case Avro():
            raise ConfigError(
                "Avro(...) for topics can be declared, but this release does not run it. "
                "Declare Json(SomeDataclass) or Raw()."
            )
        case _:
            raise ConfigError(f"{declaration!r:.200} is not a codec. Declare Json(), Json(SomeDataclass) or Raw().")


_RAW: Codec = RawCodec()
_JSON: Codec = JsonCodec()


_TYPED: dict[type[Any], Codec] = {}


def _typed(cls: type[Any]) -> Codec:
    """One for each class: topics share it, for it has no state."""
    if cls not in _TYPED:
        _TYPED[cls] = TypedJsonCodec(cls)
    return _TYPED[cls]
