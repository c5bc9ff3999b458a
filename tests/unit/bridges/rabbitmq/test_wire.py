"""The quick ways of a connection to RabbitMQ: they give what pika gives, in any pieces, and write what pika writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.channel import ContentFrameAssembler

from cues_kafka.bridges.rabbitmq.delivered import MOST_ROUTES, DeliveryReader, Properties
from cues_kafka.bridges.rabbitmq.wire import (
    PERSISTENT,
    RECEIVED_BYTES,
    SMALL_BYTES,
    WiredConnection,
    contents,
    decode_properties,
    published,
)

CHANNEL = 1


class Connection(WiredConnection):
    """One that is connected to nothing: keeps what is delivered, and the other frames, in their order."""

    def __init__(self, *, quick: bool) -> None:
        self._frame_buffer, self.bytes_received = b"", 0
        self._deliveries = DeliveryReader(decode_properties)
        self.came: list[Any] = []
        self.quickly = 0
        self.written: list[bytes] = []
        self._assembler = ContentFrameAssembler()
        self.consumer = self._quickly if quick else None
        self._transport = self  # what is sent goes here

    def _quickly(self, method: Any, properties: Any, body: bytes) -> None:
        self.quickly += 1
        self.came.append((*_where(method), _all(properties), body))

    def _process_frame(self, frame_value: Any) -> None:
        if isinstance(frame_value, frame.Heartbeat):
            self.came.append("heartbeat")
        elif isinstance(frame_value, frame.Method) and isinstance(frame_value.method, spec.Basic.Ack):
            self.came.append(frame_value.method.delivery_tag)
        elif (whole := self._assembler.process(frame_value)) is not None:
            method, header, body = whole
            self.came.append((*_where(method.method), _all(header.properties), body))

    def _on_stream_connected(self) -> None:
        """No broker hears what pika says first."""

    def write(self, data: bytes) -> None:
        """As a transport."""
        self.written.append(data)


def _where(method: Any) -> tuple[Any, ...]:
    return method.delivery_tag, method.redelivered, method.exchange, method.routing_key


def _all(properties: Any) -> tuple[Any, ...]:
    """Each property, also those that a message does not have."""
    return tuple(getattr(properties, name) for name in vars(pika.BasicProperties()))


def delivery(number: int, key: str, body: bytes, given: dict[str, Any], parts: int) -> bytes:
    """A message with a body in several frames."""
    method = frame.Method(CHANNEL, spec.Basic.Deliver("tag", number, number % 2 == 1, "shop", key)).marshal()
    properties = pika.BasicProperties(**given)
    size = max(1, -(-len(body) // parts))
    bodies = [frame.Body(CHANNEL, body[at : at + size]).marshal() for at in range(0, len(body), size)]
    return b"".join([method, frame.Header(CHANNEL, len(body), properties).marshal(), *bodies])


TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=9) | st.binary(max_size=9)
NUMBERS = st.integers(0, 255)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"), TEXTS),
        **dict.fromkeys(("message_id", "type", "user_id", "app_id", "cluster_id"), TEXTS),
        "delivery_mode": NUMBERS,
        "priority": NUMBERS,
        "timestamp": st.integers(0, 2**40),
        "headers": st.dictionaries(st.just("h"), st.just("v"), min_size=1, max_size=1),
    },
)


FRAMES = st.lists(
    st.one_of(
        st.builds(
            delivery,
            st.integers(1, 2**40),
            st.text(st.characters(blacklist_categories=["Cs"]), max_size=9),
            st.binary(max_size=80),
            PROPERTIES,
            st.sampled_from([1, 1, 1, 3]),
        ),
        st.just(frame.Heartbeat().marshal()),
        st.builds(lambda tag: frame.Method(CHANNEL, spec.Basic.Ack(tag)).marshal(), st.integers(1, 99)),
    ),
    max_size=6,
)


@given(frames=FRAMES, size=st.integers(1, 400))
def test_frames_are_read_as_pika_reads_them(frames: list[bytes], size: int) -> None:
    """Deliveries, other frames between them, and bodies of several frames, wherever the network cuts the bytes."""
    data = b"".join(frames)
    slow, quick = Connection(quick=False), Connection(quick=True)
    for at in range(0, len(data), size):
        for one in (slow, quick):
            one._on_data_available(data[at : at + size])
    assert quick.came == slow.came
    assert quick.bytes_received == slow.bytes_received


def test_whole_deliveries_are_read_at_once() -> None:
    """One that is cut waits for its rest."""
    data = b"".join(delivery(n, "k", b"x" * 50, {"message_id": f"m{n}"}, 1) for n in range(10))
    for cut in range(1, 200):
        made = Connection(quick=True)
        made._on_data_available(data[:-cut])
        made._on_data_available(data[-cut:])
        assert [one[0] for one in made.came] == [*range(10)]
        assert made.quickly == 10


def test_properties_without_a_table_are_read_without_pika() -> None:
    """As most messages have them."""
    came: list[Any] = []
    data = delivery(1, "k", b"x", {"message_id": "m", "delivery_mode": 2}, 1)
    DeliveryReader(decode_properties).take(data, 0, lambda *one: came.append(one))
    [(_, properties, _)] = came
    assert type(properties) is Properties
    assert vars(properties) == {"message_id": "m", "delivery_mode": 2}


def test_routing_keys_that_are_kept_are_bounded() -> None:
    """Publishers may use any number of them."""
    made, came = DeliveryReader(decode_properties), list[Any]()
    for n in range(MOST_ROUTES + 5):
        made.take(delivery(n, f"k{n}", b"x", {}, 1), 0, lambda *one: came.append(one[0].routing_key))
    assert came == [f"k{n}" for n in range(MOST_ROUTES + 5)]
    assert len(made._routes) == MOST_ROUTES


def test_more_is_received_at_once_than_pika_takes() -> None:
    """Each piece cuts a delivery, and is a turn of pika's loop."""
    transport = SimpleNamespace()
    Connection(quick=True)._proto_connection_made(transport)
    assert transport._MAX_RECV_BYTES == RECEIVED_BYTES


@given(
    key=st.text(st.characters(blacklist_categories=["Cs"]), max_size=20),
    name=st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40),
    body=st.binary(max_size=300),
    content_type=st.sampled_from(["", "application/json"]),
    expires=st.sampled_from([None, "1000"]),
)
def test_a_message_is_written_as_pika_writes_it(
    key: str, name: str, body: bytes, content_type: str, expires: str | None
) -> None:
    """Byte for byte."""
    properties = pika.BasicProperties(
        message_id=name, delivery_mode=PERSISTENT, content_type=content_type or None, expiration=expires
    )
    method = frame.Method(CHANNEL, spec.Basic.Publish(exchange="e", routing_key=key, mandatory=True))
    parts = [method.marshal(), frame.Header(CHANNEL, len(body), properties).marshal()]
    parts += [frame.Body(CHANNEL, body).marshal()] if body else []
    rest = contents(CHANNEL, name, body, content_type, expires)
    assert rest is not None
    assert published(CHANNEL, "e", key) + rest == b"".join(parts)


def test_a_large_message_goes_the_way_of_pika() -> None:
    """Its body may need several frames."""
    assert contents(CHANNEL, "m", b"x" * SMALL_BYTES, "", None) is not None
    assert contents(CHANNEL, "m", b"x" * (SMALL_BYTES + 1), "", None) is None
    assert contents(CHANNEL, "m" * 256, b"x", "", None) is None


def test_what_is_sent_together_is_one_write() -> None:
    """In its order, also where something goes wrong in between."""
    made = Connection(quick=False)
    with made.together() as parts:
        made._adapter_emit_data(b"1")
        parts.append(b"2")
        made._adapter_emit_data(b"3")
    made._adapter_emit_data(b"4")
    assert made.written == [b"123", b"4"]
