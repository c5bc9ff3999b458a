"""The limit of a message's bytes, for all formats alike: what readers would refuse is not written."""

from __future__ import annotations

from cues_kafka.errors import CodecError


def check_written(data: bytes, most: int) -> bytes:
    """
    Give back the bytes of a value that was written.

    Args:
        data: all of them, as readers get them.
        most: `Limits(bytes=)` of the declaration.

    Raises:
        CodecError: readers with the same limits would refuse them.
    """
    if len(data) > most:
        raise CodecError(
            f"The value takes {len(data)} bytes, and readers of the topic take {most}. Send less, or raise the limit: "
            "limits=Limits(bytes=...)."
        )
    return data


def check_read(data: bytes, most: int) -> None:
    """
    Look at a message before it is read.

    Raises:
        CodecError: it has more bytes than `Limits(bytes=)` of the declaration.
    """
    if len(data) > most:
        raise CodecError(
            f"The message has {len(data)} bytes, and the declared limit is {most}. Raise it with "
            f"limits=Limits(bytes=...)."
        )
