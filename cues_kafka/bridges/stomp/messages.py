"""Messages of JMS as a function writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cues_kafka.bridges.destinations import body_of, check_text
from cues_kafka.errors import OutputError

_OURS: Final = frozenset({
    "destination", "destination-type", "transaction", "receipt", "content-length", "persistent", "ack", "id",
    "message-id", "subscription", "cues-probe",
})  # fmt: skip
"""Headers that a message of a user's cannot have: they are ours, or the broker's."""


class JmsMessage(NamedTuple):
    """
    A message that a function has written.

    Attributes:
        kind: `queue` or `topic`.
        name: of the queue or topic.
        body: text becomes a TextMessage, bytes become a BytesMessage.
        headers: properties of the message, and headers of JMS by the names that the broker has for them.
    """

    kind: str
    name: str
    body: str | bytes
    headers: Mapping[str, str]


def message_of(kind: str, name: str, body: Any, headers: Mapping[str, Any]) -> JmsMessage:
    """
    Make a message of what a function gives.

    Raises:
        OutputError: the body is not text, bytes or JSON, or a header cannot be one.
    """
    given = body_of(body)
    if isinstance(given, str) and "\0" in given:
        raise OutputError("the body is a text with a zero character, which STOMP cannot carry. Give it as bytes")
    return JmsMessage(kind, name, given, {key: header_of(key, value) for key, value in headers.items()})


def header_of(name: Any, value: Any) -> str:
    """
    Make a header of what a function gives.

    Raises:
        OutputError: it cannot be one, or the name is ours.
    """
    if not isinstance(name, str) or not name or name.lower() in _OURS:
        raise OutputError(f"a message cannot have the header {name!r:.100}: cues-kafka or the broker makes it")
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, int | float):
        value = str(value)
    if not isinstance(value, str) or "\0" in value or "\0" in name:
        raise OutputError(f"header {name!r:.100}: {value!r:.100} is not a text, a number or a boolean")
    check_text(name, "the name of a header")
    check_text(value, f"header {name!r:.100}")
    return value
