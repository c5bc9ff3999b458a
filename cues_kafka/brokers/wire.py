"""Single requests in Kafka's wire protocol, for a look at a broker without a client. Standard library only."""

from __future__ import annotations

import socket
import struct

_CLIENT = b"cues-kafka"


def request(connection: socket.socket, api: int, version: int, body: bytes) -> Parts:
    """
    Send a request and return its answer, both without header.

    Raises:
        OSError: the other side hangs up, is silent, or is not Kafka.
    """
    message = struct.pack(f">hhih{len(_CLIENT)}s", api, version, 1, len(_CLIENT), _CLIENT) + body
    connection.sendall(struct.pack(">i", len(message)) + message)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 4 <= size <= 1_000_000:
        raise ConnectionError("not Kafka")
    return Parts(_exactly(connection, size), 4)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


class Parts:
    """Takes the values of Kafka's protocol from bytes, one after the other; `struct.error` where they end too early."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def int16(self) -> int:
        return int(self._take(">h")[0])

    def int32(self) -> int:
        return int(self._take(">i")[0])

    def int32s(self) -> tuple[int, ...]:
        """An array of int32, with its length before it."""
        return self._take(f">{self.int32()}i")

    def text(self) -> str:
        """A text with its length before it; the length -1 stands for none."""
        return bytes(self._take(f"{max(self.int16(), 0)}s")[0]).decode()

    def _take(self, format_: str) -> tuple[int, ...]:
        values = struct.unpack_from(format_, self._data, self._at)
        self._at += struct.calcsize(format_)
        return values
