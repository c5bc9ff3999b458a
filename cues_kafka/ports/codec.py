"""Values and their bytes."""

from __future__ import annotations

from typing import Any, Protocol


class WireCodec(Protocol):
    """
    Converts the values (or keys) of one topic to bytes and back. Stateless, and shared by threads.

    A codec may have an attribute `id_header`: the name of a header whose value, where a message has it, `decode` gets
    in front of the bytes.
    """

    @property
    def nullable(self) -> bool:
        """Whether None is a value, so that a message without a value (a tombstone) is read as None."""
        ...

    @property
    def shape(self) -> Any:
        """The schema of the values as a `codecs.schema.Shape`, for columns of Spark; None: they have no schema."""
        ...

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit.
        """
        ...

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit.
        """
        ...
