"""Messages of AMQP 1.0 as a function writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cues_kafka.bridges.destinations import body_of, check_text
from cues_kafka.bridges.marker import PROBE
from cues_kafka.errors import OutputError

FIELDS: Final = {
    "message_id": str, "correlation_id": str, "subject": str, "reply_to": str, "content_type": str, "group_id": str,
    "priority": int, "ttl_s": (int, float),
}  # fmt: skip
"""Headers of a function's that are fields of AMQP, and what they may be; any other one is a property of the message."""

MOST_PRIORITY: Final = 255

TO_PROTON: Final = {"message_id": "id", "ttl_s": "ttl"}
"""Fields that Proton calls by another name."""


class AmqpMessage(NamedTuple):
    """
    A message that a function has written.

    Attributes:
        kind: `queue` or `topic`; empty: the broker knows.
        name: of the queue or topic.
        body: text becomes a value, which JMS has as a TextMessage; bytes become data, a BytesMessage.
        properties: application properties, by name.
        fields: header and properties of AMQP, by the names that Proton has for them.
        annotations: for the broker, by name.
    """

    kind: str
    name: str
    body: str | bytes
    properties: Mapping[str, Any] = {}
    fields: Mapping[str, Any] = {}
    annotations: Mapping[str, Any] = {}


def message_of(kind: str, name: str, body: Any, headers: Mapping[str, Any]) -> AmqpMessage:
    """
    Make a message of what a function gives.

    Raises:
        OutputError: the body is not text, bytes or JSON, or a header cannot be one.
    """
    given = body_of(body)
    checked = {key: header_of(key, value) for key, value in headers.items()}
    fields = {TO_PROTON.get(key, key): value for key, value in checked.items() if key in FIELDS}
    return AmqpMessage(kind, name, given, {key: one for key, one in checked.items() if key not in FIELDS}, fields)


def header_of(name: Any, value: Any) -> Any:
    """
    Check a header that a function gives.

    Raises:
        OutputError: it cannot be one, or the name is ours.
    """
    if not isinstance(name, str) or not name or name == PROBE:
        raise OutputError(f"a message cannot have the header {name!r:.100}: cues-kafka or the broker makes it")
    check_text(name, "the name of a header")
    if name in FIELDS:
        return _field(name, value)
    if not isinstance(value, str | bytes | bool | int | float):
        raise OutputError(f"header {name!r:.100}: {value!r:.100} is not a text, bytes, a number or a boolean")
    if isinstance(value, str):
        check_text(value, f"header {name!r:.100}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OutputError(f"header {name!r:.100}: {value!r:.100} has more than 64 bits. Send it as text")
    return value


def _field(name: str, value: Any) -> Any:
    expected = FIELDS[name]
    if isinstance(value, bool) or not isinstance(value, expected):  # type: ignore[arg-type]  # a type or several
        what = "a text" if expected is str else "a whole number" if expected is int else "a number of seconds"
        raise OutputError(f"header {name!r}: {value!r:.100} is not {what}")
    if isinstance(value, str):
        check_text(value, f"header {name!r}")
    elif name == "priority" and not 0 <= value <= MOST_PRIORITY:
        raise OutputError(f"header 'priority': {value!r:.100} is not from 0 to {MOST_PRIORITY}")
    elif name == "ttl_s" and not 0 < value <= 4_000_000:
        raise OutputError(f"header 'ttl_s': {value!r:.100} is not from above 0 to 4,000,000 seconds")
    return value
