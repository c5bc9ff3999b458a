"""What others chose goes out to a real mosquitto as it is, or becomes an error message; it never stops the sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Message, Mqtt, Processor, Raw, Sink, Source, Topic
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify
from tests.servers.fixtures import MosquittoTopics
from tests.servers.mosquitto import Mosquitto
from tests.servers.mqtt_world import Device
from tests.servers.test_mqtt import VERSIONS

pytestmark = pytest.mark.bridge

GOOD_KEYS = ("a", "ü/\u4e2d", "a b", "{key}", "%2F", "'\"\\", "//", "/".join("l" * 150), "$SYS/x", "\xa0", "x" * 60_000)
WRONG_KEYS = (
    *("#", "+", "a/+/b", "a#", "a\0b", "a\tb", "a\n", "\x7f", "\x9f", "\ufdd0", "\uffff", "\U0001fffe"),
    *("", None, "x" * 66_000, "/".join("l" * 300)),
)
PAYLOADS = (b"", b"\x00\xff\xfe", b"x" * 800_000, b"{", "\u2028".encode(), b"\xed\xa0\x80")


def graph_of(into: Any) -> Graph:
    """A sink."""
    return Graph(
        "g",
        Source("alerts"),
        Sink("alarms", inputs="alerts", into=into),
        defaults=Topic(value=Raw(), partitions=1),
        errors="g.errors",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_and_payloads_go_out_as_they_are_or_become_error_messages(
    mosquitto: MosquittoTopics, version: Any
) -> None:
    """Each once: mosquitto closes the connection of one who publishes what it does not take."""
    tester = Tester(graph_of(Mqtt(mosquitto.url, version=version).topic(f"{mosquitto.name}/{{key:path}}")))
    sent = [(key, payload) for key in GOOD_KEYS for payload in PAYLOADS]
    with Device(mosquitto.server.port) as device:
        device.listen(f"{mosquitto.name}/#")
        for at, (key, payload) in enumerate(sent):
            if at < len(WRONG_KEYS):
                tester.send("alerts", Message(b"wrong", key=WRONG_KEYS[at]))
            tester.send("alerts", Message(payload, key=key))
        tester.run()
        got = [(one.topic, bytes(one.payload)) for one in device.hears(len(sent))]

    assert got == [(f"{mosquitto.name}/{key}", payload) for key, payload in sent]
    assert len(tester.errors()) == len(WRONG_KEYS)
    assert verify(tester.graph, tester.broker).ok
    tester.stop()


def test_headers_become_properties_where_they_can(mosquitto: MosquittoTopics) -> None:
    """What a property cannot have stays in Kafka: bytes that are no text, control characters, and long ones."""
    notes = [b"", b"C", "ü\u4e2d\xa0".encode(), b"x" * 65_535]
    wrong = [b"\xff", b"a\0b", b"a\nb", b"\x7f", "\ufffe".encode(), b"\xed\xa0\x80", b"x" * 65_536]
    tester = Tester(graph_of(Mqtt(mosquitto.url).topic(f"{mosquitto.name}/a", headers=["note", "ü b"])))
    with Device(mosquitto.server.port) as device:
        device.listen(f"{mosquitto.name}/#")
        for note in (*notes, *wrong):
            headers = [("note", note), ("ü b", b"1"), ("cues-id", b"forged"), ("other", b"2")]
            tester.send("alerts", Message(note[:100], headers=headers))
        tester.run()
        got = device.hears(len(notes) + len(wrong))

    found = [list(one.properties.UserProperty) for one in got]  # type: ignore[union-attr]
    expected = [[("note", note.decode()), ("ü b", "1")] for note in notes] + [[("ü b", "1")]] * len(wrong)
    assert [properties[:-1] for properties in found] == expected
    assert {properties[-1][0] for properties in found} == {"cues-id"}
    assert len({properties[-1][1] for properties in found}) == len(found)
    assert not tester.errors()
    tester.stop()


def test_a_payload_above_the_limit_of_the_broker_is_one_error_message(
    mosquitto_servers: Callable[..., Mosquitto],
) -> None:
    """Also the first message, before the broker has said its limit; and one that is larger than MQTT allows."""
    server = mosquitto_servers(settings={"max_packet_size": "20000"})

    def publish(value: bytes, step: Any, out: Any) -> None:
        out.publish(bytes(2**28) if value == b"huge" else value, step)

    effects = {"out": Mqtt(server.url()).topic("t/a")}
    graph = Graph(
        "g",
        Source("alerts"),
        Processor(publish, inputs="alerts", effects=effects),
        defaults=Topic(value=Raw(), partitions=1),
        errors="g.errors",
    )
    tester = Tester(graph)
    with Device(server.port) as device:
        device.listen("t/#")
        for payload in (b"x" * 20_000, b"1", b"huge", b"2", b"y" * 30_000, b"z" * 19_000):
            tester.send("alerts", payload)
        tester.run()
        got = [bytes(one.payload) for one in device.hears(3)]
    assert got == [b"1", b"2", b"z" * 19_000]
    assert [error.kind for error in tester.errors()] == ["output"] * 3
    tester.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_are_kept_and_a_tombstone_deletes_one(mosquitto: MosquittoTopics, version: Any) -> None:
    """Whatever the payload is; each topic keeps its newest message."""
    into = Mqtt(mosquitto.url, version=version).topic(f"{mosquitto.name}/{{key}}", retain=True)
    tester = Tester(graph_of(into))
    newest = {"a": b"\x00\xff", "ü b": b"x" * 800_000, "gone": None, "empty": b""}
    for key, payload in newest.items():
        tester.send("alerts", Message(b"old", key=key))
        tester.send("alerts", Message(payload, key=key))
    tester.send("alerts", Message(b"wrong", key="#"))
    tester.send("alerts", Message(b"end", key="zzz"))
    tester.run()
    tester.stop()

    with Device(mosquitto.server.port) as later:
        later.listen(f"{mosquitto.name}/#")
        kept = {one.topic.rpartition("/")[2]: (one.retain, bytes(one.payload)) for one in later.hears(3)}
    assert kept == {"a": (1, b"\x00\xff"), "ü b": (1, b"x" * 800_000), "zzz": (1, b"end")}
    assert len(tester.errors()) == 1


def test_what_a_function_names_is_checked_as_what_it_is_given(mosquitto: MosquittoTopics) -> None:
    """Lone surrogates, which Python has and UTF-8 has not, in a topic and in a payload."""

    def publish(value: bytes, step: Any, out: Any) -> None:
        if value == b"payload":
            out.publish("\ud800", step)
        elif value == b"json":
            out.publish({"text": "\ud800"}, step)
        else:
            out.publish(value, step, topic=f"{mosquitto.name}/{value.decode(errors='surrogateescape')}")

    graph = Graph(
        "g",
        Source("alerts"),
        Processor(publish, inputs="alerts", effects={"out": Mqtt(mosquitto.url).topic(f"{mosquitto.name}/a")}),
        defaults=Topic(value=Raw(), partitions=1),
        errors="g.errors",
    )
    tester = Tester(graph)
    with Device(mosquitto.server.port) as device:
        device.listen(f"{mosquitto.name}/#")
        for value in (b"payload", b"\xff", b"#", b"a\0", b"json", b"end"):
            tester.send("alerts", value)
        tester.run()
        got = [(one.topic, bytes(one.payload)) for one in device.hears(2)]
    assert got == [(f"{mosquitto.name}/a", b'{"text":"\\ud800"}'), (f"{mosquitto.name}/end", b"end")]
    assert [error.kind for error in tester.errors()] == ["output"] * 4
    tester.stop()
