"""Frames of STOMP 1.2 and their bytes (https://stomp.github.io/stomp-specification-1.2.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

ESCAPED: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_PLAIN: Final = {code: char for char, code in ESCAPED.items()}
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)

UNESCAPED: Final = ("CONNECT", "CONNECTED")
"""Frames whose headers are not escaped, for the sake of STOMP 1.0."""

MOST_HEAD: Final = 1024 * 1024
"""The most bytes of the command and the headers of a frame."""


LARGE: Final = 1024 * 1024
"""From how many bytes of an unfinished frame on its pieces are collected in place."""


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
    return "".join([f"{escaped(name)}:{escaped(one)}\n" for name, one in pairs])


def escaped(text: str) -> str:
    """A name or a value of a header as it is sent."""
    for plain, code in ESCAPED.items():  # the backslash comes first, because the others bring some
        text = text.replace(plain, code)
    return text


class Parser:
    """
    Makes frames of bytes as they arrive. End-of-lines between frames are heart-beats, and are dropped.

    Args:
        most: the largest body that is taken, in bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._data: bytes | bytearray = b""
        self._at = 0  # where the next frame begins
        self._heads = _Heads()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """
        Take bytes, and give the frames that are whole.

        Raises:
            FrameError: these bytes are no frame, or a frame is too large.
        """
        if len(self._data) < LARGE:  # slices of bytes are copied once, those of a bytearray twice
            self._data = self._data + data
        else:  # one that grows in place: else a large frame would be copied for each of its pieces
            self._data = bytearray(self._data) if isinstance(self._data, bytes) else self._data
            self._data += data
        try:
            while (frame := self._next()) is not None:
                yield frame
        finally:
            if self._at:  # all frames are taken out at once
                self._data = bytes(self._data[self._at :])
                self._at = 0

    def _next(self) -> Frame | None:
        data, at, size = self._data, self._at, len(self._data)
        while at < size and data[at] in _ENDS:
            at += 1
        self._at = at
        end = data.find(b"\n\n", at)
        begin = end + 2
        if end < 0 or b"\r" in (head := data[at:end]):
            end, begin = _end_of_head(data, at)
            if end < 0:
                if size - at > MOST_HEAD:
                    raise FrameError(f"the headers of a frame are larger than {MOST_HEAD:,} bytes")
                return None
            head = data[at:end]
        command, headers = self._heads.read(head)
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


def _end_of_head(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Where the headers end, and where the body begins; -1: they are not there yet."""
    end = data.find(b"\n\n", at)
    other = data.find(b"\n\r\n", at, end if end >= 0 else len(data))
    return (other, other + 3) if other >= 0 else (end, end + 2)


class _Heads:
    """Reads the heads of the frames of one connection. Most lines of a message are those of the message before it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._pairs: list[tuple[str, str]] = []

    def read(self, data: bytes | bytearray) -> tuple[str, dict[str, str]]:
        """The command and the headers."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise FrameError("the headers of a frame are not UTF-8") from None
        lines = text.split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        command, before, pairs = lines[0], self._lines, self._pairs
        self._lines = []  # should a line be refused
        if len(lines) != len(before) or command != before[0]:
            pairs = [_pair(line, command) for line in lines[1:]]
        else:
            for at, (line, old) in enumerate(zip(lines, before, strict=True)):
                if line != old:
                    pairs[at - 1] = _pair(line, command)
        self._lines, self._pairs = lines, pairs
        found = dict(pairs)
        if len(found) < len(pairs):
            found = {}
            for name, value in pairs:
                found.setdefault(name, value)
        return command, found


def _pair(line: str, command: str) -> tuple[str, str]:
    """Name and value of a header."""
    name, colon, value = line.partition(":")
    if not colon:
        raise FrameError(f"a header of a frame has no colon: {line[:80]!r}")
    if "\\" in line and command not in UNESCAPED:
        return _read(name), _read(value)
    return name, value


def _read(text: str) -> str:
    """What an escaped text says."""
    if "\\\\" not in text:  # so each backslash begins an escape; brokers have colons in their ids
        plain = text.replace("\\c", ":")
        if "\\" not in plain:
            return plain
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    try:
        return _PLAIN[found[0]]
    except KeyError:
        raise FrameError(f"a header of a frame has an unknown escape: {found[0]!r}") from None


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if len(text) > 12 or not (text.isascii() and text.isdigit()):
        raise FrameError(f"the content-length of a frame is {text[:20]!r}")
    return int(text)
