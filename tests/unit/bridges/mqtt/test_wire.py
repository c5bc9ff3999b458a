"""The buffer of an MQTT connection: what it reads is what paho reads, in any pieces; what it writes keeps its order."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from cues_kafka.bridges.mqtt.client import properties_of
from cues_kafka.bridges.mqtt.wire import BufferedClient, MessagePacket

VERSIONS = {True: MQTTProtocolVersion.MQTTv5, False: MQTTProtocolVersion.MQTTv311}
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "UserProperty": st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
        "ContentType": TEXT,
        "ResponseTopic": TEXT,
        "CorrelationData": st.binary(max_size=6),
        "MessageExpiryInterval": st.integers(0, 2**32 - 1),
        "PayloadFormatIndicator": st.integers(0, 1),
    },
)
MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 65_535),
        st.one_of(st.just(b"t/a"), st.binary(min_size=1, max_size=9)),
        st.binary(max_size=200),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
        st.none() | PROPERTIES,
    ),
    max_size=6,
)


class Wire:
    """Takes the place of a socket: gives what was put there, and takes a few bytes at a time."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.coming, self.sent, self.most = b"", b"", most

    def recv(self, size: int) -> bytes:
        """What is there."""
        if not self.coming:
            raise BlockingIOError
        data, self.coming = self.coming[:size], self.coming[size:]
        return data

    def send(self, data: bytes) -> int:
        """Some of it."""
        some = bytes(data[: self.most])
        self.sent += some
        return len(some)

    def close(self) -> None:
        """Nothing is open."""


def plain(*, modern: bool) -> Client:
    """Paho's own."""
    return Client(CallbackAPIVersion.VERSION2, "c", protocol=VERSIONS[modern], manual_ack=True)


def buffered(took: Any, *, modern: bool) -> BufferedClient:
    """Ours."""
    options = {"client_id": "c", "protocol": VERSIONS[modern], "manual_ack": True}
    return BufferedClient(CallbackAPIVersion.VERSION2, modern=modern, took=took, **options)


def packet(message: Any, *, modern: bool) -> bytes:
    """The bytes of a message, as paho writes them."""
    mid, topic, payload, qos, dup, retain, properties = message
    writer, wire = plain(modern=modern), Wire()
    writer._sock = wire  # type: ignore[assignment]
    more = {"properties": properties_of(PacketTypes.PUBLISH, properties or {})} if modern else {}
    writer._send_publish(mid, topic, payload, qos, retain, dup, MQTTMessageInfo(mid), **more)
    writer._sock = None
    return wire.sent


def shown(message: MQTTMessage | MessagePacket) -> tuple[Any, ...]:
    """All that a source looks at."""
    try:
        topic: Any = message.topic
    except UnicodeDecodeError as error:
        topic = error.object
    names = ("UserProperty", "ContentType", "ResponseTopic", "CorrelationData")
    properties = [getattr(message.properties, name, None) for name in names]
    return message.mid, topic, bytes(message.payload), message.qos, message.dup, message.retain, properties


@given(messages=MESSAGES, size=st.integers(1, 300), modern=st.booleans())
def test_messages_are_read_as_paho_reads_them(messages: list[Any], size: int, *, modern: bool) -> None:
    """With all kinds of properties, QoS and topics, wherever the network cuts the bytes."""
    data = b"".join(packet(one, modern=modern) for one in messages)
    found: list[Any] = []
    expected: list[Any] = []
    reader, ours = plain(modern=modern), buffered(lambda one: found.append(shown(one)), modern=modern)
    reader.on_message = lambda _, __, one: expected.append(shown(one))
    wires = [Wire(), Wire()]
    reader._sock, ours._sock = wires  # type: ignore[assignment]
    for at in range(0, len(data), size):
        for wire in wires:
            wire.coming = data[at : at + size]
        while wires[0].coming and reader.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            pass
        assert ours.read() == MQTTErrorCode.MQTT_ERR_SUCCESS
        assert found == expected
    ours.write()
    assert wires[0].sent == wires[1].sent  # the answers to QoS 2
    assert len(found) == sum(one[3] < 2 for one in messages)
    reader._sock = ours._sock = None


def test_acknowledgements_go_out_before_what_is_asked_behind_them() -> None:
    """A broker that has answered has read them, also where the socket takes a few bytes at a time."""
    client, wire = buffered(lambda _: None, modern=True), Wire(most=3)
    client._sock = wire  # type: ignore[assignment]
    client.on_socket_register_write = lambda *_: None
    client.acknowledge([1, 258])
    client.unsubscribe("a")
    while client.want_write():
        assert client.write() == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert wire.sent.startswith(b"\x40\x02\x00\x01\x40\x02\x01\x02\xa2")
    client._sock = None


def test_one_read_takes_all_that_has_come() -> None:
    """And one write sends all that waits."""
    left, right = socket.socketpair()
    found: list[Any] = []
    client = buffered(found.append, modern=True)
    left.setblocking(False)
    client._sock = left
    right.sendall(b"".join(packet((n, b"t", b"x", 1, False, False, None), modern=True) for n in range(1, 101)))
    client.read()
    assert [one.mid for one in found] == [*range(1, 101)]
    assert all(type(one) is MessagePacket for one in found)
    client.acknowledge(one.mid for one in found)
    client.write()
    assert len(right.recv(10_000)) == 400
    client._sock = None
    left.close()
    right.close()


def test_a_connection_that_ends_is_lost() -> None:
    """For a reader, and for a writer."""
    for use in (BufferedClient.read, BufferedClient.write):
        left, right = socket.socketpair()
        client = buffered(lambda _: None, modern=True)
        left.setblocking(False)
        client._sock = left
        right.close()
        client.acknowledge([1])
        assert use(client) == MQTTErrorCode.MQTT_ERR_CONN_LOST
        assert client.socket() is None


def test_what_a_taker_raises_is_not_taken_for_an_unusual_packet() -> None:
    """It ends the connection, and its message is not read again."""

    def took(_: Any) -> None:
        raise IndexError("mine")

    client, wire = buffered(took, modern=True), Wire()
    client._sock = wire  # type: ignore[assignment]
    wire.coming = packet((1, b"t", b"x", 1, False, False, None), modern=True)
    with pytest.raises(IndexError, match="mine"):
        client.read()
    client._sock = None
