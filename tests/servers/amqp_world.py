"""A shop for tests: sends to a broker by AMQP 1.0, and takes from it."""

from __future__ import annotations

import queue
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cues_kafka import Amqp
from cues_kafka.bridges.amqp.encoding import AmqpContents, contents
from cues_kafka.bridges.amqp.messages import AmqpMessage
from tests.servers.fixtures import JmsQueues

if TYPE_CHECKING:
    from cues_kafka.bridges.amqp.client import Taken

HAS_PROTON: Final = find_spec("proton") is not None
"""Tests beside those of other protocols are left out without it; one test says so: test_installed.py."""

WAIT_S = 60.0
AT_ONCE = 100


def amqp_url(jms: JmsQueues) -> str:
    """The address of Artemis by AMQP."""
    port: int = jms.server.amqp_port  # type: ignore[union-attr]
    return f"amqp://127.0.0.1:{port}"


class AmqpShop:
    """A client of another program, which sends and takes."""

    def __init__(self, url: str) -> None:
        from cues_kafka.bridges.amqp.client import AmqpConnection

        self.got: queue.Queue[Taken] = queue.Queue()
        self.connection = AmqpConnection(Amqp(url, idle_s=60.0).login(), "shop")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.connection.close()

    def send(self, to: str, *bodies: bytes | str, ids: bool = True, **properties: Any) -> None:
        """Send durable messages, each with an id of its own if there are any, and wait until the broker has them."""
        for at in range(0, len(bodies), AT_ONCE):
            sent = [
                self.connection.send(AmqpMessage("queue", to, body, properties, _id_of(body) if ids else {}))
                for body in bodies[at : at + AT_ONCE]
            ]
            assert not any(self.connection.outcomes(sent))

    def send_encoded(self, to: str, *messages: bytes) -> None:
        """Send messages as they are encoded, however that is."""
        self.connection.open_sender(to, "queue")
        with self.connection.engine():
            sent = [self.connection._send_now((to, "queue"), one, None) for one in messages]
        assert not any(self.connection.outcomes(sent))

    def takes(self, of: str, count: int, quiet_s: float = 0.0) -> list[AmqpContents]:
        """Take messages for good; with `quiet_s` it waits so long for more of them."""
        self.connection.receive(of, self.got.put, credit=1_000)
        found = [self.got.get(timeout=WAIT_S) for _ in range(count)]
        while quiet_s:
            try:
                found.append(self.got.get(timeout=quiet_s))
            except queue.Empty:
                break
        transaction = self.connection.declare()
        self.connection.take([one.number for one in found], transaction)
        self.connection.discharge(transaction)
        return [contents(one.data) for one in found]


def _id_of(body: bytes | str) -> dict[str, str]:
    """An id, which brokers want to be short."""
    return {"id": f"id-{body[:40]!r}"}
