"""The other brokers of the tests: what they confirmed outlives SIGKILL, and they listen on 127.0.0.1 alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.servers import mosquitto as mosquitto_module
from tests.servers.fixtures import MosquittoTopics
from tests.servers.mosquitto import Mosquitto
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
def test_mosquitto_runs_from_packages_that_are_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With an empty cache, as on a machine that has never had one."""
    monkeypatch.setenv("CUES_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mosquitto_module, "_files", mosquitto_module.unpacked_files)

    with Mosquitto(place=tmp_path) as server:
        server.try_it()


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
