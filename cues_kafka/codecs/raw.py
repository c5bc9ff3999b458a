"""The codec that leaves bytes as they are."""

from __future__ import annotations

from typing import Any

from cues_kafka.errors import CodecError


def as_is(data: bytes | None) -> bytes | None:
    """The same bytes. Hot loops know this function and do not even call it."""
    return data


class RawCodec:
    """The bytes themselves."""

    nullable = True
    shape = None
    decode = staticmethod(as_is)

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: it is not bytes.
        """
        if type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise CodecError(f"Raw() takes bytes, not {type(value).__name__}. Encode it, or declare Json() for the topic.")
