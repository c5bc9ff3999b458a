"""Messages of IBM MQ as messages for Kafka, and as a function writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from cues_kafka.bridges.destinations import body_of
from cues_kafka.bridges.ibmmq.rfh2 import (
    FORMAT,
    LITTLE_ENDIAN,
    TEXT,
    UTF_8,
    Content,
    HeaderError,
    content_of,
    with_properties,
)
from cues_kafka.errors import OutputError
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

OWN: Final = "mq."
"""What the names of headers begin with that we add; properties with such names are left out."""

KEYS: Final = ("message_id", "correlation_id", "group_id")
PROPERTY: Final = "properties."
"""A key may be a property: `properties.NAME`."""

ID_BYTES: Final = 24

_TYPES: Final = {1: "request", 2: "reply", 4: "report", 8: "datagram"}
_SEGMENT: Final = 0x2 | 0x4
_TIME: Final = re.compile(r"(\d{8})(\d{6})(\d{2})")
_PROPERTY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_RESERVED: Final = re.compile(r"(?i:jms|mq|wmq|xml)|(?i:null|true|false|not|and|or|between|like|in|is|escape)\Z")
_UNWRITABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Descriptor(NamedTuple):
    """
    What of a message's descriptor (MQMD) is used here.

    Attributes:
        msg_id, correl_id, group_id: names of 24 bytes.
        format: of the message, such as `MQSTR`.
        ccsid, encoding: coded character set, and how numbers are written.
        put_date, put_time: when it was put, `20261129` and `02485512`, in UTC.
        priority, persistence, msg_type, msg_flags, seq: numbers as IBM's manual has them.
        reply_to_q, reply_to_q_mgr, user, application: texts.
    """

    msg_id: bytes
    format: str = ""
    correl_id: bytes = bytes(ID_BYTES)
    group_id: bytes = bytes(ID_BYTES)
    ccsid: int = UTF_8
    encoding: int = LITTLE_ENDIAN
    put_date: str = ""
    put_time: str = ""
    priority: int = 0
    persistence: int = 1
    msg_type: int = 8
    msg_flags: int = 0
    seq: int = 1
    reply_to_q: str = ""
    reply_to_q_mgr: str = ""
    user: str = ""
    application: str = ""

    @property
    def is_segment(self) -> bool:
        """Whether it is only a part of a message."""
        return bool(self.msg_flags & _SEGMENT)


def content_or_whole(descriptor: Descriptor, data: bytes) -> Content:
    """Body and properties; of a message with a broken header the whole."""
    own = descriptor
    try:
        return content_of(data, own.format, own.ccsid, own.encoding)
    except HeaderError:
        return Content(data, own.format, own.ccsid, [])


def name_of(descriptor: Descriptor, content: Content) -> str:
    """
    What names a message over all of its deliveries.

    A queue manager makes another MsgId for each put, but a program may choose it, and choose it twice. So time and body
    count, too: different messages are never taken for one.
    """
    own = descriptor
    body = blake2b(content.body, digest_size=16).hexdigest()
    return f"{own.msg_id.hex()}{own.put_date}{own.put_time}{own.correl_id.hex()}{body}"


def message_of(descriptor: Descriptor, content: Content, *, key: str | None, timestamps: bool) -> Message[Any]:
    """
    What goes into Kafka.

    Args:
        descriptor: of the message.
        content: its body and its properties.
        key: what the key is, see `IbmMq.queue`.
        timestamps: whether it has the time at which it was put.
    """
    own = descriptor
    headers = [(name, value) for name, value in content.properties if not name.startswith(OWN)]
    mine = {
        "message-id": own.msg_id.hex(),
        "correlation-id": _id(own.correl_id),
        "group-id": _id(own.group_id),
        "sequence": str(own.seq) if _id(own.group_id) else "",
        "format": content.format,
        "ccsid": str(content.ccsid),
        "type": _TYPES.get(own.msg_type, str(own.msg_type)),
        "priority": str(own.priority),
        "persistent": "true" if own.persistence == 1 else "false",
        "reply-to-queue": own.reply_to_q,
        "reply-to-queue-manager": own.reply_to_q_mgr,
        "user": own.user,
        "application": own.application,
    }
    headers += [(OWN + name, value) for name, value in mine.items() if value]
    return Message(
        Encoded(content.body),
        key=_key(own, dict(reversed(content.properties)), key),
        headers=headers,
        timestamp_ms=_time_ms(own) if timestamps else None,
    )


def _key(descriptor: Descriptor, properties: Mapping[str, str], key: str | None) -> str | None:
    if key is None:
        return None
    if key.startswith(PROPERTY):
        return properties.get(key.removeprefix(PROPERTY))
    ids = {"message_id": descriptor.msg_id, "correlation_id": descriptor.correl_id, "group_id": descriptor.group_id}
    return _id(ids[key]) or None


def _id(given: bytes) -> str:
    """In hexadecimal digits; empty: there is none."""
    return given.hex() if given.strip(b"\0") else ""


def _time_ms(descriptor: Descriptor) -> int | None:
    found = _TIME.fullmatch(descriptor.put_date + descriptor.put_time)
    try:
        at = datetime.strptime(found[1] + found[2], "%Y%m%d%H%M%S").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None
    if at is None or found is None or at.year < 1970:
        return None
    return int(at.timestamp()) * 1000 + int(found[3]) * 10


class MqMessage(NamedTuple):
    """
    A message that a function has written.

    Attributes:
        queue: where it goes.
        body: its bytes.
        format: `MQSTR` for text, empty for bytes; `MQHRF2` with properties.
        chosen: whether the function has chosen the queue, so that a queue that is missing is its message's error.
        correl_id: 24 bytes.
        reply_to: a queue for answers; empty: none.
        priority: from 0 to 9; None: as the queue says.
        expiry_s: for how long the queue keeps it, in seconds; None: until it is read.
    """

    queue: str
    body: bytes
    format: str
    chosen: bool = False
    correl_id: bytes = bytes(ID_BYTES)
    reply_to: str = ""
    priority: int | None = None
    expiry_s: float | None = None


def written(queue: str, body: Any, headers: Mapping[str, Any], **more: Any) -> MqMessage:
    """
    Make a message of what a function gives.

    Args:
        queue: where it goes.
        body: text, bytes, or a value that becomes JSON.
        headers: its properties.
        more: further fields of `MqMessage`.

    Raises:
        OutputError: it cannot be such a message.
    """
    given = body_of(body)
    data, form = (given.encode(), TEXT) if isinstance(given, str) else (given, "")
    properties = {name: property_of(name, value) for name, value in headers.items()}
    if properties:
        data, form = with_properties(properties, data, form), FORMAT
    return MqMessage(queue, data, form, **more)


def property_of(name: Any, value: Any) -> str:
    """
    Make a property of what a function gives.

    Raises:
        OutputError: it cannot be one.
    """
    if not isinstance(name, str) or not _PROPERTY.fullmatch(name) or _RESERVED.match(name):
        raise OutputError(
            f"a message cannot have the property {name!r:.100}. Use letters, digits and '_', and do not begin with "
            "JMS or mq"
        )
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, int | float):
        value = str(value)
    if not isinstance(value, str) or _UNWRITABLE.search(value):
        raise OutputError(
            f"property {name!r:.100}: {value!r:.100} is not a text without control characters, a number or a boolean"
        )
    return value


def correlation_of(given: str | bytes) -> bytes:
    """
    A correlation id of 24 bytes.

    Raises:
        OutputError: it is longer.
    """
    data = bytes.fromhex(given) if isinstance(given, str) and re.fullmatch(r"[0-9A-Fa-f]{48}", given) else given
    data = data.encode(errors="replace") if isinstance(data, str) else data
    if not isinstance(data, bytes) or len(data) > ID_BYTES:
        raise OutputError(f"correlation_id={given!r:.100}: takes 24 bytes, 48 hexadecimal digits, or a shorter text")
    return data.ljust(ID_BYTES, b"\0")
