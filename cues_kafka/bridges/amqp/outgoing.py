"""Messages on their way to an AMQP 1.0 broker, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import proton
from proton import Delivery, Described, symbol, ulong

from cues_kafka.bridges.amqp.messages import AmqpMessage

TRANSACTIONAL: Final = 0x34
"""The state of a delivery in a transaction."""

ACCEPTED: Final = 0x24


def control(what: str, values: Sequence[Any]) -> bytes:
    """A message to the coordinator of transactions."""
    data: bytes = proton.Message(body=Described(symbol(f"amqp:{what}:list"), [*values])).encode()
    return data


def refusal(delivery: Delivery) -> str:
    """Why the broker did not take what was sent; empty: it did."""
    state = delivery.remote_state
    found: Any = delivery.remote.data if state == TRANSACTIONAL else None
    if isinstance(found, list):
        outcome = found[1] if len(found) > 1 else None
        code = getattr(outcome, "descriptor", ulong(ACCEPTED))
        return "" if code in (ACCEPTED, "amqp:accepted:list") else f"it says {outcome!r:.300}"
    if state == Delivery.ACCEPTED:
        return ""
    if state == Delivery.REJECTED:
        condition = delivery.remote.condition
        return f"{condition.name}: {condition.description or ''}".strip(": ") if condition else "it rejects it"
    if state in (Delivery.RELEASED, Delivery.MODIFIED):
        return "no queue takes it"
    return f"it says {state}"


def encoded(message: AmqpMessage) -> bytes:
    """A message as it goes to the broker."""
    made = proton.Message(
        body=message.body,
        durable=True,
        inferred=isinstance(message.body, bytes),
        properties=dict(message.properties) or None,
        **dict(message.fields),
    )
    if message.annotations:
        made.annotations = {symbol(name): value for name, value in message.annotations.items()}
    data: bytes = made.encode()
    return data
