"""One queue or session of any broker that a bridge reads: its source, what is sent there, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from cues_kafka import Amqp, Mqtt, RabbitMq, Stomp
from tests.servers.amqp_world import HAS_PROTON, AmqpShop, amqp_url
from tests.servers.bridge_world import until
from tests.servers.jms_world import JmsClient
from tests.servers.mqtt_world import Device
from tests.servers.rabbitmq_world import Shop

BY_AMQP = ["artemis-amqp"] if HAS_PROTON else []
QUEUES = ["mosquitto", "activemq", "artemis", "rabbitmq", *BY_AMQP]
"""What is read behind a ledger: brokers, and their second protocol."""

LAST = b"last"


@dataclass(frozen=True, slots=True)
class OtherBroker:
    """
    A broker, and the name of one test in it.

    Attributes:
        name: no queue and no session begins with it.
        url: the address of the protocol by which it is read.
        server: the broker.
    """

    name: str
    url: str
    server: Any

    @property
    def port(self) -> int:
        """Where it listens for that protocol."""
        return urlsplit(self.url).port or 0

    def through(self, port: int) -> str:
        """The address by way of something on another port."""
        return self.url.replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{port}")

    def source(self, url: str = "", **settings: Any) -> Any:
        """What a feed reads; the queue or the session has the name of the test."""
        url, settings = url or self.url, {"prefetch": 20, **settings}
        match url.partition(":")[0], self.server.kind:
            case "mqtt", _:
                return Mqtt(url, topics=f"{self.name}/#", session=self.name, **settings)
            case "stomp", _:
                return Stomp(url, queue=self.name, **settings)
            case _, "rabbitmq":
                return RabbitMq(url).queue(self.name, **settings)
        return Amqp(url).queue(self.name, **settings)

    def declare(self) -> None:
        """Have the queue where a feed does not make it. A session of MQTT begins when the feed first connects."""
        if self.server.kind == "rabbitmq":
            with Shop(self.server) as shop:
                shop.declare(self.name, "classic")

    def send(self, *bodies: bytes) -> None:
        """Send, and wait until the broker has it."""
        match self.url.partition(":")[0], self.server.kind:
            case "mqtt", _:
                with Device(self.port) as device:
                    device.publish_many(f"{self.name}/a", bodies)
            case "stomp", _:
                with JmsClient(self.url) as shop:
                    shop.send(self.name, *bodies)
            case _, "rabbitmq":
                with Shop(self.server) as rabbit:
                    rabbit.publish_many(self.name, bodies)
            case _:
                with AmqpShop(self.url) as writer:
                    writer.send(self.name, *bodies)

    def left(self) -> list[bytes]:
        """Take what the broker still has up to `LAST`, which is sent now."""
        match self.url.partition(":")[0], self.server.kind:
            case "mqtt", _:
                with Device(self.port, self.name) as device:
                    device.publish(f"{self.name}/a", LAST)
                    return [bytes(one.payload) for one in device.hears(1)]
            case "stomp", _:
                with JmsClient(self.url) as shop:
                    shop.send(self.name, LAST)
                    return shop.takes(self.name, 1)
            case _, "rabbitmq":
                with Shop(self.server) as rabbit:
                    until(lambda: not rabbit.consumers(self.name))  # what it holds comes back then
                    rabbit.publish(self.name, LAST)
                    return [body for _, body in rabbit.takes(self.name, rabbit.left(self.name))]
        with AmqpShop(self.url) as reader:
            reader.send(self.name, LAST)
            return [bytes(one.body) for one in reader.takes(self.name, 1)]


def other_broker(request: pytest.FixtureRequest, kind: str) -> OtherBroker:
    """A name of this test in a broker of `QUEUES`."""
    broker, _, protocol = kind.partition("-")
    found = request.getfixturevalue(broker)
    made = OtherBroker(found.name, amqp_url(found) if protocol else found.url, found.server)
    made.declare()
    return made
