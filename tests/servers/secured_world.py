"""One test's place in a secured broker: what its user may read and write, and what others send and take there."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from cues_kafka import Amqp, Mqtt, RabbitMq, Stomp
from tests.servers.amqp_world import AmqpShop
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.jms_world import JmsClient
from tests.servers.rabbitmq_world import Shop, bodies_of
from tests.servers.secured import (
    ADMIN,
    PASSWORD,
    USER,
    SecuredActiveMq,
    SecuredArtemis,
    SecuredMosquitto,
    SecuredRabbitMq,
)

WAIT_S = 60.0


class Secured(ABC):
    """
    A name of one test in a broker.

    Attributes:
        inward, outward: the rights that reading and writing need, in the order in which the broker asks for them, each
            with what the broker says where it is missing.
    """

    server: Any
    inward: list[tuple[tuple[str, str], str]]
    outward: list[tuple[tuple[str, str], str]]
    wrong_login: ClassVar[str]

    def __init__(self, server: Any, name: str) -> None:
        self.server, self.name = server, name

    def url(self, *, tls: bool = False, user: str = USER, password: str = PASSWORD, host: str = "127.0.0.1") -> str:
        """The address of the broker."""
        scheme, port = self.server.schemes[tls], self.server.tls_port if tls else self.server.port
        return f"{scheme}://{user}:{password}@{host}:{port}"

    def allow_all(self) -> None:
        """Give all rights that reading and writing need."""
        self.server.allow(*(right for right, _ in (*self.inward, *self.outward)))

    def revoke(self) -> None:
        """Take the right to write from the user, while a graph writes."""
        self.server.forget()

    @abstractmethod
    def source(self, url: str, **files: Any) -> Any:
        """What a feed reads."""

    @abstractmethod
    def target(self, url: str, **files: Any) -> Any:
        """What a sink writes to."""

    @abstractmethod
    def send(self, bodies: list[bytes]) -> None:
        """Send as another program."""

    @abstractmethod
    def taken(self, count: int) -> list[bytes]:
        """Take as another program what the sink has written."""

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Make what has to be there before."""

    def close(self) -> None:  # noqa: B027 - most keep nothing open
        """Leave."""


class OnMosquitto(Secured):
    """Topics."""

    wrong_login = "Not authorized"

    def __init__(self, server: SecuredMosquitto, name: str) -> None:
        super().__init__(server, name)
        self.inward = [(("subscribePattern", f"{name}/in/#"), r"refuses the filter .*Not authorized")]
        self.outward = [(("publishClientSend", f"{name}/out"), r"refuses a message: Not authorized")]
        self._got = queue.Queue[bytes]()
        granted = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"{name}-other")
        self._client.username_pw_set(ADMIN, PASSWORD)
        self._client.on_message = lambda _, __, message: self._got.put(bytes(message.payload))
        self._client.on_subscribe = lambda *_: granted.set()
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()
        self._client.subscribe(f"{name}/out", qos=1)
        assert granted.wait(WAIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def source(self, url: str, **files: Any) -> Mqtt:
        return Mqtt(url, topics=f"{self.name}/in/#", session=self.name, **files)

    def target(self, url: str, **files: Any) -> Any:
        return Mqtt(url, **files).topic(f"{self.name}/out")

    def send(self, bodies: list[bytes]) -> None:
        for info in [self._client.publish(f"{self.name}/in/a", body, qos=1) for body in bodies]:
            info.wait_for_publish(WAIT_S)

    def taken(self, count: int) -> list[bytes]:
        return [self._got.get(timeout=WAIT_S) for _ in range(count)]


class OnRabbitMq(Secured):
    """A queue that is read, and one that is written to through the default exchange."""

    wrong_login = "ACCESS_REFUSED"
    kind = "classic"

    def __init__(self, server: SecuredRabbitMq, name: str) -> None:
        super().__init__(server, name)
        self.inward = [(("read", f"^{name}"), r"ACCESS_REFUSED - (?:read )?access to queue")]
        self.outward = [(("write", r"^amq\.default$"), r"ACCESS_REFUSED - (?:write )?access to exchange")]

    def revoke(self) -> None:
        """An open channel keeps its rights."""
        self.server.stop()
        self.server.start()  # which knows a user without rights

    def prepare(self) -> None:
        with Shop(self.server) as shop:
            shop.declare(f"{self.name}-in", self.kind)
            shop.declare(f"{self.name}-out", self.kind)

    def source(self, url: str, **files: Any) -> Any:
        return RabbitMq(url, **files).queue(f"{self.name}-in")

    def target(self, url: str, **files: Any) -> Any:
        return RabbitMq(url, **files).exchange("", f"{self.name}-out")

    def send(self, bodies: list[bytes]) -> None:
        with Shop(self.server) as shop:
            for number, body in enumerate(bodies):
                shop.publish(f"{self.name}-in", body, message_id=f"id-{number}-{len(body)}")

    def taken(self, count: int) -> list[bytes]:
        with Shop(self.server) as shop:
            return [body for _, body in shop.takes(f"{self.name}-out", count)]


class OnRabbitMqStreams(OnRabbitMq):
    """A stream that is read by AMQP, and one that is written to by the stream protocol, with the log of its task."""

    wrong_login = "ACCESS_REFUSED|password is wrong"
    kind = "stream"

    def __init__(self, server: SecuredRabbitMq, name: str) -> None:
        super().__init__(server, name)
        log, missing = r"refuses the stream 'cues\.log\.", "the user has not the permission"
        self.outward = [
            (("configure", r"^cues\.log\."), f"{log}.*{missing}"),
            (("write", r"^cues\.log\."), f"{log}.*{missing}"),
            (("read", rf"^(cues\.log\.|{name})"), f"{log}.*{missing}"),
            (("write", rf"^(cues\.log\.|{name})"), rf"refuses the stream '{name}-out'.*{missing}"),
        ]

    def source(self, url: str, **files: Any) -> Any:
        return RabbitMq(url, **files).stream(f"{self.name}-in")

    def target(self, url: str, **files: Any) -> Any:
        port = self.server.stream_tls_port if url.startswith("amqps") else self.server.stream_port
        return RabbitMq(url, timeout_s=5.0, **files).to_stream(f"{self.name}-out", port=port)

    def taken(self, count: int) -> list[bytes]:
        found = bodies_of(RabbitMqQueues(self.name, "", self.server), f"{self.name}-out")
        assert len(found) == count, found
        return found


class OnStomp(Secured):
    """A queue that is read, and one that is written to."""

    wrong_login = "password is invalid"
    markers: str

    def source(self, url: str, **files: Any) -> Stomp:
        return Stomp(url, queue=f"{self.name}.in", **files)

    def target(self, url: str, **files: Any) -> Any:
        return Stomp(url, timeout_s=3.0, **files).to_queue(f"{self.name}.out", markers=self.markers)

    def send(self, bodies: list[bytes]) -> None:
        with self._other() as other:
            other.send(f"{self.name}.in", *bodies)

    def taken(self, count: int) -> list[bytes]:
        with self._other() as other:
            return other.takes(f"{self.name}.out", count)

    def _other(self) -> JmsClient:
        return JmsClient(f"stomp://{ADMIN}:{PASSWORD}@127.0.0.1:{self.server.port}")


class OnActiveMq(OnStomp):
    """Rights are those of queues whose names begin with that of the test."""

    def __init__(self, server: SecuredActiveMq, name: str) -> None:
        super().__init__(server, name)
        queues = f"{name}.>"
        self.markers = name
        self.inward = [
            (("read", queues), "not authorized to read from"),
            (("admin", queues), "not authorized to create"),
        ]
        self.outward = [*self.inward, (("write", queues), "not authorized to write to")]


class OnArtemis(OnStomp):
    """Rights hold for all queues."""

    def __init__(self, server: SecuredArtemis, name: str) -> None:
        super().__init__(server, name)
        rights = ("createAddress", "createDurableQueue", "consume", "send")
        said = ("CREATE_ADDRESS", "CREATE_DURABLE_QUEUE", "CONSUME", "SEND")
        each = [((right, ""), f"permission='{why}'") for right, why in zip(rights, said, strict=True)]
        each[3] = (each[3][0], "Error sending message to .*permission SEND")
        each[2] = (each[2][0], "Error creating subscription.*permission CONSUME")  # it says no more
        self.inward, self.outward = each[:3], each
        self.markers = f"cues.{name}"  # of which the broker gives each to one consumer

    def revoke(self) -> None:
        """A marker queue that may not be consumed looks like one that another process has."""
        self.server.forget()
        self.server.allow(*(right for right, _ in self.inward))


class OnArtemisByAmqp(OnArtemis):
    """The same queues and rights; without user and password in the address, the certificate is the login."""

    wrong_login = "refuses the login"

    def __init__(self, server: SecuredArtemis, name: str) -> None:
        super().__init__(server, name)
        said = ("CREATE_ADDRESS", "CREATE_DURABLE_QUEUE", "CONSUME", "SEND")
        self.outward = [(right, f"permission='{why}'") for (right, _), why in zip(self.outward, said, strict=True)]
        self.inward = self.outward[:3]

    def url(self, *, tls: bool = False, user: str = USER, password: str = PASSWORD, host: str = "127.0.0.1") -> str:
        port = self.server.amqp_tls_port if tls else self.server.amqp_port
        return f"amqp{'s' * tls}://{f'{user}:{password}@' if user else ''}{host}:{port}"

    def source(self, url: str, **files: Any) -> Any:
        return Amqp(url, **files).queue(f"{self.name}.in")

    def target(self, url: str, **files: Any) -> Any:
        return Amqp(url, timeout_s=3.0, **files).to_queue(f"{self.name}.out", markers=self.markers)

    def send(self, bodies: list[bytes]) -> None:
        with AmqpShop(self.url(user=ADMIN)) as other:
            other.send(f"{self.name}.in", *bodies)

    def taken(self, count: int) -> list[bytes]:
        with AmqpShop(self.url(user=ADMIN)) as other:
            return [bytes(one.body) for one in other.takes(f"{self.name}.out", count)]
