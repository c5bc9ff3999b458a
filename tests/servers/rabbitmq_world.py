"""A shop for tests: publishes to a RabbitMQ, and listens to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pika
from pika.exceptions import ConnectionClosedByBroker

from cues_kafka import RabbitMq
from cues_kafka.bridges.rabbitmq.stream_target import RabbitMqStreamOut
from tests.servers.bridge_world import WAIT_S
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.rabbitmq import RabbitMq as Server

QUIET_S = 0.2
NOT_IMPLEMENTED = 540
"""The code with which RabbitMQ refuses what a queue of this type cannot do."""


class Shop:
    """A client of another program, which publishes and reads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.reopen()

    def reopen(self) -> None:
        """Connect again."""
        self._connection = pika.BlockingConnection(pika.URLParameters(self._server.url()))
        self.channel = self._connection.channel()
        self.channel.confirm_delivery()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._connection.is_open:
            self._connection.close()

    def declare(self, queue: str, kind: str = "quorum", **arguments: Any) -> None:
        """Declare a queue or a stream, and wait until it would be found again after SIGKILL."""
        self.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind, **arguments})
        self._server.until_kept(queue, kind=kind)

    def publish(self, queue: str, body: bytes, *, exchange: str = "", **properties: Any) -> None:
        """Publish, and wait until the broker has it."""
        made = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish(exchange, queue, body, made, mandatory=True)

    def publish_many(self, queue: str, bodies: Sequence[bytes], *, ids: bool = True) -> None:
        """Publish different messages, each with an id if there are any."""
        for body in bodies:
            self.publish(queue, body, **({"message_id": f"id-{body.decode()}"} if ids else {}))

    def read_nothing(self, stream: str) -> None:
        """Begin to read behind a stream's end, and stop at once."""
        self.channel.basic_qos(prefetch_count=1)
        tag = self.channel.basic_consume(stream, lambda *_: None, arguments={"x-stream-offset": "next"})
        self.channel.basic_cancel(tag)

    def takes(self, queue: str, count: int, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, bytes]]:
        """Wait for this number of messages, and give their properties and bodies; none is left behind them."""
        found: list[tuple[Any, bytes]] = []
        self.channel.basic_qos(prefetch_count=1_000)
        for delivered, properties, body in self.channel.consume(
            queue, arguments=arguments, inactivity_timeout=WAIT_S if len(found) < count else 0.2
        ):
            if delivered is None:
                break
            self.channel.basic_ack(delivered.delivery_tag)
            found.append((properties, body))
            if len(found) == count:
                break
        self.channel.cancel()
        assert len(found) == count, found
        return found

    def read(self, stream: str) -> Iterator[tuple[Any, bytes]]:
        """The messages of a stream from the first one on, until no more come for a while."""
        self.channel.basic_qos(prefetch_count=1_000)
        arguments = {"x-stream-offset": "first"}
        for delivered, properties, body in self.channel.consume(
            stream, arguments=arguments, inactivity_timeout=QUIET_S
        ):
            if delivered is None:
                return
            self.channel.basic_ack(delivered.delivery_tag)
            yield properties, body

    def consumers(self, queue: str) -> int:
        """How many clients read a queue."""
        found: int = self.channel.queue_declare(queue, passive=True).method.consumer_count
        return found

    def left(self, queue: str) -> int:
        """Messages of a queue without a consumer: those that were not acknowledged."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


def new_stream(rabbitmq: RabbitMqQueues) -> str:
    """A stream of this test, which is declared."""
    name = f"{rabbitmq.name}-stream"
    with Shop(rabbitmq.server) as shop:
        shop.declare(name, "stream")
    return name


def read_all(rabbitmq: RabbitMqQueues, stream: str) -> list[tuple[Any, bytes]]:
    """All messages of a stream, as another program reads them by AMQP 0-9-1."""
    until_s = time.monotonic() + WAIT_S
    while True:
        with Shop(rabbitmq.server) as shop:
            found = list(shop.read(stream))
            try:
                shop.channel.cancel()
            except ConnectionClosedByBroker as error:  # a message came meanwhile, and cannot be given back to a stream
                if error.reply_code != NOT_IMPLEMENTED or time.monotonic() > until_s:
                    raise
            else:
                return found


def bodies_of(rabbitmq: RabbitMqQueues, stream: str) -> list[bytes]:
    """What a stream has."""
    return [body for _, body in read_all(rabbitmq, stream)]


def out(rabbitmq: RabbitMqQueues, stream: str, **given: Any) -> RabbitMqStreamOut:
    """A stream as a target, with short times."""
    broker = RabbitMq(rabbitmq.url, timeout_s=given.pop("timeout_s", 5.0))
    return broker.to_stream(stream, **{"port": rabbitmq.server.stream_port, "logs": rabbitmq.name, **given})
