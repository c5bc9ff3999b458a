"""A message that is encoded quickly says what Proton's says."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.bridges.amqp.messages import AmqpMessage
from cues_kafka.bridges.amqp.outgoing import _quick, encoded

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=300)


def read(data: bytes) -> tuple[Any, ...]:
    """What Proton reads."""
    made = proton.Message()
    made.decode(data)
    body = bytes(made.body) if isinstance(made.body, memoryview) else made.body
    return body, type(made.body), made.inferred, made.durable, made.priority, made.id, made.properties


def by_proton(message: AmqpMessage) -> bytes:
    """As Proton encodes it."""
    made = proton.Message(
        body=message.body,
        durable=True,
        inferred=isinstance(message.body, bytes),
        properties=dict(message.properties) or None,
        **dict(message.fields),
    )
    data: bytes = made.encode()
    return data


@given(
    body=st.binary(max_size=300) | TEXT,
    properties=st.dictionaries(TEXT.filter(bool), TEXT, max_size=4),
    name=st.none() | TEXT.filter(bool),
)
def test_a_plain_message_is_encoded_as_proton_does(body: str | bytes, properties: dict[str, str], name: str) -> None:
    """Its body, its properties, its id, and that it is durable."""
    message = AmqpMessage("queue", "q", body, properties, {} if name is None else {"id": name})
    quick = _quick(message)
    assert quick is not None
    assert read(quick) == read(by_proton(message))


def test_many_properties_and_large_bodies_have_lengths_of_four_bytes() -> None:
    """As a map of 300 properties, and a body of 70,000 bytes."""
    for body in (b"x" * 70_000, "x" * 70_000):
        message = AmqpMessage("queue", "q", body, {f"p{n}": "v" for n in range(300)}, {"id": "x" * 300})
        quick = _quick(message)
        assert quick is not None
        assert read(quick) == read(by_proton(message))


@pytest.mark.parametrize(
    "message",
    [
        AmqpMessage("queue", "q", b"", {"n": 1}),
        AmqpMessage("queue", "q", b"", {}, {"priority": 7}),
        AmqpMessage("queue", "q", b"", {}, {"id": "a", "subject": "b"}),
        AmqpMessage("queue", "q", b"", {}, {}, {"x-opt": "a"}),
    ],
)
def test_any_other_message_is_left_to_proton(message: AmqpMessage) -> None:
    """With numbers, other fields, or annotations."""
    assert _quick(message) is None
    assert read(encoded(message))[3] is True
