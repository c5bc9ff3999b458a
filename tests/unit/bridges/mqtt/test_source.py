"""What a feed takes of an MQTT connection, without a broker: ids, keys, headers, and what is not taken."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes

from cues_kafka import Encoded, Mqtt, RecoveryError, RetriableError
from cues_kafka.bridges.mqtt import source as module
from cues_kafka.bridges.mqtt.client import properties_of
from cues_kafka.bridges.mqtt.source import MqttDeliveries, MqttSource

URL = "mqtt://127.0.0.1:1"


class Link:
    """A connection that remembers what is acknowledged."""

    def __init__(self, *, session_present: bool = False) -> None:
        self.session_present = session_present
        self.acks: list[tuple[int, int]] = []
        self.lost = ""
        self.confirms: list[Callable[[], None]] = []

    def confirm(self, confirmed: Callable[[], None]) -> None:
        """Remember."""
        self.confirms.append(confirmed)

    def ack(self, packets: Iterable[tuple[int, int]]) -> None:
        """Remember."""
        self.acks.extend(packets)

    def check(self) -> None:
        """See `MqttConnection`."""
        if self.lost:
            raise ConnectionResetError(self.lost)


def deliveries(link: Link | None = None, **settings: Any) -> MqttDeliveries:
    """Of a source with these settings."""
    made = MqttDeliveries(Mqtt(URL, topics="#", session="s1", **settings), lambda: None, lambda: None)
    made.begin(link or Link())  # type: ignore[arg-type]
    return made


def message(mid: int, topic: bytes = b"t/a", payload: bytes = b"x", **facts: Any) -> MQTTMessage:
    """As paho gives it."""
    made = MQTTMessage(mid, topic)
    made.payload, made.qos, made.dup, made.retain = payload, facts.get("qos", 1), facts.get("dup", False), False
    made.retain = facts.get("retain", False)
    if properties := facts.get("properties"):
        made.properties = properties_of(PacketTypes.PUBLISH, properties)
    return made


def taken(made: MqttDeliveries, *messages: MQTTMessage) -> list[Any]:
    """What a feed gets of these."""
    for one in messages:
        made.receive(one)
    return list(made.take(100))


def test_message_has_payload_topic_and_properties() -> None:
    """The publisher's properties come before those that we add, so that none of them takes the place of ours."""
    properties = {"UserProperty": [("mqtt.topic", "forged"), ("a", "1"), ("a", "2")], "ContentType": "text/plain"}
    [arrival] = taken(deliveries(), message(1, payload=b"\x00\xff", properties=properties))
    assert arrival.message.value == b"\x00\xff"
    assert type(arrival.message.value) is Encoded
    assert arrival.message.key == "t/a"
    assert list(arrival.message.headers) == [
        *(("mqtt.topic", "forged"), ("a", "1"), ("a", "2")),
        *(("mqtt.topic", "t/a"), ("mqtt.content-type", "text/plain")),
    ]
    assert arrival.token == (1, 1)


@pytest.mark.parametrize(("key", "expected"), [("topic", "t/a/b"), (None, None), (1, "a"), (-1, "b"), (3, "t/a/b")])
def test_key_is_the_topic_or_a_level_of_it(key: Any, expected: str | None) -> None:
    """A topic without that level is the key as a whole."""
    [arrival] = taken(deliveries(key=key), message(1, b"t/a/b"))
    assert arrival.message.key == expected


def test_id_is_number_topic_and_payload_and_the_mark_is_the_brokers() -> None:
    """An expiry that counts down does not change it."""
    first, second, other, again = taken(
        deliveries(),
        message(1, properties={"MessageExpiryInterval": 60}),
        message(2),
        message(3, payload=b"y"),
        message(1, dup=True, properties={"MessageExpiryInterval": 59}),
    )
    assert first.id == again.id
    assert len({first.id, second.id, other.id}) == 3
    assert [one.again for one in (first, second, other, again)] == [False, False, False, True]


def test_topic_and_payload_are_not_taken_for_each_other() -> None:
    """Where one ends and the other begins is part of the id."""
    assert module.packet_name(1, "a", b"bc") != module.packet_name(1, "ab", b"c")


def test_property_names_a_message_whatever_its_packet_number_is() -> None:
    """So a publisher that repeats it after a crash repeats nothing in Kafka; another topic is another message."""
    first, again, other = taken(
        deliveries(),
        message(1, properties={"UserProperty": [("cues-id", "7")]}),
        message(2, payload=b"different", properties={"UserProperty": [("cues-id", "7")]}),
        message(3, b"t/b", properties={"UserProperty": [("cues-id", "7")]}),
    )
    assert first.id == again.id != other.id
    assert first.again


def test_message_with_qos_0_has_nothing_to_acknowledge() -> None:
    """Nor is it delivered again."""
    link = Link()
    made = deliveries(link)
    [arrival] = taken(made, message(0, qos=0))
    assert (arrival.id, arrival.again, arrival.token) == ("", False, None)
    made.ack([arrival.token, (5, 1)])
    assert link.acks == [(5, 1)]


def test_packets_that_the_broker_has_counted_and_not_delivered_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """1 follows the last number; what is delivered again, and what has no number, says nothing. Lines become rare."""
    made = deliveries()
    taken(
        made,
        message(7, dup=True),
        message(9, dup=True),
        message(65_534),
        message(0, qos=0),
        message(65_535),
        message(1),
    )
    assert "packet numbers are missing" not in caplog.text
    taken(made, message(2), message(5))
    assert "count=2" in caplog.text
    taken(made, message(7), message(40))
    assert [line.count("missing") for line in caplog.messages] == [1, 1]
    assert "count=35" in caplog.messages[1]


def test_messages_with_qos_0_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes above the limit is dropped, and the log says so."""
    monkeypatch.setattr(module, "MOST_UNACKNOWLEDGED", 2)
    made = deliveries()
    assert len(taken(made, *(message(0, qos=0) for _ in range(5)), message(1))) == 3
    assert "came too quickly" in caplog.text
    assert "dropped=3" in caplog.text
    assert len(taken(made, message(0, qos=0))) == 1


def test_a_broker_that_uses_numbers_again_is_refused_with_the_remedy() -> None:
    """Its numbers would take a new message for a redelivery of another one."""
    made = deliveries()
    assert len(taken(made, message(1), message(1, dup=True))) == 2
    with pytest.raises(RecoveryError, match="has used the packet number 1 again") as refused:
        taken(made, message(1))
    assert "packet_ids=False" in (refused.value.remedy or "")
    [first, second] = taken(deliveries(packet_ids=False), message(1), message(1))
    assert (first.id, second.id) == ("", "")


def test_numbers_may_come_again_behind_many_messages() -> None:
    """They go to 65,535."""
    made = deliveries(prefetch=5_000)
    for mid in range(1, module.RECENT + 2):
        taken(made, message(mid))
    assert len(taken(made, message(1))) == 1


@pytest.mark.parametrize(
    ("version", "session_present", "retained", "dup", "expected"),
    [
        ("5", False, True, False, 1),
        ("5", True, True, False, 1),  # the broker was asked to send it for new filters only
        ("5", False, False, False, 0),
        ("3.1.1", False, True, False, 1),
        ("3.1.1", True, True, False, 0),  # the session has had it
        ("3.1.1", True, True, True, 1),  # unless that is not committed
        ("3.1.1", False, False, False, 0),
    ],
)
def test_retained_messages_come_once_to_a_session(
    version: Any, session_present: bool, retained: bool, dup: bool, expected: int
) -> None:
    """What is not taken is acknowledged, so that it does not fill the window."""
    link = Link(session_present=session_present)
    made = deliveries(link, version=version, retained=retained)
    found = taken(made, message(1, retain=True, dup=dup))
    assert len(found) == expected
    assert link.acks == ([] if expected else [(1, 1)])
    assert not found or ("mqtt.retained", "1") in found[0].message.headers


def test_retained_message_of_mqtt_3_has_one_id_under_all_numbers() -> None:
    """It comes with each subscription, and again where its acknowledgement was lost."""
    made = deliveries(version="3.1.1")
    first, again, live = taken(made, message(1, retain=True), message(5, retain=True, dup=True), message(6))
    assert first.id == again.id != live.id
    assert first.again


def test_topic_that_is_not_utf_8_can_be_read() -> None:
    """A broker should not let it pass; the message goes on with its bytes in a readable form."""
    [arrival] = taken(deliveries(), message(1, b"t/\xff"))
    assert arrival.message.key == r"t/\xff"


def test_lost_connection_is_said_and_its_messages_are_left() -> None:
    """They come again on the next one."""
    link = Link()
    made = deliveries(link)
    made.receive(message(1))
    link.lost = "it is lost"
    with pytest.raises(ConnectionResetError, match="it is lost"):
        made.take(10)


def test_connections_that_are_lost_at_once_are_made_more_slowly_and_the_likely_cause_is_named() -> None:
    """Two clients of one name end each other's connections for good."""
    now = [100.0]
    source = MqttSource(Mqtt(URL, topics="#", session="s1"), None, lambda: now[0])  # type: ignore[arg-type]
    for _ in range(module.STRIKES):
        source._wait_for_turn(0, "s1")
        source._lost(0, now[0])
        now[0] += 0.01
    with pytest.raises(RetriableError, match="another client may have the same one"):
        source._wait_for_turn(0, "s1")
    now[0] += module.MOST_PAUSE_S
    source._wait_for_turn(0, "s1")
    source._lost(0, now[0] - module.SHORT_S)
    source._wait_for_turn(0, "s1")


def test_connections_that_end_before_the_login_is_answered_are_not_taken_for_those_of_two_clients() -> None:
    """As those of a broker that wants another certificate: the error says what to look at, however often it comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        declared = Mqtt(f"mqtt://127.0.0.1:{port}", topics="#", session="s1")
        source = MqttSource(declared, declared.login())

        def end_next() -> None:
            server.accept()[0].close()

        for _ in range(module.STRIKES + 1):
            ends = threading.Thread(target=end_next)
            ends.start()
            with pytest.raises(RetriableError, match=r"If the port has TLS, write mqtts://"):
                source.connect(0, lambda: None)
            ends.join()


def test_no_more_is_taken_than_the_ledger_knows_until_the_broker_has_read_acknowledgements() -> None:
    """A broker may deliver more than it was asked to, and forget acknowledgements that it has not read."""
    link = Link()
    made = deliveries(link)
    room = made._declared.ledger
    for mid in range(1, 2 * room):
        made.receive(message(mid))
    arrivals = [*made.take(room - 100), *made.take(room)]
    assert len(arrivals) == room
    assert len(made.take(10)) == 0
    made.ack([one.token for one in arrivals[: room // 2]])
    assert len(made.take(10)) == 0
    [confirm] = link.confirms
    confirm()
    assert len(made.take(room)) == room // 2


def test_acknowledgements_are_confirmed_in_bulk() -> None:
    """One question for many of them."""
    link = Link()
    made = deliveries(link)
    for mid in range(1, 1_001):
        made.ack([(mid, 1)])
        for confirm in link.confirms[-1:] if mid % 100 == 0 else ():
            confirm()
    assert 1 <= len(link.confirms) <= 8


def test_broker_that_goes_back_to_an_older_state_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The broker reuses a number of a former connection for an unmarked message. A marked redelivery is not named."""
    had = deque[int]()

    def connected() -> MqttDeliveries:
        made = MqttDeliveries(Mqtt(URL, topics="#", session="s1"), lambda: None, lambda: None, had=had)
        made.begin(Link(session_present=True))  # type: ignore[arg-type]
        return made

    taken(connected(), message(7), message(8))
    taken(connected(), message(8, dup=True), message(9))
    assert "older state" not in caplog.text
    taken(connected(), message(9), message(10))
    assert caplog.text.count("older state of the session") == 1
