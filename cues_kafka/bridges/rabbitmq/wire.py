"""pika's connection with two quick ways: whole deliveries are read at once, and many frames are written at once.

pika reads a delivery as three frames, each with its callbacks, and cuts each from the front of all that was received.
It writes each frame with a call of the socket. Whatever is not a whole delivery for the consumer, or a small message
without headers, goes pika's way. So does all where a later pika has no such methods.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pika
from pika import frame, spec

from cues_kafka.bridges.rabbitmq.delivered import CUT, DeliveryReader

_FRAME: Final = struct.Struct(">BHL")
_CONTENT: Final = struct.Struct(">HHQ")
_CLASS: Final = spec.BasicProperties.INDEX
_ENDS: Final = spec.FRAME_END
_HEAD: Final = 7

RECEIVED_BYTES: Final = 65_536
"""What is received at once, at most; pika takes 4,096 bytes, some fifteen small messages."""

PERSISTENT: Final = 2
"""The mode of a message that is kept on disk."""

SMALL_BYTES: Final = 4_000
"""The largest body that is surely one frame: the standard allows no connection whose frames are below 4,096 bytes."""

_MODE, _TYPE, _EXPIRES, _ID = 1 << 12, 1 << 15, 1 << 8, 1 << 7
"""Flags of properties."""


class WiredConnection(pika.SelectConnection):  # type: ignore[misc]  # pika has no types
    """
    See above.

    Attributes:
        consumer: called with method, properties and body of each delivery that is read at once; None: none is.
    """

    consumer: Callable[[Any, Any, bytes], None] | None = None
    _together: list[bytes] | None = None
    _frame_buffer: bytes

    def __init__(self, *args: Any, **more: Any) -> None:
        self._deliveries = DeliveryReader(decode_properties)
        super().__init__(*args, **more)

    @contextmanager
    def together(self) -> Iterator[list[bytes]]:
        """Write what is sent meanwhile at once; frames may be added to what this gives."""
        parts: list[bytes] = []
        self._together = parts
        try:
            yield parts
        finally:
            self._together = None
            if parts:
                self._adapter_emit_data(b"".join(parts))

    def _adapter_emit_data(self, data: bytes) -> None:
        if self._together is None:
            super()._adapter_emit_data(data)
        else:
            self._together.append(data)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = RECEIVED_BYTES  # noqa: SLF001 - pika has no setting for it
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        if self.consumer is None:
            super()._on_data_available(data_in)
            return
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        at, self._frame_buffer = 0, b""
        while at < len(data):
            behind = self._deliveries.take(data, at, self.consumer)
            if behind > 0:
                self.bytes_received += behind - at  # pika's heartbeats look at it
                at = behind
                continue
            if behind == CUT:
                self._frame_buffer = data[at:]
                return
            end = len(data)
            if end - at >= _HEAD:
                end = min(end, at + _HEAD + _FRAME.unpack_from(data, at)[2] + 1)
            size = end - at
            super()._on_data_available(data[at:end])
            if self._frame_buffer:  # a part of a frame, or of none
                self._frame_buffer += data[end:]
                return
            at += size


def decode_properties(data: bytes, at: int) -> Any:
    """All properties that there may be."""
    return spec.BasicProperties().decode(data, at)


@lru_cache(maxsize=256)
def published(channel: int, exchange: str, routing_key: str) -> bytes:
    """The first frame of a message; some may be used again and again."""
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    made: bytes = frame.Method(channel, method).marshal()
    return made


def contents(channel: int, name: str, body: bytes, content_type: str, expires: str | None) -> bytes | None:
    """The other frames of a message that is kept on disk, without headers; None: it is too large for this way."""
    size, named = len(body), name.encode()
    if size > SMALL_BYTES or len(named) > 255:
        return None
    flags, fields = _MODE | _ID, b""
    if content_type:
        flags, fields = flags | _TYPE, _short(content_type)
    fields += b"%c" % PERSISTENT
    if expires is not None:
        flags, fields = flags | _EXPIRES, fields + _short(expires)
    fields = b"%b%b%b%c%b" % (_CONTENT.pack(_CLASS, 0, size), flags.to_bytes(2, "big"), fields, len(named), named)
    header = b"%b%b%c" % (_FRAME.pack(spec.FRAME_HEADER, channel, len(fields)), fields, _ENDS)
    if not size:
        return header
    return b"%b%b%b%c" % (header, _FRAME.pack(spec.FRAME_BODY, channel, size), body, _ENDS)


def _short(text: str) -> bytes:
    data = text.encode()
    return b"%c%b" % (len(data), data)
