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
    if state == Delivery.ACCEPTED:
        return ""
    found: Any = delivery.remote.data if state == TRANSACTIONAL else None
    if isinstance(found, list):
        outcome = found[1] if len(found) > 1 else None
        code = getattr(outcome, "descriptor", ulong(ACCEPTED))
        return "" if code in (ACCEPTED, "amqp:accepted:list") else f"it says {outcome!r:.300}"
    if state == Delivery.REJECTED:
        condition = delivery.remote.condition
        return f"{condition.name}: {condition.description or ''}".strip(": ") if condition else "it rejects it"
    if state in (Delivery.RELEASED, Delivery.MODIFIED):
        return "no queue takes it"
    return f"it says {state}"


def encoded(message: AmqpMessage) -> bytes:
    """A message as it goes to the broker."""
    quick = _quick(message)
    if quick is not None:
        return quick
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


_DURABLE: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
"""The section `header`: a list with one field, which is true."""


def _quick(message: AmqpMessage) -> bytes | None:
    """
    The same for a message with an id and properties that are texts, which most have; None: it has something else.

    Proton takes ten times as long: it makes each value an object of its own.
    """
    fields, properties, body = message.fields, message.properties, message.body
    if message.annotations or any(type(one) is not str for one in properties.values()):
        return None
    parts = [_DURABLE]
    if fields:
        name = fields.get("id")
        if len(fields) > 1 or type(name) is not str:
            return None
        parts.append(b"\x00\x53\x73" + _compound(b"\xc0", b"\xd0", 1, _text(name)))
    if properties:
        pairs = [_text(one) for pair in properties.items() for one in pair]
        parts.append(b"\x00\x53\x74" + _compound(b"\xc1", b"\xd1", len(pairs), b"".join(pairs)))
    if type(body) is bytes:
        parts.append(b"\x00\x53\x75" + _counted(b"\xa0", b"\xb0", body))
    elif type(body) is str:
        parts.append(b"\x00\x53\x77" + _text(body))
    else:
        return None
    return b"".join(parts)


def _text(text: str) -> bytes:
    return _counted(b"\xa1", b"\xb1", text.encode())


def _counted(small: bytes, large: bytes, data: bytes) -> bytes:
    size = len(data)
    return b"%b%c%b" % (small, size, data) if size < 256 else large + size.to_bytes(4, "big") + data


def _compound(small: bytes, large: bytes, count: int, data: bytes) -> bytes:
    """A list, or a map whose keys and values are counted."""
    if count < 256 and len(data) < 255:
        return b"%b%c%c%b" % (small, len(data) + 1, count, data)
    return b"%b%b%b%b" % (large, (len(data) + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), data)
