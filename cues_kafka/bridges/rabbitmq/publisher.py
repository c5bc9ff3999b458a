"""Publishes messages to an exchange of RabbitMQ, for the tasks of one processor in one process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pika

from cues_kafka.bridges.published import Template, payload_of, received_by
from cues_kafka.bridges.rabbitmq.client import RabbitMqConnection, RabbitMqLogin
from cues_kafka.bridges.rabbitmq.routing import ROUTING_KEYS
from cues_kafka.bridges.rabbitmq.wire import PERSISTENT, contents, published
from cues_kafka.errors import OutputError, RetriableError


class ExchangeSettings(NamedTuple):
    """How messages are published; see `RabbitMq.exchange`."""

    exchange: str
    routing_key: str
    headers: tuple[str, ...]
    content_type: str
    expiry_s: int | None
    max_bytes: int | None


@dataclass(frozen=True, slots=True)
class RabbitMqMessage:
    """What is published: a body under a routing key, with headers."""

    routing_key: str
    body: bytes
    headers: Mapping[str, Any]


class RabbitMqPublisher:
    """
    See `Publisher`.

    A batch is published at once, and the broker confirms each message. What it does not confirm is published again,
    with the same ids.
    """

    def __init__(self, declared: ExchangeSettings, login: RabbitMqLogin, name: str) -> None:
        """
        Args:
            declared: how and where.
            login: where the broker is.
            name: what the broker's own tools name the connection.
        """
        self._declared, self._login, self._name = declared, login, name
        self._routing = Template(declared.routing_key, ROUTING_KEYS)
        self._turn = threading.Lock()  # tasks share the connection, one batch at a time
        self._connection: RabbitMqConnection | None = None
        self._news = threading.Condition()
        self._published = 0  # on this channel; the broker counts in the same way
        self._under_way: set[int] = set()
        self._below = 1  # all before are confirmed
        self._refused = ""

    def prepare(self, value: Any, step: Any, given: Mapping[str, Any]) -> RabbitMqMessage:
        """See `Publisher`; a function may give `routing_key=`, which takes the place of the declared one."""
        received = received_by(step)
        key = self._routing.chosen(given, "routing_key", value, received)
        body = payload_of(value, received)
        most = self._declared.max_bytes
        if most is not None and len(body) > most:
            raise OutputError(
                f"a message for RabbitMQ has {len(body):,} bytes, and {most:,} are allowed. Raise max_bytes= and the "
                "broker's max_message_size, or send less"
            )
        headers = {
            name: _readable(one)
            for name, one in (received.headers if received is not None and self._declared.headers else ())
            if name in self._declared.headers and one is not None
        }
        return RabbitMqMessage(key, body, headers)

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        with self._turn:
            try:
                connection = self._connected()
                self._send(connection, messages)
                self._wait(connection)
            except BaseException:
                self._disconnect()
                raise

    def close(self) -> None:
        with self._turn:
            self._disconnect()

    def _connected(self) -> RabbitMqConnection:
        """The connection, or a new one: nothing is under way now."""
        if self._connection is not None and self._connection.lost:
            self._disconnect()
        if self._connection is None:
            self._connection = connection = RabbitMqConnection(self._login, self._name, on_lost=self._tell)
            if self._declared.exchange:
                connection.ask("exchange_declare", exchange=self._declared.exchange, passive=True)
            connection.channel.add_on_return_callback(self._returned)
            connection.ask("confirm_delivery", ack_nack_callback=self._confirmed)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        with self._news:
            self._published, self._below = 0, 1
            self._under_way.clear()
            self._refused = ""

    def _send(self, connection: RabbitMqConnection, messages: Sequence[tuple[str, Any]]) -> None:
        declared = self._declared
        expires = None if declared.expiry_s is None else str(declared.expiry_s * 1_000)
        with self._news:
            first, self._published = self._published + 1, self._published + len(messages)
            self._under_way.update(range(first, self._published + 1))

        def send() -> None:
            with connection.together() as parts:
                for name, message in messages:
                    self._publish(connection.channel, name, message, expires, parts)

        connection.do(send)

    def _publish(
        self, channel: Any, name: str, message: RabbitMqMessage, expires: str | None, parts: list[bytes]
    ) -> None:
        declared, key = self._declared, message.routing_key
        rest = None
        if not message.headers and channel.is_open:
            number = channel.channel_number
            rest = contents(number, name, message.body, declared.content_type, expires)
        if rest is not None:
            parts += (published(number, declared.exchange, key), rest)
            return
        properties = pika.BasicProperties(
            message_id=name,
            delivery_mode=PERSISTENT,
            content_type=declared.content_type or None,
            expiration=expires,
            headers=dict(message.headers) or None,
        )
        channel.basic_publish(declared.exchange, key, message.body, properties, mandatory=True)

    def _wait(self, connection: RabbitMqConnection) -> None:
        """
        Wait until the broker has confirmed all.

        Raises:
            OSError, RetriableError: it did not.
            RecoveryError: it refuses.
        """
        timeout_s = self._login.timeout_s
        with self._news:
            while self._under_way and not self._refused:
                connection.check()
                before = len(self._under_way)
                if not self._news.wait(timeout_s) and len(self._under_way) == before:
                    connection.check()
                    why = "; it has asked publishers to wait, for want of memory or disk" if connection.blocked else ""
                    raise RetriableError(f"RabbitMQ has not confirmed {before} messages for {timeout_s:g} s{why}")
            if self._refused:
                raise RetriableError(f"RabbitMQ does not take a message: {self._refused}")

    # On the connection's thread

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        with self._news:
            up_to = method.delivery_tag
            if isinstance(method, pika.spec.Basic.Nack):
                self._refused = self._refused or "a queue refuses it, such as one that is full"
            if method.multiple:
                self._under_way.difference_update(range(self._below, up_to + 1))
                self._below = max(self._below, up_to + 1)
            else:
                self._under_way.discard(up_to)
            if self._refused or not self._under_way:
                self._news.notify_all()

    def _returned(self, _: Any, method: Any, __: Any, ___: bytes) -> None:
        with self._news:
            self._refused = self._refused or (
                f"no queue is bound to the exchange {self._declared.exchange!r} for the routing key "
                f"{method.routing_key!r:.200}. Bind one, or correct the routing key"
            )
            self._news.notify_all()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()


def _readable(value: bytes) -> str | bytes:
    """A header as text, where it is one."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
