"""
The bytes of RabbitMQ's stream protocol, version 1, as far as a task that publishes needs it.

A frame is its size, a key, a version, and fields. What a publisher sends, and what a consumer gets in chunks, are
messages of AMQP 1.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

DECLARE_PUBLISHER, PUBLISH, CONFIRMED, REFUSED, QUERY_SEQUENCE = 0x01, 0x02, 0x03, 0x04, 0x05
SUBSCRIBE, DELIVER, CREDIT, STORE_OFFSET, QUERY_OFFSET, CREATE = 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0D
METADATA_UPDATE, PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0x10, 0x11, 0x12, 0x13
TUNE, OPEN, CLOSE, HEARTBEAT = 0x14, 0x15, 0x16, 0x17

ANSWER: Final = 0x8000
"""The bit of a key that says that the frame is an answer."""

OK, NO_STREAM, ALREADY_THERE, NOT_AVAILABLE, ACCESS_REFUSED, NO_OFFSET = 0x01, 0x02, 0x05, 0x06, 0x10, 0x13
LOGIN_REFUSED: Final = (0x07, 0x08, 0x09, 0x0B)
NO_VIRTUAL_HOST: Final = 0x0C

CODES: Final = {
    NO_STREAM: "the stream does not exist",
    NOT_AVAILABLE: "the stream is not available",
    0x07: "the SASL mechanism is not supported",
    0x08: "the user or the password is wrong",
    0x09: "the login failed",
    0x0B: "the user may connect from the broker's machine alone",
    NO_VIRTUAL_HOST: "the user may not use the virtual host, or it is not there",
    0x0E: "the frame is too large",
    0x0F: "an internal error",
    ACCESS_REFUSED: "the user has not the permission",
    0x11: "a precondition failed",
    0x12: "the publisher does not exist",
}
"""What the codes of answers mean."""

FIRST, AT_OFFSET = 1, 4
"""Where a subscription begins."""

HEAD: Final = 8
"""Bytes of a frame before the fields of an answer or a delivery: its size, its key and its version."""

_ENTRY: Final = struct.Struct(">QI")
_CHUNK: Final = struct.Struct(">bbHIqQQiIII")
_LARGE: Final = 0x80000000
_DATA_SHORT, _DATA_LONG = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_PROPERTIES, _OWN_PROPERTIES = b"\x00\x53\x73", b"\x00\x53\x74"
_NULL: Final = b"\x40"
_SHORT: Final = 0xFF


class WireError(ConnectionError):
    """The broker has sent what the protocol does not have."""


class StreamMessage(NamedTuple):
    """
    A message of a stream.

    Attributes:
        offset: in the stream.
        data: the message in AMQP 1.0.
    """

    offset: int
    data: bytes


def text(value: str) -> bytes:
    """A text, behind its length."""
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def texts(values: Mapping[str, str]) -> bytes:
    """Pairs of texts, behind their number."""
    return struct.pack(">I", len(values)) + b"".join(text(name) + text(one) for name, one in values.items())


def frame(key: int, fields: bytes) -> bytes:
    """A frame."""
    return struct.pack(">IHH", len(fields) + 4, key, 1) + fields


def entry(number: int, message: bytes) -> bytes:
    """One message as a publisher sends it under its number."""
    return _ENTRY.pack(number, len(message)) + message


def number_of(data: bytes) -> int:
    """The number of the first of such entries."""
    return int(_ENTRY.unpack_from(data)[0])


def split_entries(data: bytes) -> Iterator[bytes]:
    """The entries that `entry` has made, one after the other."""
    at = 0
    while at < len(data):
        end = at + _ENTRY.size + _ENTRY.unpack_from(data, at)[1]
        yield data[at:end]
        at = end


def publish_frames(publisher: int, entries: Iterable[bytes], most: int) -> Iterator[bytes]:
    """
    The frames that publish entries, in their order.

    Args:
        publisher: its number on the connection.
        entries: see `entry`.
        most: bytes of a frame.
    """
    room, size, some = most - HEAD - 5, 0, list[bytes]()
    for one in entries:
        if some and size + len(one) > room:
            yield _publish_frame(publisher, some)
            some, size = [], 0
        some.append(one)
        size += len(one)
    if some:
        yield _publish_frame(publisher, some)


def _publish_frame(publisher: int, entries: Sequence[bytes]) -> bytes:
    return frame(PUBLISH, struct.pack(">BI", publisher, len(entries)) + b"".join(entries))


def chunk(data: bytes) -> list[StreamMessage]:
    """
    The messages of a chunk.

    Raises:
        WireError: it has a kind of entry that is not known here.
    """
    magic, kind, count, _, _, _, first, _, _, _, _ = _CHUNK.unpack_from(data)
    if magic != 0x50:
        raise WireError(f"a chunk of a stream begins with {magic:#x}")
    if kind:
        return []
    at, found = _CHUNK.size, list[StreamMessage]()
    for number in range(count):
        [size] = struct.unpack_from(">I", data, at)
        if size & _LARGE:
            raise WireError("a stream has messages that were published several in one entry")
        found.append(StreamMessage(first + number, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def message(body: bytes, message_id: str, content_type: str, headers: Mapping[str, str | bytes]) -> bytes:
    """
    A message in AMQP 1.0.

    Args:
        body: its data.
        message_id: empty: none.
        content_type: empty: none.
        headers: its application properties.
    """
    return _properties(message_id, content_type) + _own_properties(headers) + data_section(body)


def data_section(body: bytes) -> bytes:
    """The body alone: a message of AMQP 1.0, too."""
    if len(body) <= _SHORT:
        return _DATA_SHORT + bytes((len(body),)) + body
    return _DATA_LONG + struct.pack(">I", len(body)) + body


def body_of(data: bytes) -> bytes | None:
    """The body of a message that `data_section` has made; None: it is another one."""
    if data.startswith(_DATA_SHORT):
        return data[5:]
    return data[8:] if data.startswith(_DATA_LONG) else None


def _properties(message_id: str, content_type: str) -> bytes:
    if not message_id and not content_type:
        return b""
    fields = [_text(message_id) if message_id else _NULL]
    if content_type:
        fields += [_NULL] * 5 + [_text(content_type, symbol=True)]
    return _PROPERTIES + _compound(0xC0, len(fields), b"".join(fields))


def _own_properties(headers: Mapping[str, str | bytes]) -> bytes:
    if not headers:
        return b""
    pairs = b"".join(
        _text(name) + (_text(one) if isinstance(one, str) else _binary(one)) for name, one in headers.items()
    )
    return _OWN_PROPERTIES + _compound(0xC1, 2 * len(headers), pairs)


def _text(value: str, *, symbol: bool = False) -> bytes:
    return _sized(0xA3 if symbol else 0xA1, value.encode())


def _binary(value: bytes) -> bytes:
    return _sized(0xA0, value)


def _sized(kind: int, data: bytes) -> bytes:
    """A value with a length of one byte, or, by the kind 16 above it, of four."""
    if len(data) <= _SHORT:
        return bytes((kind, len(data))) + data
    return bytes((kind + 0x10,)) + struct.pack(">I", len(data)) + data


def _compound(kind: int, count: int, data: bytes) -> bytes:
    """A list or a map."""
    if len(data) < _SHORT and count <= _SHORT:
        return bytes((kind, len(data) + 1, count)) + data
    return bytes((kind + 0x10,)) + struct.pack(">II", len(data) + 4, count) + data
