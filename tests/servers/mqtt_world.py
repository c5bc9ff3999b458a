"""A plant of sensors for tests: publishes to a mosquitto, and listens to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WAIT_S = 30.0


class Device:
    """A client of another program, which publishes and listens."""

    def __init__(self, port: int, session: str = "", *, modern: bool = True, user: str | None = None) -> None:
        self.got: list[MQTTMessage] = []
        self._news = threading.Condition()
        self._granted = threading.Event()
        self._connected = threading.Event()
        more: dict[str, Any] = {} if modern else {"clean_session": not session}
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=session,
            protocol=MQTTProtocolVersion.MQTTv5 if modern else MQTTProtocolVersion.MQTTv311,
            **more,
        )
        self.client.username_pw_set(user)
        self.client.on_message = self._hear
        self.client.on_connect = lambda *_: self._connected.set()
        self.client.on_subscribe = lambda *_: self._granted.set()
        connect: dict[str, Any] = {"clean_start": not session} if modern else {}
        self.client.connect("127.0.0.1", port, **connect)
        self.client.loop_start()
        assert self._connected.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _hear(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        with self._news:
            self.got.append(message)
            self._news.notify_all()

    def listen(self, topic: str) -> None:
        """Subscribe, and wait until it is granted."""
        self._granted.clear()
        self.client.subscribe(topic, qos=1)
        assert self._granted.wait(WAIT_S)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, **properties: Any) -> None:
        """Publish, and wait until the broker has it."""
        made = None
        if properties:
            made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            for name, value in properties.items():
                setattr(made, name, value)
        self.client.publish(topic, payload, qos=qos, retain=retain, properties=made).wait_for_publish(WAIT_S)

    def publish_many(self, topic: str, payloads: Sequence[bytes]) -> None:
        """Publish, and wait until the broker has all of them."""
        infos = [self.client.publish(topic, payload, qos=1) for payload in payloads]
        for info in infos:
            info.wait_for_publish(WAIT_S)

    def wait_until_saved(self, topic: str) -> None:
        """
        Wait until a mosquitto that saves each change has saved what was published, and this session.

        It confirms a message, goes on to others that have come, and then saves all. So what it has confirmed is saved
        as soon as it answers a client that asked behind the confirmation.
        """
        self.listen(f"{topic}/nothing")

    def hears(self, count: int) -> list[MQTTMessage]:
        """Wait for a count of messages."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.got) >= count, WAIT_S), len(self.got)
            return list(self.got)
