"""One queue, stream or topic of any broker that a bridge writes to: the target, and all that has come there."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from cues_kafka import Amqp, Graph, Mqtt, Processor, RabbitMq, Raw, Source, Stomp, Topic
from tests.servers.amqp_world import AmqpShop, amqp_url
from tests.servers.jms_world import JmsClient
from tests.servers.losing import (
    COMMIT_BY_STOMP,
    DISCHARGE_BY_AMQP,
    PUBLISH_TO_EXCHANGE,
    PUBLISH_TO_STREAM,
    Asked,
)
from tests.servers.mqtt_world import Device
from tests.servers.other_broker import BY_AMQP, LAST
from tests.servers.rabbitmq_world import Shop, bodies_of

ONCE = ["activemq", "artemis", "rabbitmq-stream", *BY_AMQP]
"""Brokers, and their second protocol, that get each message once."""

REPEATED = ["mosquitto", "rabbitmq"]
"""Those that get a message again after a crash, under the same id."""

TIMES: dict[str, Any] = {"heart_beat_s": 0.5, "timeout_s": 5.0}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """
    A name of one test in a broker that is written to.

    Attributes:
        kind: one of `ONCE` and `REPEATED`.
        name: of the queue, the stream or the topic.
        port: where the broker listens for the protocol.
        found: what the fixture of the broker gives.
        hears: waits for a number of messages, and gives what a subscriber of MQTT has heard.
    """

    kind: str
    name: str
    port: int
    found: Any
    hears: Callable[[int], list[Any]]

    def target(self, port: int = 0, **given: Any) -> Any:
        """The target, also by way of something on another port. `given` is for the destination."""
        port, url = port or self.port, self.found.url
        match self.kind:
            case "mosquitto":
                return Mqtt(f"mqtt://127.0.0.1:{port}", timeout_s=5.0).topic(self.name, **given)
            case "rabbitmq":
                return RabbitMq(url.replace(f":{self.port}/", f":{port}/"), timeout_s=5.0).exchange("", self.name)
            case "rabbitmq-stream":
                return RabbitMq(url, timeout_s=5.0).to_stream(self.name, port=port, **{"logs": self.name, **given})
            case "artemis-amqp":
                return Amqp(f"amqp://127.0.0.1:{port}", timeout_s=5.0).to_queue(self.name, **given)
        return Stomp(f"stomp://127.0.0.1:{port}", **TIMES).to_queue(self.name, **given)

    @property
    def decides(self) -> Asked:
        """The request whose answer says that messages are there."""
        return {
            "mosquitto": Asked(self.name.encode(), b"\x40\x02"),  # PUBLISH and PUBACK
            "rabbitmq": PUBLISH_TO_EXCHANGE,
            "rabbitmq-stream": PUBLISH_TO_STREAM,
            "artemis-amqp": DISCHARGE_BY_AMQP,
        }.get(self.kind, COMMIT_BY_STOMP)

    def came(self, count: int) -> list[tuple[str, bytes]]:
        """
        All that has come, each with its id; empty: it has none. Of a queue it is taken for good.

        Args:
            count: how many there are at least.
        """
        match self.kind:
            case "mosquitto":
                return [(dict(one.properties.UserProperty)["cues-id"], bytes(one.payload)) for one in self.hears(count)]
            case "rabbitmq":
                with Shop(self.found.server) as shop:
                    return [(one.message_id, body) for one, body in shop.takes(self.name, shop.left(self.name))]
            case "rabbitmq-stream":
                return [("", body) for body in bodies_of(self.found, self.name)]
            case "artemis-amqp":
                with AmqpShop(amqp_url(self.found)) as reader:
                    bodies = [one.body for one in reader.takes(self.name, count, quiet_s=0.3)]
                return [("", body if isinstance(body, bytes) else body.encode()) for body in bodies]
        with JmsClient(self.found.url) as shop:
            shop.send(self.name, LAST)
            found = shop.takes(self.name, count + 1)
            while found[-1] != LAST:
                found += [shop.got.get(timeout=30).body]
        return [("", body) for body in found[:-1]]


def outgoing(request: pytest.FixtureRequest, opened: ExitStack) -> Outgoing:
    """What the parameter of a fixture names, made ready."""
    kind = str(request.param)
    found = request.getfixturevalue(kind.partition("-")[0])
    server, name, hears = found.server, found.name, lambda _: list[Any]()
    port = {"rabbitmq-stream": "stream_port", "artemis-amqp": "amqp_port"}.get(kind, "port")
    if kind == "mosquitto":
        name = f"{found.name}/a"
        device = opened.enter_context(Device(server.port))
        device.listen(name)
        hears = device.hears
    if kind.startswith("rabbitmq"):
        with Shop(server) as shop:
            shop.declare(name, "stream" if kind == "rabbitmq-stream" else "quorum")
    return Outgoing(kind, name, getattr(server, port), found, hears)


def telling(into: Any, graph: str, *, name: str = "tell", topics: str = "") -> Graph:
    """
    A function that never says the same twice: to a target, and as its output.

    Args:
        into: the target.
        graph: name of the graph.
        name: of the processor.
        topics: what the names of its topics begin with.
    """

    def tell(number: bytes, step: Any, out: Any) -> bytes:
        said = number + b"-" + secrets.token_hex(4).encode()
        if hasattr(out, "send"):
            out.send(said)
        elif into.kind == "published":
            out.publish(said, step)
        else:
            out.publish(said)
        return said

    told = Processor(tell, name=name, inputs=f"{topics}numbers", outputs=f"{topics}told", effects={"out": into})
    return Graph(graph, Source(f"{topics}numbers"), told, defaults=Topic(value=Raw(), partitions=1))
