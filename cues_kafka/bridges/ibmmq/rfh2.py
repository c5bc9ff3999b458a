"""
MQRFH2, the header of a message of IBM MQ that holds its properties as folders of XML, before the body.

What comes from a stranger is read here, so everything is checked, and nothing is read twice or followed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FORMAT: Final = "MQHRF2"
TEXT: Final = "MQSTR"

UTF_8: Final = 1208
"""The coded character set of UTF-8."""

LITTLE_ENDIAN: Final = 0x0222
"""How numbers are written by us: integers and packed decimals reversed, floating point numbers as IEEE has them."""

USER: Final = "usr"
"""The folder of an application's own properties, whose names have no folder before them."""

DEEPEST: Final = 16
"""How many elements may lie in each other."""

MOST_NAMES: Final = 1024 * 1024
"""Characters of the names of all properties: each has the names of the elements around it."""

_FIXED: Final = 36
_INTEGER_BITS: Final = 0x0F
_CODECS: Final = {UTF_8: "utf-8", 1200: "utf-16", 13488: "utf-16", 17584: "utf-16"}
_TAG: Final = re.compile(r"<(/?)([^\s<>/!?=\"'\0]+)((?:\s[^<>]*?)?)(/?)>")
_ENTITY: Final = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#x([0-9A-Fa-f]{1,6}));")
_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_NIL: Final = re.compile(r"\sxsi:nil\s*=\s*[\"']true[\"']")


class HeaderError(ValueError):
    """The header is not one, so the message is taken as a whole."""


class Content(NamedTuple):
    """
    A message without its headers.

    Attributes:
        body: what is behind them.
        format: of the body, such as `MQSTR`.
        ccsid: coded character set of the body.
        properties: name and value of each property, as texts.
    """

    body: bytes
    format: str
    ccsid: int
    properties: list[tuple[str, str]]


def content_of(data: bytes, form: str, ccsid: int, encoding: int) -> Content:
    """
    Take the headers with properties off a message.

    Args:
        data: the message.
        form: its format, as its descriptor says.
        ccsid: coded character set, likewise.
        encoding: how its numbers are written, likewise.

    Raises:
        HeaderError: a header is broken.
    """
    properties: list[tuple[str, str]] = []
    at, room = 0, MOST_NAMES
    while form == FORMAT:
        order = {1: ">", 2: "<"}.get(encoding & _INTEGER_BITS)
        if order is None or len(data) - at < _FIXED or data[at : at + 4] != b"RFH ":
            raise HeaderError("it does not begin as an MQRFH2 does")
        version, length, encoding, ccsid = struct.unpack_from(f"{order}iiii", data, at + 4)
        form = data[at + 20 : at + 28].decode("ascii", "replace").strip(" \0")
        [names] = struct.unpack_from(f"{order}i", data, at + 32)
        if version != 2 or not _FIXED <= length <= len(data) - at:
            raise HeaderError("its length cannot be")
        for folder in _folders(data[at + _FIXED : at + length], order):
            for name, value in _properties(_decoded(folder, names, order)):
                room -= len(name)
                if room < 0:
                    raise HeaderError("the names of its properties are too long")
                properties.append((name, value))
        at += length
    return Content(data[at:], form, ccsid, properties)


def with_properties(properties: Mapping[str, str], body: bytes, form: str) -> bytes:
    """A message with a header that has these properties; its numbers are `LITTLE_ENDIAN`, its texts UTF-8."""
    inner = "".join(f"<{name}>{_escaped(value)}</{name}>" for name, value in properties.items())
    folder = f"<{USER}>{inner}</{USER}>".encode()
    folder += b" " * (-len(folder) % 4)
    length = _FIXED + 4 + len(folder)
    head = struct.pack("<4siiii8sii", b"RFH ", 2, length, LITTLE_ENDIAN, UTF_8, form.ljust(8).encode(), 0, UTF_8)
    return b"".join((head, struct.pack("<i", len(folder)), folder, body))


def _folders(data: bytes, order: str) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            raise HeaderError("a folder has no length")
        [length] = struct.unpack_from(f"{order}i", data, at)
        at += 4
        if not 0 <= length <= len(data) - at:
            raise HeaderError("the length of a folder cannot be")
        if length:
            yield data[at : at + length]
        at += length


def _decoded(folder: bytes, ccsid: int, order: str) -> str:
    codec = _CODECS.get(ccsid, "")
    if codec == "utf-16":
        codec = "utf-16-be" if order == ">" else "utf-16-le"
    try:
        return folder.decode(codec or "ascii").strip(" \0\r\n\t")
    except UnicodeDecodeError:
        raise HeaderError("a folder is not in the character set that it names") from None


def _properties(folder: str) -> Iterator[tuple[str, str]]:
    """The elements of a folder that have no elements in them, by their paths."""
    path: list[str] = []
    at, leaf, nil = 0, False, False
    for tag in _TAG.finditer(folder):
        between = folder[at : tag.start()]
        at = tag.end()
        closes, name, attributes, empty = tag[1], tag[2], tag[3], tag[4]
        if not closes:
            if between.strip() or (not path and tag.start()):
                raise HeaderError("a folder has text beside its elements")
            if not empty:
                path.append(name)
                leaf, nil = True, bool(_NIL.search(attributes))
                if len(path) > DEEPEST:
                    raise HeaderError("a folder has too many elements in each other")
            elif path and not _NIL.search(attributes):
                yield _named([*path, name]), ""
                leaf = False
            continue
        if not path or path.pop() != name:
            raise HeaderError("an element of a folder does not end")
        if leaf and path and not nil:
            yield _named([*path, name]), _unescaped(between)
        elif between.strip():
            raise HeaderError("a folder has text beside its elements")
        leaf = nil = False
    if path or folder[at:].strip():
        raise HeaderError("a folder does not end")


def _named(path: list[str]) -> str:
    return ".".join(path[1:] if path[0] == USER else path)


def _unescaped(text: str) -> str:
    if "<" in text:
        raise HeaderError("a value has a '<' that is not escaped")
    return _ENTITY.sub(_entity, text)


def _entity(found: re.Match[str]) -> str:
    if found[1]:
        return _ENTITIES[found[1]]
    number = int(found[2]) if found[2] else int(found[3], 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise HeaderError("a value has a number that is not a character")
    return chr(number)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
