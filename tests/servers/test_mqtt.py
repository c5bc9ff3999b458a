"""MQTT on a real broker: messages come exactly once into Kafka, and at least once out of it, whatever dies when."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from cues_kafka import Graph, Json, Memory, Message, Mqtt, Raw, RecoveryError, Sink, Source, Topic, start
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.servers.artemis import Artemis
from tests.servers.bridge_world import Cut, a_tester, counted, fed, payloads, run_until, until
from tests.servers.fixtures import JmsQueues, MosquittoTopics
from tests.servers.mosquitto import Mosquitto
from tests.servers.mqtt_world import Device
from tests.servers.rabbitmq import USER, RabbitMq

VERSIONS = ("5", "3.1.1")


def source_of(mosquitto: MosquittoTopics, **settings: Any) -> Mqtt:
    """A session of this test."""
    name = mosquitto.name
    return Mqtt(mosquitto.url, **{"topics": [f"{name}/#"], "session": name, "prefetch": 10, **settings})


def with_session(tester: Tester) -> None:
    """Have the broker make the session, so that it keeps what is published from now on."""
    tester.run()


def test_messages_come_once_over_a_death_between_commit_and_acknowledgement(mosquitto: MosquittoTopics) -> None:
    """The broker delivers them again, the ledger drops them, and then nothing is left at the broker."""
    source = source_of(mosquitto)
    tester = a_tester(source)
    with_session(tester)
    with Device(mosquitto.server.port) as device:
        device.publish_many(f"{mosquitto.name}/a", payloads(30))
        run_until(tester, 30, Crash("after", "Commit", 2))
        assert [one.value for one in tester.messages("ingress")] == payloads(30)
        assert {one.key for one in tester.messages("ingress")} == {f"{mosquitto.name}/a"}
        assert verify(tester.graph, tester.broker).ok
    tester.stop()
    with Device(mosquitto.server.port, mosquitto.name) as same_session:
        same_session.publish(f"{mosquitto.name}/b", b"last")
        assert [one.payload for one in same_session.hears(1)] == [b"last"]


def test_messages_go_out_with_an_id_and_are_acknowledged_before_the_commit(mosquitto: MosquittoTopics) -> None:
    """What a crash repeats has the same id."""
    into = Mqtt(mosquitto.url).topic(f"{mosquitto.name}/{{key}}", retain=True, headers=["unit"])
    graph = Graph(
        "g", Source("alerts"), Sink("alarms", inputs="alerts", into=into), defaults=Topic(value=Json(), partitions=1)
    )
    with Device(mosquitto.server.port) as device:
        device.listen(f"{mosquitto.name}/#")
        tester = Tester(graph)
        for n in range(5):
            tester.send("alerts", Message({"n": n}, key=f"k{n}", headers={"unit": "C"}))
        tester.run(crash=Crash("before", "Commit", 3))  # behind those of the first record and of the snapshot
        tester.run()
        got = device.hears(10)
    assert sorted(one.topic.rpartition("/")[2] for one in got) == sorted(f"k{n}" for n in range(5) for _ in range(2))
    by_id = {dict(one.properties.UserProperty)["cues-id"]: (one.topic, bytes(one.payload)) for one in got}  # type: ignore[union-attr]
    assert sorted(payload for _, payload in by_id.values()) == [b'{"n":%d}' % n for n in range(5)]
    assert {dict(one.properties.UserProperty)["unit"] for one in got} == {"C"}  # type: ignore[union-attr]
    with Device(mosquitto.server.port) as later:
        later.listen(f"{mosquitto.name}/k1")
        [kept] = later.hears(1)
    assert (kept.retain, kept.payload) == (1, b'{"n":1}')


# The matrix

CRASHES = (
    ("before", "Call", 1),
    ("after", "Call", 2),
    ("before", "Commit", 1),
    ("before", "Commit", 2),
    ("after", "Commit", 1),
    ("after", "Commit", 2),
)


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("broker", ["lives", "dies"])
@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_messages_come_once_whatever_dies(
    mosquitto: MosquittoTopics, crash: tuple[Any, str, int], broker: str, version: Any
) -> None:
    """The process at each moment, alone or together with the broker; more is published meanwhile."""
    tester = a_tester(source_of(mosquitto, version=version))
    with_session(tester)
    with Device(mosquitto.server.port) as device:
        device.publish_many(f"{mosquitto.name}/a", payloads(30))

    def between() -> None:
        if broker == "dies":
            kill_saved(mosquitto)
        with Device(mosquitto.server.port) as other:
            other.publish_many(f"{mosquitto.name}/b", payloads(30, 30))

    run_until(tester, 60, Crash(*crash), between)
    tester.restart()
    tester.run()
    assert counted(tester) == dict.fromkeys(payloads(60), 1)
    assert verify(tester.graph, tester.broker).ok
    tester.stop()


def kill_saved(mosquitto: MosquittoTopics) -> None:
    """Kill the broker behind its save, and start it again."""
    with Device(mosquitto.server.port) as device:
        device.wait_until_saved(mosquitto.name)
    mosquitto.server.kill()
    mosquitto.server.start()


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_come_once_while_the_broker_dies_and_comes_back(
    mosquitto: MosquittoTopics, version: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Three times, under a feed that goes on, with messages between; the feed reconnects by itself.

    A mosquitto that dies between a delivery and its next save delivers that message again as a new one. The feed takes
    it twice, and says that the broker went back.
    """
    source = source_of(mosquitto, version=version)
    with start(fed(source), Memory()) as running:
        running.wait_idle(timeout_s=30)
        for turn in range(4):
            with Device(mosquitto.server.port) as device:
                device.publish_many(f"{mosquitto.name}/a", payloads(50, 50 * turn))
                device.wait_until_saved(mosquitto.name)
            if turn < 3:
                mosquitto.server.kill()
                mosquitto.server.start()
        until(lambda: {int(one.value) for one in running.messages("ingress")} == set(range(200)))
        running.wait_idle(timeout_s=30)
        assert len(running.messages("ingress")) == 200 or "older state of the session" in caplog.text


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_come_once_over_connections_that_are_cut(mosquitto: MosquittoTopics, version: Any) -> None:
    """At any moment, in both directions, by something between the two."""
    with Cut(mosquitto.server.port) as cutter:
        source = source_of(mosquitto, version=version)
        source = Mqtt(f"mqtt://127.0.0.1:{cutter.port}", topics=source.topics, session=source.session, version=version)
        with start(fed(source), Memory()) as running:
            running.wait_idle(timeout_s=30)
            with Device(mosquitto.server.port) as device:
                for turn in range(20):
                    device.publish_many(f"{mosquitto.name}/a", payloads(20, 20 * turn))
                    cutter.cut()
            until(lambda: len(running.messages("ingress")) >= 400)
            assert sorted(int(one.value) for one in running.messages("ingress")) == list(range(400))


@pytest.mark.bridge
def test_a_full_window_goes_on(mosquitto: MosquittoTopics) -> None:
    """One message under way at a time; each waits for the commit of the one before."""
    with start(fed(source_of(mosquitto, prefetch=1)), Memory()) as running:
        running.wait_idle(timeout_s=30)
        with Device(mosquitto.server.port) as device:
            device.publish_many(f"{mosquitto.name}/a", payloads(40))
        until(lambda: len(running.messages("ingress")) >= 40)
        assert [one.value for one in running.messages("ingress")] == payloads(40)


@pytest.mark.bridge
def test_a_broker_that_is_away_at_the_start_is_waited_for(mosquitto_servers: Callable[..., Mosquitto]) -> None:
    """The status says so, and it goes on by itself."""
    server = mosquitto_servers()
    server.kill()
    source = Mqtt(server.url(), topics="t/#", session="s1")
    with start(fed(source), Memory()) as running:
        with pytest.raises(TimeoutError, match=r"source does not answer .*ConnectionRefusedError"):
            running.wait_idle(timeout_s=1)
        server.start()
        running.wait_idle(timeout_s=30)
        with Device(server.port) as device:
            device.publish("t/a", b"1")
        until(lambda: len(running.messages("ingress")) == 1)


@pytest.mark.bridge
def test_payloads_and_topics_that_others_chose_come_as_they_are(mosquitto: MosquittoTopics) -> None:
    """Empty, binary and large ones, texts of all kinds; what does not fit the topic becomes an error message."""
    name = mosquitto.name
    topics = [f"{name}/{one}" for one in ("", "a b", "ü/\u4e2d", "x" * 200, "{key}", "%2F", "a/b/c/d", "'\"\\")]
    given = [b"", b"\x00\xff\xfe", b"x" * 200_000, b"{", "\u2028".encode()]
    tester = a_tester(source_of(mosquitto))
    with_session(tester)
    with Device(mosquitto.server.port) as device:
        for topic in topics:
            for payload in given:
                device.publish(topic, payload, UserProperty=[("cues", "forged"), ("", "x"), ("ü", "\u4e2d")])
        device.publish(f"{name}/large", b"y" * 3_000_000)
        device.publish(f"{name}/end", b"end")
    run_until(tester, len(topics) * len(given) + 1)
    found = [(one.key, one.value) for one in tester.messages("ingress")]
    assert found == [(topic, payload) for topic in topics for payload in given] + [(f"{name}/end", b"end")]
    assert ("ü", "\u4e2d".encode()) in tester.messages("ingress")[0].headers
    assert ["are more than the" in error.text for error in tester.errors()] == [True]
    assert verify(tester.graph, tester.broker).ok
    tester.stop()


@pytest.mark.bridge
def test_artemis_numbers_packets_again_and_is_not_read_by_numbers(artemis: JmsQueues) -> None:
    """It neither keeps the number of what it delivers again nor marks it; ids of the publisher need neither."""
    assert isinstance(artemis.server, Artemis)
    refuses_numbers(artemis.name, f"mqtt://127.0.0.1:{artemis.server.mqtt_port}", artemis.server.mqtt_port, "5")


@pytest.mark.bridge
def test_rabbitmq_numbers_packets_again_and_is_not_read_by_numbers(rabbitmq_servers: Callable[..., RabbitMq]) -> None:
    """It begins with 1 on each connection."""
    server = rabbitmq_servers(plugins=("rabbitmq_mqtt",), settings={"mqtt.allow_anonymous": "true"})
    server.kill()
    server.start(settings={"mqtt.default_user": USER, "mqtt.default_pass": server.password})
    refuses_numbers("t", f"mqtt://127.0.0.1:{server.mqtt_port}", server.mqtt_port, "3.1.1")


def refuses_numbers(name: str, url: str, port: int, version: Any) -> None:
    """Nothing is taken by its number, and with `packet_ids=False` it is; see `Device` for the rest."""
    source = Mqtt(url, topics=f"{name}/#", session=name, version=version)
    tester = a_tester(source)
    with_session(tester)
    with Device(port, modern=version == "5") as device:
        if version == "5":
            device.publish(f"{name}/a", b"with an id", UserProperty=[("cues-id", "1")])
            run_until(tester, 1)
        device.publish(f"{name}/a", b"without")
    taken = len(tester.messages("ingress"))
    with pytest.raises(RecoveryError, match="do not distinguish redeliveries from new messages") as refused:
        run_until(tester, taken + 1)
    assert "packet_ids=False" in refused.value.remedy
    tester.stop()
    other = a_tester(replace(source, packet_ids=False))
    run_until(other, 1)
    other.stop()


@pytest.mark.bridge
def test_numbers_that_cannot_be_tried_out_are_named(
    mosquitto_servers: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    """For want of the right to publish."""
    rights = tmp_path / "rights"
    rights.write_text("topic read t/#\nuser device\ntopic readwrite t/#\n", "utf-8")
    tmp_path.chmod(0o755)
    server = mosquitto_servers(settings={"acl_file": str(rights)})
    tester = a_tester(Mqtt(server.url(), topics="t/#", session="s1"))
    with_session(tester)
    with Device(server.port, user="device") as device, Lines() as log:
        device.publish_many("t/a", payloads(3))
        run_until(tester, 3)
        assert len(log.found("packet numbers are not checked.*publish and read cues-kafka/check/#")) == 1
    tester.stop()


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_that_a_full_queue_drops_are_counted(
    mosquitto_servers: Callable[..., Mosquitto], version: Any
) -> None:
    """Mosquitto keeps a thousand for a session that is away, unless it is told to keep all."""
    server = mosquitto_servers(settings={"max_queued_messages": "50"})
    tester = a_tester(Mqtt(server.url(), topics="t/#", session="s1", version=version))
    with_session(tester)
    tester.stop()
    with Device(server.port) as device, Lines() as log:
        device.publish_many("t/a", payloads(200))
        run_until(tester, 50)
        device.publish_many("t/a", payloads(1, 200))
        run_until(tester, 51)
        assert "count=150" in log.found("packet numbers are missing.*max_queued_messages")[0]
    tester.stop()


@pytest.mark.bridge
@pytest.mark.parametrize("successor", [False, True])
def test_session_that_the_broker_has_lost_is_named(
    mosquitto_servers: Callable[..., Mosquitto], successor: bool
) -> None:
    """Also by a process that never had it: the place says that messages were taken."""
    server = mosquitto_servers(settings={"persistence": "false"})
    tester = a_tester(Mqtt(server.url(), topics="t/#", session="s1"))
    with_session(tester)
    with Device(server.port) as device:
        device.publish_many("t/a", payloads(5))
    run_until(tester, 5)
    server.kill()
    server.start()
    if successor:
        tester.restart()
    with Lines() as log:
        end = time.monotonic() + 30
        while not log.found("the broker has lost the session"):
            assert time.monotonic() < end
            tester.run()
    assert log.found("messages that were published meanwhile, or were not acknowledged, may be missing")
    tester.stop()


@pytest.mark.bridge
def test_property_of_the_publisher_drops_what_a_publisher_repeats(mosquitto: MosquittoTopics) -> None:
    """Although the broker has two messages, whose packets have different numbers."""
    tester = a_tester(source_of(mosquitto))
    with_session(tester)
    with Device(mosquitto.server.port) as device:
        for n in (1, 2, 1, 3):
            device.publish(f"{mosquitto.name}/a", b"%d" % n, UserProperty=[("cues-id", f"id-{n}")])
    run_until(tester, 3)
    assert [one.value for one in tester.messages("ingress")] == [b"1", b"2", b"3"]
    tester.stop()


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
def test_retained_message_comes_once(mosquitto: MosquittoTopics, version: Any) -> None:
    """And not again at each connection."""
    with Device(mosquitto.server.port) as device:
        device.publish(f"{mosquitto.name}/a", b"kept", retain=True)
        tester = a_tester(source_of(mosquitto, version=version))
        run_until(tester, 1)
        for n in range(3):
            tester.restart()
            device.publish(f"{mosquitto.name}/b", b"%d" % n)
            run_until(tester, n + 2)
    assert [one.value for one in tester.messages("ingress")] == [b"kept", b"0", b"1", b"2"]
    tester.stop()


@pytest.mark.bridge
def test_two_feeds_of_one_session_name_each_other(mosquitto: MosquittoTopics) -> None:
    """They end each other's connections; the log says what to change, and they do not turn in circles."""
    with Lines() as log, start(fed(source_of(mosquitto)), Memory()), start(fed(source_of(mosquitto)), Memory()):
        log.awaited("another client may have the same one")
        log.awaited(r"source does not answer.*again_in_s=(0\.8|[1-9])")
        assert len(log.found("source does not answer")) < 60  # each pause is twice the one before


@pytest.mark.bridge
def test_parts_have_sessions_of_their_own(mosquitto: MosquittoTopics) -> None:
    """Each message comes from one of them."""
    name = mosquitto.name
    source = source_of(mosquitto, topics=[[f"{name}/a/#"], [f"{name}/b/#"]])
    graph = fed(source, defaults=Topic(value=Raw(), partitions=2))
    with start(graph, Memory()) as running:
        running.wait_idle(timeout_s=30)
        with Device(mosquitto.server.port) as device:
            device.publish_many(f"{name}/a/1", payloads(20))
            device.publish_many(f"{name}/b/1", payloads(20, 20))
        until(lambda: len(running.messages("ingress")) >= 40)
        assert sorted(int(one.value) for one in running.messages("ingress")) == list(range(40))


@pytest.mark.bridge
@pytest.mark.parametrize(
    ("settings", "address", "said"),
    [
        ({"allow_anonymous": "false"}, "mqtt://127.0.0.1", "Not authorized"),
        ({"allow_anonymous": "false"}, "mqtt://planter:s3cret@127.0.0.1", "Not authorized"),
    ],
)
def test_refused_login_stops_the_task_with_the_remedy(
    mosquitto_servers: Callable[..., Mosquitto], settings: dict[str, str], address: str, said: str
) -> None:
    """And shows no password."""
    server = mosquitto_servers(settings={"max_inflight_messages": "20"})
    server.kill()
    server.settings.update(settings)
    server.start()
    source = Mqtt(f"{address}:{server.port}", topics="t/#", session="s1")
    running = start(fed(source), Memory(), timeout_s=None)
    try:
        with pytest.raises(Exception, match=said) as stopped:
            running.wait_idle(timeout_s=20)
        assert "s3cret" not in str(stopped.value)
    finally:
        running.stop()


@pytest.mark.bridge
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("broker", ["lives", "dies"])
def test_nothing_is_lost_on_the_way_out(mosquitto: MosquittoTopics, moment: Any, broker: str, version: Any) -> None:
    """What a crash repeats is what the batch had; with MQTT 5 it has the same id."""
    name = mosquitto.name
    graph = Graph(
        "g",
        Source("alerts"),
        Sink("alarms", inputs="alerts", into=Mqtt(mosquitto.url, version=version).topic(f"{name}/a")),
        defaults=Topic(value=Raw(), partitions=1),
    )
    listener = f"{name}-listener"
    with Device(mosquitto.server.port, listener, modern=False) as device:
        device.listen(f"{name}/#")
    tester = Tester(graph)
    for payload in payloads(20):
        tester.send("alerts", payload)
    tester.run(crash=Crash(moment, "Commit", 3))
    if broker == "dies":
        kill_saved(mosquitto)
    tester.run()
    with Device(mosquitto.server.port, listener, modern=False) as device:
        got = [bytes(one.payload) for one in device.hears(20 if moment == "after" else 40)]
    assert got == payloads(20) * (1 if moment == "after" else 2)
    assert verify(tester.graph, tester.broker).ok


@pytest.mark.bridge
def test_sink_waits_for_a_broker_that_is_away(mosquitto_servers: Callable[..., Mosquitto]) -> None:
    """Nothing is committed before; then it goes on by itself."""
    server = mosquitto_servers()
    graph = Graph(
        "g",
        Source("alerts"),
        Sink("alarms", inputs="alerts", into=Mqtt(server.url()).topic("a")),
        defaults=Topic(value=Raw(), partitions=1),
    )
    with Device(server.port, "listener", modern=False) as device:
        device.listen("a")
        device.wait_until_saved("a")  # its session
    server.kill()
    with Lines() as log, start(graph, Memory()) as running:
        running.send("alerts", b"1")
        log.awaited("the MQTT broker: ConnectionRefusedError")
        server.start()
        running.wait_idle(timeout_s=60)
    with Device(server.port, "listener", modern=False) as device:
        assert device.hears(1)[0].payload == b"1"


class Lines(logging.Handler):
    """The log lines of the library, which a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        logging.getLogger("cues_kafka").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("cues_kafka").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        with self._news:
            self._lines.append(record.getMessage())
            self._news.notify_all()

    def found(self, pattern: str) -> list[str]:
        """The lines that hold it."""
        return [one for one in self._lines if re.search(pattern, one)]

    def awaited(self, pattern: str, wait_s: float = 60.0) -> None:
        """Wait until a line holds it."""
        with self._news:
            assert self._news.wait_for(lambda: self.found(pattern), wait_s), self._lines[-20:]
