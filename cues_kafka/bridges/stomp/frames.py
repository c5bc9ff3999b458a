"""Frames of STOMP 1.2 and their bytes (https://stomp.github.io/stomp-specification-1.2.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

ESCAPED: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_PLAIN: Final = {code: char for char, code in ESCAPED.items()}
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\\r\n:]")

UNESCAPED: Final = ("CONNECT", "CONNECTED")
"""Frames whose headers are not escaped, for the sake of STOMP 1.0."""

MOST_HEAD: Final = 1024 * 1024
"""The most bytes of the command and the headers of a frame."""


class FrameError(ValueError):
    """Bytes that are no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """
    One frame.

    Attributes:
        command: such as `MESSAGE`.
        headers: by name; of a name that comes twice the first one, as the standard says.
        body: as it is.
        text: whether it is sent without its length, which makes a TextMessage of JMS. It must have no zero byte then.
    """

    command: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    text: bool = False

    def encode(self) -> bytes:
        """
        The bytes on the wire.

        Raises:
            FrameError: a header of a CONNECT frame cannot be written.
        """
        lines = [self.command, *(f"{self._written(name)}:{self._written(one)}" for name, one in self.headers.items())]
        if self.body and not self.text:
            lines.append(f"content-length:{len(self.body)}")
        return "\n".join([*lines, "", ""]).encode() + self.body + b"\0"

    def _written(self, text: str) -> str:
        if self.command not in UNESCAPED:
            return _SPECIAL.sub(lambda found: ESCAPED[found[0]], text)
        if "\n" in text or "\r" in text:
            raise FrameError("a login, a password or a host has a line break, which STOMP cannot carry")
        return text


class Parser:
    """
    Makes frames of bytes as they arrive. End-of-lines between frames are heart-beats, and are dropped.

    Args:
        most: the largest body that is taken, in bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """
        Take bytes, and give the frames that are whole.

        Raises:
            FrameError: these bytes are no frame, or a frame is too large.
        """
        self._data += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        data = self._data
        del data[: len(data) - len(data.lstrip(b"\r\n"))]
        end, gap = _end_of_head(data)
        if end < 0:
            if len(data) > MOST_HEAD:
                raise FrameError(f"the headers of a frame are larger than {MOST_HEAD:,} bytes")
            return None
        command, headers = _head(bytes(data[:end]))
        begin = end + gap
        length = _length(headers)
        if (length or 0) > self._most or (length is None and len(data) - begin > self._most):
            raise FrameError(f"a frame is larger than {self._most:,} bytes")
        stop = data.find(b"\0", begin) if length is None else begin + length
        if stop < 0 or len(data) <= stop:
            return None
        if data[stop] != 0:
            raise FrameError("a frame does not end where its content-length says")
        frame = Frame(command, headers, bytes(data[begin:stop]))
        del data[: stop + 1]
        return frame


def _end_of_head(data: bytearray) -> tuple[int, int]:
    """Where the headers end, and how many bytes lie between them and the body; -1: they are not there yet."""
    ends = [(at, len(gap)) for gap in (b"\n\n", b"\n\r\n") if (at := data.find(gap)) >= 0]
    return min(ends) if ends else (-1, 0)


def _head(data: bytes) -> tuple[str, dict[str, str]]:
    try:
        first, *lines = [line.removesuffix("\r") for line in data.decode().split("\n")]
    except UnicodeDecodeError:
        raise FrameError("the headers of a frame are not UTF-8") from None
    plain = first in UNESCAPED
    return first, _headers(lines, plain=plain)


def _headers(lines: Iterable[str], *, plain: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon:
            raise FrameError(f"a header of a frame has no colon: {line[:80]!r}")
        if not plain:
            name, text = _read(name), _read(text)
        found.setdefault(name, text)
    return found


def _read(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        try:
            return _PLAIN[found[0]]
        except KeyError:
            raise FrameError(f"a header of a frame has an unknown escape: {found[0]!r}") from None

    return _ESCAPE.sub(plain, text) if "\\" in text else text


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise FrameError(f"the content-length of a frame is {text[:20]!r}")
    return int(text)
