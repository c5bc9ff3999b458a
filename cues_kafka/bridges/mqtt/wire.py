"""paho's client with a buffer on both sides: one read takes many packets, and one write sends many.

paho reads a packet in three calls of the socket, writes each packet in one, and makes a table of all properties of MQTT
for each message. Here messages with QoS 0 and 1 are read out of the buffer at once. All other packets, and whatever is
unusual, are left to paho.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

READ_BYTES: Final = 64 * 1024

_PUBLISH, _PUBACK = 0x30, b"\x40\x02"
_NUMBER: Final = struct.Struct("!H")

_ONCE: Final = {3: ("ContentType", True), 8: ("ResponseTopic", True), 9: ("CorrelationData", False)}
_PAIR, _EXPIRY, _FORMAT = 38, 2, 1
"""Properties of a message that are read here, by their numbers: those that are kept have names, and may be texts."""


class Unusual(Exception):
    """It is left to paho, which says what is wrong, if anything is."""


class MessageProperties:
    """Properties of a message, by the names that paho has for them."""

    __slots__ = ("ContentType", "CorrelationData", "ResponseTopic", "UserProperty")

    UserProperty: list[tuple[str, str]]


class MessagePacket(NamedTuple):
    """A message as it has come; its attributes are those of paho's `MQTTMessage`."""

    mid: int
    topic_bytes: bytes
    payload: bytes
    qos: int
    dup: bool
    retain: bool
    properties: MessageProperties | None

    @property
    def topic(self) -> str:
        """The topic; raises a `UnicodeDecodeError` where the publisher has broken the standard."""
        return self.topic_bytes.decode()


class BufferedClient(Client):
    """See above. Only the thread that reads uses what is not said to be for others."""

    def __init__(self, *args: Any, modern: bool, took: Callable[[Any], None], **options: Any) -> None:
        """
        Args:
            args: those of paho's client.
            modern: whether it is MQTT 5.
            took: called with each message.
            options: those of paho's client.
        """
        super().__init__(*args, **options)
        self._modern, self._took = modern, took
        self.on_message = lambda _, __, message: took(message)
        self._ahead, self._at = b"", 0  # received and not yet read
        self._out = bytearray()  # whole packets that are not yet written
        self._turn = threading.Lock()  # of `_out`

    # What paho calls

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._at >= len(self._ahead):
            self._ahead, self._at = super()._sock_recv(max(bufsize, READ_BYTES)), 0
        data = self._ahead[self._at : self._at + bufsize]
        self._at += len(data)
        return data

    def _sock_send(self, buf: bytes | bytearray) -> int:
        with self._turn:
            self._out += buf
        return len(buf)

    # What our loop calls

    def read(self) -> MQTTErrorCode:
        """Read what the socket has, once, and all packets of it."""
        with suppress(OSError):  # it waits, or paho meets the same and says so
            if self._at >= len(self._ahead):
                self._ahead, self._at = super()._sock_recv(READ_BYTES), 0
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        if self._in_packet["command"] or not self._take_messages():
            code = self.loop_read()
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and self._at < len(self._ahead):
            if self._in_packet["command"] or not self._take_messages():
                code = self.loop_read()
        return code

    def want_write(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out) or super().want_write()

    def write(self) -> MQTTErrorCode:
        """Write all that waits, as far as the socket takes it."""
        code = self.loop_write()
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self._sock is None:
            return code
        with self._turn:
            data = bytes(self._out)
        if not data:
            return code
        try:
            sent = super()._sock_send(data)
        except BlockingIOError:
            return code
        except (OSError, ValueError, AttributeError):  # the socket was closed meanwhile, or is lost
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        with self._turn:
            del self._out[:sent]
        return code

    # On any thread

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages with QoS 1."""
        data = b"".join([_PUBACK + _NUMBER.pack(one) for one in numbers])
        with self._turn:
            self._out += data

    # Messages

    def _take_messages(self) -> bool:
        """Read the messages that come next and are whole; whether there was one."""
        data, before = self._ahead, self._at
        while self._at < len(data) and data[self._at] & 0xF0 == _PUBLISH:
            try:
                message, self._at = self._message(data, self._at)
            except (Unusual, IndexError, struct.error, UnicodeDecodeError):  # or it is not whole
                break
            self._took(message)
        return self._at > before

    def _message(self, data: bytes, at: int) -> tuple[MessagePacket, int]:
        first = data[at]
        qos = (first & 6) >> 1
        length, at = _varied(data, at + 1)
        end = at + length
        if end > len(data) or qos > 1:
            raise Unusual
        begin = at + 2 + _NUMBER.unpack_from(data, at)[0]
        topic, mid = data[at + 2 : begin], 0
        if not topic:  # an alias, or an error
            raise Unusual
        if qos:
            mid = _NUMBER.unpack_from(data, begin)[0]
            begin += 2
        properties = None
        if self._modern:
            size, begin = _varied(data, begin)
            if size:
                properties = _properties(data, begin, begin + size)
                begin += size
        if begin > end:
            raise Unusual
        return MessagePacket(mid, topic, data[begin:end], qos, bool(first & 8), bool(first & 1), properties), end


def _varied(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to four bytes, and where it ends."""
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for nth in (1, 2, 3):
        one = data[at + nth]
        number |= (one & 127) << 7 * nth
        if one < 128:
            return number, at + nth + 1
    raise Unusual


def _properties(data: bytes, at: int, end: int) -> MessageProperties:
    made, pairs = MessageProperties(), list[tuple[str, str]]()
    while at < end:
        kind, at = data[at], at + 1
        if kind == _PAIR:
            name, at = _counted(data, at)
            value, at = _counted(data, at)
            pairs.append((name.decode(), value.decode()))
        elif kind in _ONCE:
            value, at = _counted(data, at)
            attribute, is_text = _ONCE[kind]
            if hasattr(made, attribute):
                raise Unusual
            setattr(made, attribute, value.decode() if is_text else value)
        elif kind == _EXPIRY:
            at += 4
        elif kind == _FORMAT:
            at += 1
        else:
            raise Unusual
    if at != end:
        raise Unusual
    if pairs:
        made.UserProperty = pairs
    return made


def _counted(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + _NUMBER.unpack_from(data, at)[0]
    if end > len(data):
        raise Unusual
    return data[at + 2 : end], end
