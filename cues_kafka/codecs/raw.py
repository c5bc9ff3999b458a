"""Codecs that do nothing, or next to nothing: the bytes themselves, and text."""

from __future__ import annotations

from typing import Any

from cues_kafka.errors import CodecError


class RawCodec:
    """The bytes themselves."""

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

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class TextCodec:
    """UTF-8 text: what keys are. Bytes pass as they are, so that foreign keys can be handed on."""

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: it is neither text nor bytes, or holds half of a surrogate pair.
        """
        if type(value) is bytes:
            return value
        if not isinstance(value, str):
            raise CodecError(f"A key is text, not {type(value).__name__}. Write key=str(...), or give its bytes.")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(
                f"The key is not valid Unicode at place {error.start}. Fix it, or give its bytes."
            ) from error

    def decode(self, data: bytes) -> str:
        """
        Raises:
            CodecError: the bytes are not UTF-8.
        """
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CodecError(
                f"The key is not UTF-8 at byte {error.start}. Declare the topic's keys as Raw()."
            ) from error
