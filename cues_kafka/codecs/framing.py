"""How a message names the schema that it was written with: a prefix before the encoded value.

Without a registry that is Avro's single-object encoding: two marks and the schema's fingerprint. With one it is
Confluent's wire format: a zero byte and the schema's id in four bytes. Newer clients put a GUID into a header instead;
`in_front` puts such a header before the value, so that codecs see one form.

In Protobuf the place of the message in its file follows, in a header too: numbers as varints, zigzag, after their
count; a single 0 stands for the first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self
from uuid import UUID

from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Headers

SINGLE_OBJECT: Final = b"\xc3\x01"
"""Avro's single-object encoding, version 1; the fingerprint follows, 8 bytes."""

ID: Final = 0
"""Confluent's wire format: the id follows, 4 bytes."""

GUID: Final = 1
"""Confluent's wire format in a header: the GUID follows, 16 bytes."""

_LENGTHS: Final = {ID: 5, GUID: 17}
"""Bytes of an id or GUID with the byte before it."""

MAX_PLACES: Final = 100
"""The longest place of a message in its Protobuf file: messages inside each other."""

UNFIT: Final = b"\xff\0cues-kafka:header\0"
"""What `in_front` puts in the place of a header that names no schema; its length and its name follow. All codecs refuse
these bytes. The value is left out, because a part of it could be taken for the missing part of the header."""


class IdHeader(str):
    """
    The name of a header that may name the schema of a key or value.

    Attributes:
        places: whether the place of the message in its Protobuf file follows the id or GUID.
    """

    __slots__ = ("places",)

    places: bool

    def __new__(cls, name: str, *, places: bool = False) -> Self:
        made = super().__new__(cls, name)
        made.places = places
        return made

    def fits(self, value: bytes) -> bool:
        """Whether a header's value names a schema, and holds nothing else."""
        length = _LENGTHS.get(value[0], 0) if value else 0
        if not 0 < length <= len(value):
            return False
        try:
            return (places_of(value, length)[1] if self.places else length) == len(value)
        except CodecError:
            return False


def id_prefix(number: int) -> bytes:
    """What stands before a value that was written with the schema of this id."""
    return bytes([ID]) + number.to_bytes(4, "big")


def header_of(part: Literal["key", "value"], *, places: bool = False) -> IdHeader:
    """The header that may hold the GUID of a key's or value's schema."""
    return IdHeader(f"__{part}_schema_id", places=places)


def in_front(headers: Headers | None, name: str, data: bytes) -> bytes:
    """
    The value behind the schema's GUID, if a header has one; else as it is.

    The last header of the name counts, as in Confluent's Java clients: who writes a message again adds one.

    Args:
        headers: of the message.
        name: of the header. Whether the value of an `IdHeader` can name a schema is checked, see `UNFIT`.
        data: the value.
    """
    found = next((value for key, value in reversed(headers or ()) if key == name and value is not None), None)
    if found is None:
        return data
    if isinstance(name, IdHeader) and not name.fits(found):
        return UNFIT + len(found).to_bytes(4, "big") + name.encode()
    return found + data


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
    if data.startswith(UNFIT):
        raise _unfit(data[len(UNFIT) :])
    raise CodecError(
        f"The message {_begins(data, 1)}, expected 0x00 and the id of a schema in 4 bytes (Confluent's wire format). "
        "Its producer uses no registry, or another codec: declare the codec that it uses."
    )


def _unfit(said: bytes) -> CodecError:
    """What is wrong with a header, see `UNFIT`."""
    length, name = int.from_bytes(said[:4], "big"), said[4:50].decode(errors="replace")
    return CodecError(
        f"The message's header {name} has {length or 'no'} bytes that name no schema. Expected 0x00 and an id in 4 "
        "bytes, or 0x01 and a GUID in 16; in Protobuf the place of the message in its file follows, and nothing else. "
        "Have its producer write the header as Confluent's serializers do, or leave it out."
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


def places_of(data: bytes, start: int, most: int = MAX_PLACES) -> tuple[tuple[int, ...], int]:
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
        raise CodecError(
            f"The place of the message in its Protobuf file has {count} numbers, expected 0 to {most}. Its producer "
            "uses another codec: declare the codec that it uses."
        )
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
    raise CodecError(
        "The place of the message in its Protobuf file is not readable. Its producer uses another codec: "
        "declare the codec that it uses."
    )
