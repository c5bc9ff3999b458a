"""A message of RabbitMQ as a message for Kafka: its key and its headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

OWN: Final = "rabbitmq."
"""What the names of headers begin with that say where a message was; no publisher can write them."""

PROPERTIES: Final = (
    "message_id", "correlation_id", "content_type", "content_encoding", "type", "app_id", "user_id", "reply_to",
    "timestamp",
)  # fmt: skip
"""Properties that are headers in Kafka: `rabbitmq.message-id` and so on."""

EXCHANGE, ROUTING_KEY = f"{OWN}exchange", f"{OWN}routing-key"
_NAMES: Final = tuple(OWN + name.replace("_", "-") for name in PROPERTIES)
_VALUES: Final = attrgetter(*PROPERTIES)

HEADERS: Final = "headers."
"""A key may be a header: `headers.NAME`."""

KEYS: Final = ("routing_key", "message_id", "correlation_id")

DELIVERIES: Final = "x-delivery-count"
"""The header of a quorum queue that says how often a delivery was not acknowledged."""

SPARED: Final = frozenset({"x-stream-offset", DELIVERIES})
"""Headers of the broker that differ with each delivery, or say nothing behind it."""

DEEPEST: Final = 20
"""Levels of nested headers that are kept."""


def message_of(delivered: Any, properties: Any, body: bytes, key: str | None) -> Message[Any]:
    """
    What goes into Kafka.

    Args:
        delivered: pika's `Basic.Deliver`.
        properties: pika's `BasicProperties`.
        body: the message.
        key: what its key is, see `RabbitMq.queue`.
    """
    given = properties.headers or {}
    headers: list[tuple[str, str | bytes]] = [
        (name, _header(value))
        for name, value in ((_text(one), value) for one, value in given.items())
        if name and value is not None and name not in SPARED and not name.startswith(OWN)
    ]
    headers.append((EXCHANGE, _text(delivered.exchange)))
    headers.append((ROUTING_KEY, _text(delivered.routing_key)))
    for name, value in zip(_NAMES, _VALUES(properties), strict=True):
        if value is not None:
            headers.append((name, value if type(value) is str else _header(value)))
    chosen = None if key is None else _key(key, delivered, properties, given)
    return Message(Encoded(body), key=chosen, headers=headers)


def _key(key: str, delivered: Any, properties: Any, headers: Mapping[Any, Any]) -> str | bytes | None:
    if key.startswith(HEADERS):
        found = headers.get(key.removeprefix(HEADERS))
    else:
        found = delivered.routing_key if key == "routing_key" else getattr(properties, key, None)
    return None if found is None else _header(found)


def _text(value: Any) -> str:
    """A short text of AMQP; bytes that are not UTF-8, which the standard forbids, are written as numbers."""
    if type(value) is str:
        return value
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _header(value: Any) -> str | bytes:
    """A value of a header: text and bytes as they are, times as ISO has them, tables and lists as JSON."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return json.dumps(_plain(value, DEEPEST))
    return str(value)


def _plain(value: Any, deepest: int) -> Any:
    if not deepest:
        return "..."
    if isinstance(value, Mapping):
        return {_text(name): _plain(one, deepest - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, deepest - 1) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return _text(value)
