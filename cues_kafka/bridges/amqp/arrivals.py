"""A message of AMQP 1.0 as a message for Kafka: its id, its value, its key and its headers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

from cues_kafka.bridges.amqp.encoding import (
    DEEPEST,
    FIRST_MS,
    LAST_MS,
    AmqpContents,
    DescribedValue,
    EncodingError,
    Pairs,
    Symbol,
    Timestamp,
    contents,
)
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

OWN: Final = "amqp."
"""What the names of headers begin with that are properties of AMQP; no publisher can write them."""

FIELDS: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
"""The properties of a message, in the order of the standard."""

PROPERTIES, ANNOTATIONS = "properties.", "annotations."
"""A key may be an application property, `properties.NAME`, or an annotation of the broker, `annotations.NAME`."""

UNREADABLE: Final = "amqp.unreadable"
"""The header of a message that is not encoded as the standard says: why. Its value is the bytes as they came."""


class Incoming(NamedTuple):
    """
    What goes into Kafka.

    Attributes:
        id: names the message over all of its deliveries; empty: its publisher gave none.
        message: the message.
    """

    id: str
    message: Message[Any]


def incoming(data: bytes, key: str | None, *, timestamps: bool) -> Incoming:
    """
    Read a message.

    Args:
        data: as the broker has sent it.
        key: what its key is, see `Amqp.queue`.
        timestamps: whether it has the time at which it was made.
    """
    try:
        found = contents(data)
        value = value_of(found)
    except EncodingError as error:
        return Incoming("", Message(Encoded(data), headers=[(UNREADABLE, str(error))]))
    fields = {name: one for name, one in zip(FIELDS, found.properties, strict=False) if one is not None}
    headers = [
        (name, header)
        for name, one in found.application.items()
        if name and not name.startswith(OWN) and (header := _header(one)) is not None
    ]
    headers += [
        (OWN + name.replace("_", "-"), header) for name, one in fields.items() if (header := _header(one)) is not None
    ]
    made = Message(
        Encoded(value),
        key=_key(key, fields, found),
        headers=headers,
        timestamp_ms=_time(fields.get("creation_time")) if timestamps else None,
    )
    return Incoming(name_of(fields.get("message_id"), found.raw), made)


def name_of(message_id: Any, raw: bytes) -> str:
    """
    The id of a message over all of its deliveries; empty: its publisher gave none.

    The contents are in it, so that a publisher that gives several messages one id loses none of them. The numbers 1 and
    the text `1` are two ids.
    """
    if message_id is None or message_id in ("", b""):
        return ""
    given = message_id if isinstance(message_id, bytes) else str(message_id).encode(errors="surrogatepass")
    kind = type(message_id).__name__.encode()
    said = b"%d:%b%d:%b%d:%b" % (len(kind), kind, len(given), given, len(raw), raw)
    return blake2b(said, digest_size=16).hexdigest()


def value_of(found: AmqpContents) -> bytes:
    """The value in Kafka: data and text as they are, other values as JSON."""
    if found.body is None:
        return b""
    if isinstance(found.body, bytes):
        return found.body
    if isinstance(found.body, str) and found.kind == "value":
        return found.body.encode(errors="surrogatepass")
    return json.dumps(_plain(found.body, DEEPEST), ensure_ascii=False).encode(errors="backslashreplace")


def _key(key: str | None, fields: Mapping[str, Any], found: AmqpContents) -> str | bytes | None:
    if key is None:
        return None
    if key.startswith(PROPERTIES):
        return _header(found.application.get(key.removeprefix(PROPERTIES)))
    if key.startswith(ANNOTATIONS):
        return _header(found.annotations.get(key.removeprefix(ANNOTATIONS)))
    return _header(fields.get(key))


def _time(value: Any) -> int | None:
    """A time that Kafka takes, in milliseconds since 1970."""
    return int(value) if isinstance(value, Timestamp) and 0 <= value <= LAST_MS else None


def _header(value: Any) -> str | bytes | None:
    """A value of a header: text and bytes as they are, times as ISO has them, maps and lists as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return str(value)
    plain = _plain(value, DEEPEST)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any, deepest: int) -> Any:
    """A value that JSON has."""
    if not deepest:
        return "..."
    if isinstance(value, Pairs):
        return {_name(key): _plain(one, deepest - 1) for key, one in value.items}
    if isinstance(value, DescribedValue):
        return {"descriptor": _plain(value.descriptor, deepest - 1), "value": _plain(value.value, deepest - 1)}
    if isinstance(value, list):
        return [_plain(one, deepest - 1) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Timestamp):
        if not FIRST_MS <= value <= LAST_MS:
            return int(value)
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, UUID | Symbol) else value


def _name(key: Any) -> str:
    """The name of an entry, of a key that may be anything."""
    plain = _plain(key, DEEPEST)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
