"""Messages as lines of JSON that say everything: `tail --format json` writes them, `send --format message` reads them.

What is in a line comes out as it went in, byte for byte. JSON stays the text that it is: a parser would make 1.1 of
1.10, and another number of 12345678901234567.89. Bytes that are not JSON are text, and bytes that are not text are
base64. `value_encoding` and `key_encoding` say which. Where a graph's codec has made a value readable that cannot be
written again from its JSON, `value_bytes` and `key_bytes` have the message's own, in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Headers

FIELDS: Final = (
    "value",
    "value_encoding",
    "value_bytes",
    "key",
    "key_encoding",
    "key_bytes",
    "headers",
    "partition",
    "timestamp_ms",
    "id",
    "topic",
    "offset",
)
"""The fields of a line. `send` ignores topic and offset, which say where `tail` has found the message."""

ENCODINGS: Final = ("json", "text", "base64")

_UNSEEN: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What a terminal obeys or hides, beyond what JSON escapes itself."""


@dataclass(frozen=True, slots=True)
class MessageLine:
    """
    A message of a line.

    Attributes:
        json: the value as JSON text; None: it is in `data`.
        data: the value as bytes; None: a tombstone, unless `json` has it.
        key: text, bytes, a number or an object for the topic's codec; None: no key.
        key_json: the key as JSON text; None: the key is bytes, or is missing.
        value_bytes, key_bytes: the bytes of what `json` and `key` only show; None: these are what is sent.
        headers: pairs of a name and bytes.
        partition, timestamp_ms, id: None: not given.
    """

    json: str | None
    data: bytes | None
    key: Any
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    id: str | None
    key_json: str | None = None
    value_bytes: bytes | None = None
    key_bytes: bytes | None = None


def is_exact_json(data: bytes) -> bool:
    """Whether bytes are one line of JSON that can stand in a line as they are."""
    if data != data.strip(b" \t\r\n") or b"\n" in data or b"\r" in data:
        return False
    try:
        text = data.decode()
        msgspec.json.decode(data, type=msgspec.Raw)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False
    return not _UNSEEN.search(text)


def text_json(text: str) -> str:
    """Text as a string of JSON, with nothing in it that a terminal obeys."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def value_fields(data: bytes | None) -> list[tuple[str, str]]:
    """A value as fields of JSON: its own text, else text, else base64; null alone is a tombstone."""
    if data is None:
        return [("value", "null")]
    if is_exact_json(data):
        return [("value", data.decode()), *([("value_encoding", '"json"')] if data == b"null" else [])]
    return _encoded("value", data)


def key_fields(data: bytes | None, *, coded: bool = False) -> list[tuple[str, str]]:
    """A key as fields of JSON: text, else base64; `coded`: text is no value for the topic's `key_codec=`."""
    if data is None:
        return [("key", "null")]
    return [field for field in _encoded("key", data) if coded or field != ("key_encoding", '"text"')]


def _encoded(name: str, data: bytes) -> list[tuple[str, str]]:
    try:
        return [(name, text_json(data.decode())), (f"{name}_encoding", '"text"')]
    except UnicodeDecodeError:
        return [(name, f'"{base64.b64encode(data).decode()}"'), (f"{name}_encoding", '"base64"')]


def headers_json(headers: Headers) -> str:
    """Pairs of a name and a value: text, null, or an object with base64."""
    return f"[{', '.join(f'[{text_json(name)}, {_header_json(value)}]' for name, value in headers)}]"


def _header_json(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return text_json(value.decode())
    except UnicodeDecodeError:
        return f'{{"base64": "{base64.b64encode(value).decode()}"}}'


def line_of(fields: Sequence[tuple[str, str]]) -> str:
    """One line of fields, whose values are JSON already."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"


def read_line(line: str) -> MessageLine:
    """
    Read a line.

    Raises:
        CodecError: it is not such a line; the text names the field.
    """
    try:
        own = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CodecError(
            f"a line is a JSON object with the field value, and any of {', '.join(FIELDS)}: {error}"
        ) from None
    unknown = own.keys() - set(FIELDS)
    if unknown or "value" not in own:
        what = f"field {min(unknown)!r} is unknown" if unknown else "it has no value"
        raise CodecError(f"a line is a JSON object with the field value, and any of {', '.join(FIELDS)}: {what}")
    plain = {name: json.loads(bytes(raw)) for name, raw in own.items() if name != "value"}
    text, data = _value(bytes(own["value"]), plain.get("value_encoding"))
    return MessageLine(
        json=text,
        data=data,
        key=_key(plain.get("key"), plain.get("key_encoding")),
        headers=_headers(plain.get("headers")),
        partition=plain.get("partition"),
        timestamp_ms=plain.get("timestamp_ms"),
        id=plain.get("id"),
        key_json=None if plain.get("key") is None or "key_encoding" in plain else bytes(own["key"]).decode(),
        value_bytes=_given_bytes(plain, "value"),
        key_bytes=_given_bytes(plain, "key"),
    )


def json_line(line: str) -> MessageLine:
    """
    A line that is the value alone; null is a tombstone.

    Raises:
        CodecError: it is no JSON.
    """
    text = line.strip()
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CodecError(f"the line is not JSON: {error}. Use --format text to send lines as they are") from None
    return MessageLine(None if text == "null" else text, None, None, [], None, None, None)


def _given_bytes(plain: dict[str, Any], name: str) -> bytes | None:
    given = plain.get(f"{name}_bytes")
    if given is not None and not isinstance(given, str):
        raise CodecError(f"{name}_bytes is not text in base64")
    return None if given is None else _base64(given, f"{name}_bytes")


def bytes_field(name: str, data: bytes) -> tuple[str, str]:
    """The bytes of a value or a key that its JSON only shows, as a field of JSON."""
    return f"{name}_bytes", f'"{base64.b64encode(data).decode()}"'


def _value(raw: bytes, encoding: Any) -> tuple[str | None, bytes | None]:
    if encoding is None and raw == b"null":
        return None, None
    if encoding in (None, "json"):
        return raw.decode(), None
    return None, _bytes_of(json.loads(raw), encoding, "value")


def _key(key: Any, encoding: Any) -> Any:
    return key if key is None or encoding is None else _bytes_of(key, encoding, "key")


def _bytes_of(value: Any, encoding: Any, name: str) -> bytes:
    known = ENCODINGS if name == "value" else ENCODINGS[1:]
    if encoding not in known:
        raise CodecError(f"{name}_encoding is {encoding!r}. Write one of {', '.join(known)}")
    if not isinstance(value, str):
        raise CodecError(f"{name} is not text, and {name}_encoding is {encoding!r}. Write {name} as a string")
    return value.encode() if encoding == "text" else _base64(value, name)


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CodecError(f"{name} is not base64: {error}") from None


def _headers(given: Any) -> Headers:
    if given is None:
        return []
    pairs = given.items() if isinstance(given, dict) else given
    wrong = 'its headers are no pairs. Write {"headers": [["unit", "celsius"]]}, or an object'
    try:
        named = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise CodecError(wrong) from None
    if not all(isinstance(name, str) for name, _ in named):
        raise CodecError(wrong)
    return [(name, _header(name, value)) for name, value in named]


def _header(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return _base64(value["base64"], f"header {name!r}")
    raise CodecError(f'header {name!r} is {json.dumps(value)}. Write text, null, or {{"base64": "..."}}')
