"""Publishes messages to an MQTT broker with QoS 1, for the tasks of one processor in one process."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paho.mqtt.packettypes import PacketTypes

from cues_kafka.bridges.mqtt.client import ID_PROPERTY, Login, MqttConnection, properties_of
from cues_kafka.bridges.mqtt.filters import TOPICS, wrong_published
from cues_kafka.bridges.published import Template, payload_of, received_by
from cues_kafka.errors import OutputError, RetriableError

WINDOW: Final = 1_000
"""Messages under way at most, where the broker does not ask for fewer (Receive Maximum)."""

LARGEST_BYTES: Final = 2**28 - 1
"""The largest packet that MQTT has (MQTT 5, 1.5.5), without its first bytes."""

OVERHEAD_BYTES: Final = 512
"""What a packet has besides payload, topic and properties that are known, at most: our id and the lengths."""


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """What is published: a payload under a topic, with user properties."""

    topic: str
    payload: bytes
    properties: tuple[tuple[str, str], ...]


class MqttTarget(Protocol):
    """What a publisher needs to know: attributes of `MqttTopic`."""

    @property
    def name(self) -> str: ...
    @property
    def retain(self) -> bool: ...
    @property
    def expiry_s(self) -> int | None: ...
    @property
    def content_type(self) -> str: ...
    @property
    def headers(self) -> tuple[str, ...]: ...
    @property
    def max_bytes(self) -> int | None: ...


class MqttPublisher:
    """See `Publisher`. Its session ends with the connection: what was not acknowledged is published again."""

    def __init__(self, declared: MqttTarget, login: Login, name: str) -> None:
        """
        Args:
            declared: the topic.
            login: where the broker is.
            name: what its client ids begin with.
        """
        self._declared, self._login, self._name = declared, login, name
        self._template = Template(declared.name, TOPICS)
        self._turn = threading.Lock()  # tasks share the connection, one batch at a time
        self._connection: MqttConnection | None = None
        self._most_bytes: int | None = declared.max_bytes
        self._window = WINDOW
        self._news = threading.Condition()
        self._under_way: set[int] = set()
        self._early: set[int] = set()  # acknowledged before `publish` of the client has said its number
        self._refused = ""

    def prepare(self, value: Any, step: Any, given: Mapping[str, Any]) -> MqttMessage:
        """See `Publisher`; a function may give `topic=`, which takes the place of the declared one."""
        received = received_by(step)
        topic = self._template.chosen(given, "topic", value, received)
        payload = payload_of(value, received)
        properties = self._properties(received)
        most = self._most_bytes
        size = len(payload) + len(topic.encode()) + sum(len(a.encode()) + len(b.encode()) for a, b in properties)
        size += OVERHEAD_BYTES
        limited = size if self._declared.max_bytes is None else len(payload)
        if size > LARGEST_BYTES or (most is not None and limited > most):
            allowed = LARGEST_BYTES if most is None else min(most, LARGEST_BYTES)
            raise OutputError(
                f"the payload for the MQTT topic {topic!r:.80} has {len(payload):,} bytes, and {allowed:,} are "
                "allowed. Raise max_bytes= and the broker's limit, or send less"
            )
        return MqttMessage(topic, payload, properties)

    def _properties(self, received: Any) -> tuple[tuple[str, str], ...]:
        found = []
        for name, value in received.headers if received is not None and self._declared.headers else ():
            if name in self._declared.headers and value is not None:
                with suppress(UnicodeDecodeError):  # a property is text; other bytes stay in Kafka
                    text = value.decode()
                    if not wrong_published(text):
                        found.append((name, text))
        return tuple(found)

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        with self._turn:
            connection = self._connected()
            try:
                for name, message in messages:
                    self._send(connection, name, message)
                self._wait(connection, 0)
            except BaseException:
                self._disconnect()
                raise

    def close(self) -> None:
        with self._turn:
            self._disconnect()

    def _connected(self) -> MqttConnection:
        """The connection, or a new one: nothing is under way now."""
        if self._connection is not None:
            try:
                self._connection.check()
            except OSError:
                self._disconnect()
        if self._connection is None:
            connection = MqttConnection(
                *(self._login, f"{self._name}-{secrets.token_hex(6)}"),
                clean=True,
                on_published=self._published,
                on_lost=self._lost,
            )
            try:
                self._look_at(connection.granted)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _look_at(self, granted: Mapping[str, Any]) -> None:
        """Keep what the broker allows."""
        self._window = min(WINDOW, granted.get("ReceiveMaximum", WINDOW))
        if self._declared.max_bytes is None:
            self._most_bytes = granted.get("MaximumPacketSize")
        if granted.get("MaximumQoS", 2) == 0:
            raise RetriableError(
                "the MQTT broker takes messages with QoS 0 only, of which some may be lost",
                remedy="allow QoS 1 at the broker",
            )
        if self._declared.retain and granted.get("RetainAvailable", 1) == 0:
            raise RetriableError(
                "the MQTT broker does not retain messages", remedy="allow it at the broker, or leave retain= out"
            )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        with self._news:
            self._under_way.clear()
            self._early.clear()
            self._refused = ""

    def _send(self, connection: MqttConnection, name: str, message: MqttMessage) -> None:
        self._wait(connection, self._window - 1)
        properties = None
        if self._login.modern:
            wishes: dict[str, Any] = {"UserProperty": [*message.properties, (ID_PROPERTY, name)]}
            if self._declared.expiry_s is not None:
                wishes["MessageExpiryInterval"] = self._declared.expiry_s
            if self._declared.content_type:
                wishes["ContentType"] = self._declared.content_type
            properties = properties_of(PacketTypes.PUBLISH, wishes)
        number = connection.publish(message.topic, message.payload, retain=self._declared.retain, properties=properties)
        with self._news:
            if number in self._early:
                self._early.remove(number)
            else:
                self._under_way.add(number)

    def _wait(self, connection: MqttConnection, most: int) -> None:
        """
        Wait until at most `most` messages are under way.

        Raises:
            OSError: the connection is lost.
            RetriableError: the broker refuses a message, or does not answer.
        """
        timeout_s = self._login.timeout_s
        with self._news:
            while len(self._under_way) > most and not self._refused:
                before = len(self._under_way)
                connection.check()
                if not self._news.wait(timeout_s) and len(self._under_way) == before:
                    connection.check()
                    raise RetriableError(f"the MQTT broker has not acknowledged {before} messages for {timeout_s:g} s")
            if self._refused:
                raise RetriableError(
                    f"the MQTT broker refuses a message: {self._refused}",
                    remedy="let this user publish to the topic, or raise the broker's limits",
                )

    def _published(self, number: int, reason: Any) -> None:
        with self._news:
            if reason.is_failure:
                self._refused = self._refused or str(reason)
            if number in self._under_way:
                self._under_way.remove(number)
            else:
                self._early.add(number)
            self._news.notify_all()

    def _lost(self) -> None:
        with self._news:
            self._news.notify_all()
