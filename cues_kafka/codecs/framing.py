"""How a message names the schema that it was written with: a prefix before the encoded value.

Without a registry that is Avro's single-object encoding: two marks and the schema's fingerprint. With one it is
Confluent's wire format: a zero byte and the schema's id in four bytes. Newer clients put a GUID into a header instead;
`in_front` puts such a header before the value, so that codecs see one form.

In Protobuf the place of the message in its file follows: numbers as varints, zigzag, after their count; a single 0
stands for the first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal
from uuid import UUID

from cues_kafka.errors import CodecError
from cues_kafka.ports import Headers

SINGLE_OBJECT: Final = b"\xc3\x01"
"""Avro's single-object encoding, version 1; the fingerprint follows, 8 bytes."""

ID: Final = 0
"""Confluent's wire format: the id follows, 4 bytes."""

GUID: Final = 1
"""Confluent's wire format in a header: the GUID follows, 16 bytes."""


def id_prefix(number: int) -> bytes:
    """What stands before a value that was written with the schema of this id."""
    return bytes([ID]) + number.to_bytes(4, "big")


def header_of(part: Literal["key", "value"]) -> str:
    """The header that may hold the GUID of a key's or value's schema."""
    return f"__{part}_schema_id"


def in_front(headers: Headers | None, name: str, data: bytes) -> bytes:
    """The value behind the schema's GUID, if a header has one; else as it is."""
    found = next((value for key, value in headers or () if key == name and value), None)
    return data if found is None else found + data


def written_with(data: bytes) -> tuple[int | UUID, int]:
    """
    The id or GUID of the schema that a value was written with, and where the value begins.

    Raises:
        CodecError: the bytes are not in Confluent's wire format.
    """
    if len(data) >= 5 and data[0] == ID:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == GUID:
        return UUID(bytes=data[1:17]), 17
    raise CodecError(
        f"The message {_begins(data, 1)}, expected 0x00 and the id of a schema in 4 bytes (Confluent's wire format). "
        "Its producer uses no registry, or another codec: declare that one."
    )


def fingerprint_of(data: bytes) -> bytes:
    """
    The fingerprint of the schema that a value in single-object encoding was written with.

    Raises:
        CodecError: the bytes have no fingerprint.
    """
    if len(data) < 10 or data[:2] != SINGLE_OBJECT:
        hint = " It looks like Confluent's wire format: add registry=True." if data[:1] == b"\0" else ""
        raise CodecError(
            f"The message {_begins(data, 2)}, expected 0xc3 0x01 and the fingerprint of a schema in 8 bytes "
            f"(single-object encoding).{hint}"
        )
    return data[2:10]


def _begins(data: bytes, count: int) -> str:
    """How a message begins, for people."""
    if len(data) < 5:
        return f"has {len(data) or 'no'} bytes"
    shown = " ".join(f"0x{byte:02x}" for byte in data[:count])
    return f"begins with byte {shown}" if count == 1 else f"begins with bytes {shown}"


def places(indexes: Sequence[int]) -> bytes:
    """The place of a message in its Protobuf file."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def places_of(data: bytes, start: int, most: int) -> tuple[tuple[int, ...], int]:
    """
    The place of a message in its Protobuf file, and where the value begins.

    Args:
        data: a message.
        start: where the place begins.
        most: how many numbers it may have.

    Raises:
        CodecError: there is none.
    """
    count, start = _read_varint(data, start)
    if not 0 <= count <= most:
        raise CodecError(f"The place of the message in its Protobuf file has {count} numbers. See the wire format.")
    found = []
    for _ in range(count):
        number, start = _read_varint(data, start)
        found.append(number)
    return tuple(found) or (0,), start


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    """A zigzag number of at most 32 bits, and where the next thing begins."""
    number = 0
    for place, byte in enumerate(data[start : start + 5]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), start + place + 1
    raise CodecError("The place of the message in its Protobuf file is not readable. Its producer uses another codec.")
