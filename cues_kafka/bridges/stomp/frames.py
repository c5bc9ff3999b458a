"""Frames of STOMP 1.2 and their bytes (https://stomp.github.io/stomp-specification-1.2.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

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


_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Frame(NamedTuple):
    """
    One frame.

    Attributes:
        command: such as `MESSAGE`.
        headers: by name; of a name that comes twice the first one, as the standard says.
        body: as it is.
        text: whether it is sent without its length, which makes a TextMessage of JMS. It must have no zero byte then.
    """

    command: str
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes = b""
    text: bool = False

    def encode(self) -> bytes:
        """
        The bytes on the wire.

        Raises:
            FrameError: a header of a CONNECT frame cannot be written.
        """
        body = self.body
        length = f"content-length:{len(body)}\n" if body and not self.text else ""
        head = f"{self.command}\n{self._head()}{length}\n"
        return b"%b%b\0" % (head.encode(), body)

    def _head(self) -> str:
        if self.command not in UNESCAPED:
            return head_of(self.headers)
        if any("\n" in text or "\r" in text for pair in self.headers.items() for text in pair):
            raise FrameError("a login, a password or a host has a line break, which STOMP cannot carry")
        return "".join([f"{name}:{one}\n" for name, one in self.headers.items()])


def head_of(headers: Mapping[str, str]) -> str:
    """The lines of headers, escaped."""
    pairs = headers.items()
    plain = "".join([f"{name}:{one}\n" for name, one in pairs])
    if plain.count(":") == plain.count("\n") == len(pairs) and "\\" not in plain and "\r" not in plain:
        return plain
    return "".join([f"{_escaped(name)}:{_escaped(one)}\n" for name, one in pairs])


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: ESCAPED[found[0]], text)


class Parser:
    """
    Makes frames of bytes as they arrive. End-of-lines between frames are heart-beats, and are dropped.

    Args:
        most: the largest body that is taken, in bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()
        self._at = 0  # where the next frame begins

    def feed(self, data: bytes) -> Iterator[Frame]:
        """
        Take bytes, and give the frames that are whole.

        Raises:
            FrameError: these bytes are no frame, or a frame is too large.
        """
        self._data += data
        try:
            while (frame := self._next()) is not None:
                yield frame
        finally:
            del self._data[: self._at]  # of all frames at once
            self._at = 0

    def _next(self) -> Frame | None:
        data, at, size = self._data, self._at, len(self._data)
        while at < size and data[at] in _ENDS:
            at += 1
        self._at = at
        end, begin = _end_of_head(data, at)
        if end < 0:
            if size - at > MOST_HEAD:
                raise FrameError(f"the headers of a frame are larger than {MOST_HEAD:,} bytes")
            return None
        command, headers = _head(data[at:end])
        length = _length(headers)
        stop = data.find(b"\0", begin) if length is None else begin + length
        if (size if stop < 0 else stop) - begin > self._most:
            raise FrameError(f"a frame is larger than {self._most:,} bytes")
        if stop < 0 or size <= stop:
            return None
        if data[stop] != 0:
            raise FrameError("a frame does not end where its content-length says")
        self._at = stop + 1
        return Frame(command, headers, bytes(data[begin:stop]))


_ENDS: Final = b"\r\n"


def _end_of_head(data: bytearray, at: int) -> tuple[int, int]:
    """Where the headers end, and where the body begins; -1: they are not there yet."""
    end = data.find(b"\n\n", at)
    other = data.find(b"\n\r\n", at, end if end >= 0 else len(data))
    return (other, other + 3) if other >= 0 else (end, end + 2)


def _head(data: bytearray) -> tuple[str, dict[str, str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise FrameError("the headers of a frame are not UTF-8") from None
    first, *lines = text.split("\n")
    if "\r" in text:
        first, lines = first.removesuffix("\r"), [line.removesuffix("\r") for line in lines]
    return first, _headers(lines, plain=first in UNESCAPED or "\\" not in text)


def _headers(lines: Iterable[str], *, plain: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon:
            raise FrameError(f"a header of a frame has no colon: {line[:80]!r}")
        if not plain:
            name, text = _read(name), _read(text)
        if name not in found:
            found[name] = text
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
    if len(text) > 12 or not (text.isascii() and text.isdigit()):
        raise FrameError(f"the content-length of a frame is {text[:20]!r}")
    return int(text)
