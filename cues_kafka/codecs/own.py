"""A user's own codec, as the rest of the project uses codecs: errors have their class, and the schema is a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cues_kafka.codecs.schema import describe, json_types
from cues_kafka.errors import CodecError, ConfigError, CuesError
from cues_kafka.graph.codec import Codec

_OURS = (CuesError, MemoryError)
"""What a codec raises on purpose, or what says nothing about the message."""


class OwnCodec:
    """
    Converts values with the codec that a user declared.

    Args:
        declared: the user's codec, opened for its topic.

    Attributes:
        schema: the type of the values; None: they have none.

    Raises:
        ConfigError: `open` gave something else.
        GraphError: its schema is a type that cannot travel.
    """

    def __init__(self, declared: Codec) -> None:
        if not isinstance(declared, Codec):
            raise ConfigError(f"open() of a codec returned {declared!r:.200}. Return a cues_kafka.Codec, such as self.")
        self._name = type(declared).__name__
        self._encode: Callable[[Any], Any] = declared.encode
        self._decode: Callable[[bytes], Any] = declared.decode
        self.schema = declared.schema
        self.shape = None if self.schema is None else describe(self.schema)
        self.nullable = self.shape is None or "null" in json_types(self.shape)

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit, or the user's code gives something else than bytes.
            RetriableError: the user's code says that something does not answer.
        """
        try:
            data = self._encode(value)
        except _OURS:
            raise
        except Exception as error:
            raise CodecError(f"{self._name} cannot encode the value: {_shown(error)}") from error
        if type(data) is not bytes:
            raise CodecError(f"{self._name}.encode returned {type(data).__name__}, not bytes. Return bytes.")
        return data

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit.
            RetriableError: the user's code says that something does not answer.
        """
        try:
            return self._decode(data)
        except _OURS:
            raise
        except Exception as error:
            raise CodecError(f"{self._name} cannot decode the message: {_shown(error)}") from error


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
