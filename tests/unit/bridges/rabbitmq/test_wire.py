"""The quick ways of a connection to RabbitMQ: they give what pika gives, in any pieces, and write what pika writes."""

from __future__ import annotations

from typing import Any

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.channel import ContentFrameAssembler

from cues_kafka.bridges.rabbitmq.wire import PERSISTENT, SMALL_BYTES, WiredConnection, contents, published

CHANNEL = 1


class Connection(WiredConnection):
    """One that is connected to nothing: keeps what is delivered, and the other frames, in their order."""

    def __init__(self, *, quick: bool) -> None:
        self._frame_buffer, self.bytes_received, self.frames_received = b"", 0, 0
        self.came: list[Any] = []
        self.quickly = 0
        self.written: list[bytes] = []
        self._assembler = ContentFrameAssembler()
        self.consumer = self._quickly if quick else None
        self._transport = self  # what is sent goes here

    def _quickly(self, method: Any, properties: Any, body: bytes) -> None:
        self.quickly += 1
        self.came.append((method.delivery_tag, method.routing_key, method.redelivered, properties, body))

    def _process_frame(self, frame_value: Any) -> None:
        self.frames_received += 1
        if isinstance(frame_value, frame.Heartbeat):
            self.came.append("heartbeat")
        elif isinstance(frame_value, frame.Method) and isinstance(frame_value.method, spec.Basic.Ack):
            self.came.append(frame_value.method.delivery_tag)
        elif (whole := self._assembler.process(frame_value)) is not None:
            method, header, body = whole
            one = method.method
            self.came.append((one.delivery_tag, one.routing_key, one.redelivered, header.properties, body))

    def write(self, data: bytes) -> None:
        """As a transport."""
        self.written.append(data)


def delivery(number: int, key: str, body: bytes, headers: dict[str, str], parts: int) -> bytes:
    """A message with a body in several frames."""
    method = frame.Method(CHANNEL, spec.Basic.Deliver("tag", number, number % 2 == 1, "", key)).marshal()
    properties = pika.BasicProperties(message_id=f"m{number}", headers=headers or None, delivery_mode=2)
    size = max(1, -(-len(body) // parts))
    bodies = [frame.Body(CHANNEL, body[at : at + size]).marshal() for at in range(0, len(body), size)]
    return b"".join([method, frame.Header(CHANNEL, len(body), properties).marshal(), *bodies])


FRAMES = st.lists(
    st.one_of(
        st.builds(
            delivery,
            st.integers(1, 2**40),
            st.text(st.characters(blacklist_categories=["Cs"]), max_size=9),
            st.binary(max_size=80),
            st.dictionaries(st.just("h"), st.just("v"), max_size=1),
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
    assert (quick.bytes_received, quick.frames_received) == (slow.bytes_received, slow.frames_received)


def test_whole_deliveries_are_read_at_once() -> None:
    """All but the one that is cut."""
    data = b"".join(delivery(n, "k", b"x" * 50, {}, 1) for n in range(10))
    made = Connection(quick=True)
    made._on_data_available(data[:-1])
    made._on_data_available(data[-1:])
    assert [one[0] for one in made.came] == [*range(10)]
    assert made.quickly == 9


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
