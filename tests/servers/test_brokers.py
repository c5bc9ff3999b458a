"""The other brokers of the tests: what they confirmed outlives SIGKILL, and they listen on 127.0.0.1 alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pika
import psutil
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.fault.support import until
from tests.servers import activemq as activemq_module
from tests.servers import artemis as artemis_module
from tests.servers import mosquitto as mosquitto_module
from tests.servers import rabbitmq as rabbitmq_module
from tests.servers.activemq import ActiveMq
from tests.servers.artemis import Artemis
from tests.servers.fixtures import JmsQueues, MosquittoTopics, RabbitMqQueues
from tests.servers.mosquitto import Mosquitto
from tests.servers.rabbitmq import RabbitMq
from tests.servers.server import Server

WAIT_S = 20.0


def test_mosquitto_keeps_a_session_and_what_is_queued_in_it_over_sigkill(mosquitto: MosquittoTopics) -> None:
    topic = f"{mosquitto.name}/t"
    with_session(mosquitto, on_ready=lambda client: client.subscribe(topic, qos=1))
    with_session(mosquitto, on_ready=lambda client: client.publish(topic, b"kept", qos=1), session="sender")

    mosquitto.server.kill()
    mosquitto.server.start()

    got: list[bytes] = []
    client, there = listener(mosquitto), threading.Event()

    def on_message(_client: Client, _data: object, message: MQTTMessage) -> None:
        got.append(bytes(message.payload))
        there.set()

    client.on_message = on_message
    client.connect("127.0.0.1", mosquitto.server.port)
    client.loop_start()
    assert there.wait(WAIT_S)
    client.disconnect()
    client.loop_stop()
    assert got == [b"kept"]


def test_mosquitto_of_one_test_has_its_own_settings_and_listens_on_loopback(
    mosquitto_servers: Callable[..., Mosquitto],
) -> None:
    server = mosquitto_servers(settings={"max_inflight_messages": "7"})

    assert "max_inflight_messages 7" in (server.directory / "mosquitto.conf").read_text("utf-8")
    assert listening(server) == {("127.0.0.1", server.port)}


@pytest.mark.bridge
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [Mosquitto, RabbitMq, ActiveMq, Artemis])
def test_brokers_run_from_packages_that_are_unpacked(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an empty cache, as on a machine that has never had one."""
    monkeypatch.setenv("CUES_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mosquitto_module, "_files", mosquitto_module.unpacked_files)
    monkeypatch.setattr(rabbitmq_module, "_files", rabbitmq_module.unpacked_files)
    monkeypatch.setattr(activemq_module, "class_path", activemq_module.unpacked_class_path)
    artemis_module.artemis_jars.cache_clear()

    try:
        with make(place=tmp_path) as server:
            server.try_it()
    finally:
        artemis_module.artemis_jars.cache_clear()


@pytest.mark.bridge
@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_rabbitmq_keeps_what_it_has_confirmed_over_sigkill(rabbitmq: RabbitMqQueues, kind: str) -> None:
    queue = f"{rabbitmq.name}-{kind}"
    channel = pika.BlockingConnection(pika.URLParameters(rabbitmq.url)).channel()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"kept", pika.BasicProperties(delivery_mode=2), mandatory=True)

    rabbitmq.server.until_kept(queue, kind=kind)
    rabbitmq.server.kill()
    rabbitmq.server.start()

    assert first_of(rabbitmq, queue, {"x-stream-offset": "first"} if kind == "stream" else {}) == b"kept"


def test_a_queue_of_rabbitmq_is_declared_when_the_decision_is_in_the_log(tmp_path: Path) -> None:
    """Bytes of a log as RabbitMQ 3.10.8 writes it; a queue without the decision is gone behind a kill."""
    begun = b"h\x05d\0\x08decisionh\x03d\0\x03tid%bd\0\x0dpresume_abortl m\0\0\0\x06%b"
    decided = b"h\x05d\0\x08decisionh\x03d\0\x03tid%bd\0\x09committedjj"
    log = tmp_path / "LATEST.LOG"

    log.write_bytes(begun % (b"a\x01Xpid", b"first") + decided % b"a\x01Xpid" + begun % (b"a\x02Xpid", b"second"))
    assert rabbitmq_module.declared(tmp_path, b"first")
    assert not rabbitmq_module.declared(tmp_path, b"second")

    log.rename(tmp_path / "PREVIOUS.LOG")
    log.write_bytes(decided % b"a\x02Xpid")
    assert rabbitmq_module.declared(tmp_path, b"second")

    (tmp_path / "rabbit_durable_queue.DCD").write_bytes(b"third")
    assert rabbitmq_module.declared(tmp_path, b"third")


@pytest.mark.bridge
@pytest.mark.parametrize("broker", ["activemq", "artemis"])
def test_jms_brokers_keep_what_they_have_confirmed_over_sigkill(broker: str, request: pytest.FixtureRequest) -> None:
    jms: JmsQueues = request.getfixturevalue(broker)
    assert {host for host, _ in listening(jms.server)} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    send = ["SEND", f"destination:/queue/{jms.name}", "persistent:true", "receipt:1", "destination-type:ANYCAST"]
    assert stomp(jms, send, b"kept").startswith(b"RECEIPT")

    jms.server.kill()
    jms.server.start()

    subscribe = ["SUBSCRIBE", f"destination:/queue/{jms.name}", "id:1", "ack:auto", "subscription-type:ANYCAST"]
    answer = stomp(jms, subscribe)
    assert answer.startswith(b"MESSAGE")
    assert answer.partition(b"\n\n")[2].rstrip(b"\0\n") == b"kept"


def stomp(jms: JmsQueues, lines: list[str], body: bytes = b"") -> bytes:
    """Connect, send one frame, and give the next one."""
    with (
        socket.create_connection(("127.0.0.1", jms.server.port), WAIT_S) as connection,
        connection.makefile("rb") as got,
    ):
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:tests\n\n\0")
        assert frame(got).startswith(b"CONNECTED")
        connection.sendall("\n".join([*lines, "", ""]).encode() + body + b"\0")
        return frame(got)


def frame(got: IO[bytes]) -> bytes:
    """One frame."""
    found = bytearray()
    while (byte := got.read(1)) not in (b"\0", b""):
        found += byte
    return bytes(found).lstrip(b"\n")


@pytest.mark.bridge
def test_rabbitmq_listens_on_loopback_and_leaves_no_process(rabbitmq_servers: Callable[..., RabbitMq]) -> None:
    """Erlang's register of ports is one of its processes, and outlives it where RabbitMQ starts it."""
    server = rabbitmq_servers(plugins=["rabbitmq_stream", "rabbitmq_stomp", "rabbitmq_mqtt", "rabbitmq_amqp1_0"])
    processes = psutil.Process(server.keeper_pid).children(recursive=True)

    assert {host for host, _ in listening(server)} <= {"127.0.0.1", "::1"}
    assert {port for _, port in listening(server)} == {server.port, *server.ports}
    assert "epmd" in {process.name() for process in processes}

    server.stop()
    assert [process for process in processes if process.is_running()] == []

    server.start()
    processes = psutil.Process(server.keeper_pid).children(recursive=True)
    (broker,) = (process for process in processes if process.name() == "beam.smp")
    broker.kill()
    assert psutil.wait_procs(processes, WAIT_S)[1] == []


def first_of(rabbitmq: RabbitMqQueues, queue: str, arguments: dict[str, str]) -> object:
    """The first message. RabbitMQ answers before its streams do, and says that they are down, or breaks off."""

    def first() -> Any:
        try:
            with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=1)
                return next(channel.consume(queue, arguments=arguments, inactivity_timeout=WAIT_S))[2]
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as error:
            if error.reply_code not in (404, 406, 541):
                raise
            return None

    return until(first, "the first message is there", WAIT_S)


def listening(server: Server) -> set[tuple[str, int]]:
    """The addresses that any process of a server listens on."""
    processes = psutil.Process(server.keeper_pid).children(recursive=True)
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def listener(mosquitto: MosquittoTopics, session: str = "session") -> Client:
    """A client with a session that the broker keeps."""
    return Client(CallbackAPIVersion.VERSION2, client_id=f"{mosquitto.name}-{session}", clean_session=False)


def with_session(mosquitto: MosquittoTopics, *, on_ready: Callable[[Client], object], session: str = "session") -> None:
    """Connect, do one thing, wait until the broker has confirmed it, and leave."""
    client, connected, confirmed = listener(mosquitto, session), threading.Event(), threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.on_subscribe = lambda *_: confirmed.set()
    client.on_publish = lambda *_: confirmed.set()
    client.connect("127.0.0.1", mosquitto.server.port)
    client.loop_start()
    assert connected.wait(WAIT_S)
    on_ready(client)
    assert confirmed.wait(WAIT_S)
    client.disconnect()
    client.loop_stop()
