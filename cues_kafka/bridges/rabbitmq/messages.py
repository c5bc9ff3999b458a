"""A message of RabbitMQ as a message for Kafka: its key and its headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from cues_kafka.bridges.rabbitmq.delivered import Properties
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

OWN: Final = "rabbitmq."
"""What the names of headers begin with that say where a message was; no publisher can write them."""

PROPERTIES: Final = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "timestamp", "type", "user_id",
    "app_id",
)  # fmt: skip
"""Properties that are headers in Kafka, `rabbitmq.message-id` and so on, in the order that a delivery has them in."""

EXCHANGE, ROUTING_KEY = f"{OWN}exchange", f"{OWN}routing-key"
_NAMES: Final = {name: OWN + name.replace("_", "-") for name in PROPERTIES}

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
        delivered: `DeliverMethod`, or pika's `Basic.Deliver`.
        properties: `Properties`, or pika's `BasicProperties`.
        body: the message.
        key: what its key is, see `RabbitMq.queue`.
    """
    given = properties.headers
    headers = _given(given) if given else []
    headers += _where(delivered.exchange, delivered.routing_key)
    if type(properties) is Properties:
        for name, value in vars(properties).items():
            if (header := _NAMES.get(name)) is not None:
                headers.append((header, value))
    else:
        for name, header in _NAMES.items():
            if (value := getattr(properties, name)) is not None:
                headers.append((header, _header(value)))
    chosen = None if key is None else _key(key, delivered, properties, given or {})
    return Message(Encoded(body), key=chosen, headers=headers)


def _given(headers: Mapping[Any, Any]) -> list[tuple[str, str | bytes]]:
    """What a publisher has given, without what is the broker's."""
    return [
        (name, _header(value))
        for name, value in ((_text(one), value) for one, value in headers.items())
        if name and value is not None and name not in SPARED and not name.startswith(OWN)
    ]


@lru_cache(maxsize=256)
def _where(exchange: str | bytes, routing_key: str | bytes) -> tuple[tuple[str, str], ...]:
    """The headers that say where a message was; most have those of another one."""
    return (EXCHANGE, _text(exchange)), (ROUTING_KEY, _text(routing_key))


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
