"""Reads deliveries of AMQP 0-9-1 that are there as a whole: a method, properties and a body, each in one frame.

pika's classes decode field by field, and name every field that is not there. A consumer gets the same few exchanges and
routing keys again and again, so those are decoded once; and of the properties only those are read that a message has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

_METHOD: Final = struct.Struct(">BHLL")
_HEADER: Final = struct.Struct(">BHLHHQH")
_BODY: Final = struct.Struct(">BHL")
_TAG: Final = struct.Struct(">QB")
_IS_METHOD, _IS_HEADER, _IS_BODY, _ENDS = 1, 2, 3, 0xCE
_DELIVERED: Final = 60 << 16 | 60
"""Class and method of `basic.deliver`."""

_CLASS: Final = 60
_HEAD: Final = 7
"""Bytes of a frame before its payload: kind, channel and size."""

UNUSUAL: Final = 0
"""What is there is not such a delivery; pika reads it."""

CUT: Final = -1
"""More of the delivery has to come."""

MOST_ROUTES: Final = 1_000
"""Exchanges with routing keys that are kept."""

_SHORT: Final = (
    (1 << 15, "content_type"), (1 << 14, "content_encoding"), (1 << 12, "delivery_mode"), (1 << 11, "priority"),
    (1 << 10, "correlation_id"), (1 << 9, "reply_to"), (1 << 8, "expiration"), (1 << 7, "message_id"), (1 << 5, "type"),
    (1 << 4, "user_id"), (1 << 3, "app_id"), (1 << 2, "cluster_id"),
)  # fmt: skip
_NUMBERS: Final = frozenset({"delivery_mode", "priority"})
_KNOWN: Final = sum(flag for flag, _ in _SHORT)


class DeliverMethod(NamedTuple):
    """What is used of pika's `Basic.Deliver`."""

    delivery_tag: int
    redelivered: bool
    exchange: str | bytes
    routing_key: str | bytes


class Properties:
    """
    Those of a message without headers and without a time; otherwise as pika's `BasicProperties`.

    `vars` has those that the message has.
    """

    content_type: str | bytes | None = None
    content_encoding: str | bytes | None = None
    headers: None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | bytes | None = None
    reply_to: str | bytes | None = None
    expiration: str | bytes | None = None
    message_id: str | bytes | None = None
    timestamp: None = None
    type: str | bytes | None = None
    user_id: str | bytes | None = None
    app_id: str | bytes | None = None
    cluster_id: str | bytes | None = None


Consumer = Callable[[Any, Any, bytes], None]
"""Gets method, properties and body of a message."""


class DeliveryReader:
    """Reads the deliveries of one connection."""

    def __init__(self, decode: Callable[[bytes, int], Any]) -> None:
        """
        Args:
            decode: reads properties that have a table or a time, from where their flags begin.
        """
        self._decode = decode
        self._routes: dict[bytes, tuple[str | bytes, str | bytes]] = {}

    def take(self, data: bytes, at: int, consumer: Consumer) -> int:
        """
        Hand a delivery to its consumer; gives where it ends, or `UNUSUAL`, or `CUT`.

        Args:
            data: what has been received.
            at: where a frame begins.
            consumer: of the only queue on the connection.
        """
        have = len(data)
        if have - at < _METHOD.size:
            return CUT if have - at < _HEAD or data[at] == _IS_METHOD else UNUSUAL
        kind, channel, size, called = _METHOD.unpack_from(data, at)
        if called != _DELIVERED or kind != _IS_METHOD:
            return UNUSUAL
        content = at + _HEAD + size + 1
        if content + _HEADER.size > have:
            return CUT
        kind, second, size, number, _, length, flags = _HEADER.unpack_from(data, content)
        if kind != _IS_HEADER or number != _CLASS or second != channel:
            return UNUSUAL
        behind: int = content + _HEAD + size + 1
        end = behind
        if length:
            if end + _HEAD > have:
                return CUT
            kind, second, size = _BODY.unpack_from(data, end)
            if kind != _IS_BODY or size != length or second != channel:
                return UNUSUAL  # such as a body of several frames
            behind = end + _HEAD + size + 1
        if behind > have:
            return CUT
        if data[content - 1] != _ENDS or data[end - 1] != _ENDS or data[behind - 1] != _ENDS:
            return UNUSUAL
        tag_at = at + _METHOD.size + 1 + data[at + _METHOD.size]  # behind the consumer's name
        tag, bits = _TAG.unpack_from(data, tag_at)
        where = data[tag_at + _TAG.size : content - 1]
        exchange, routing_key = self._routes.get(where) or self._route(where)
        fields = content + _HEADER.size
        properties = self._decode(data, fields - 2) if flags & ~_KNOWN else _properties(data, fields, flags)
        body = data[end + _HEAD : behind - 1] if length else b""
        consumer(DeliverMethod(tag, bits & 1 == 1, exchange, routing_key), properties, body)
        return behind

    def _route(self, where: bytes) -> tuple[str | bytes, str | bytes]:
        exchange, at = _text(where, 0)
        found = exchange, _text(where, at)[0]
        if len(self._routes) < MOST_ROUTES:
            self._routes[where] = found
        return found


def _properties(data: bytes, at: int, flags: int) -> Properties:
    """The properties behind these flags."""
    made = Properties()
    fields = vars(made)
    for name, is_number in _layout(flags):
        size = data[at]
        at += 1
        if is_number:
            fields[name] = size
            continue
        behind = at + size
        try:
            fields[name] = data[at:behind].decode()
        except UnicodeDecodeError:  # as pika has it
            fields[name] = data[at:behind]
        at = behind
    return made


@lru_cache(maxsize=256)
def _layout(flags: int) -> tuple[tuple[str, bool], ...]:
    """Which properties there are, and whether each one is a number of one byte."""
    return tuple((name, name in _NUMBERS) for flag, name in _SHORT if flags & flag)


def _text(data: bytes, at: int) -> tuple[str | bytes, int]:
    """A short text, and where it ends."""
    behind = at + 1 + data[at]
    try:
        return data[at + 1 : behind].decode(), behind
    except UnicodeDecodeError:  # as pika has it
        return data[at + 1 : behind], behind
