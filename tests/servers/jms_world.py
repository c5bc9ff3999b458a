"""A shop for tests: sends to a JMS broker by STOMP, and takes from it."""

from __future__ import annotations

import queue
from types import TracebackType
from typing import Self

from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.client import StompConnection, StompLogin
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.source import ANYCAST, destination
from tests.servers.bridge_world import WAIT_S

AT_ONCE = 100


class JmsClient:
    """A client of another program, which sends and takes."""

    def __init__(self, url: str) -> None:
        self.got = queue.Queue[Frame]()
        self._connection = StompConnection(StompLogin(StompAddress(url, "")), on_message=self.got.put)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close("1")

    def send(self, to: str, *bodies: bytes, **headers: str) -> None:
        """Send persistent messages, and wait until the broker has them."""
        where = {"destination": destination(to, self._connection.server), "persistent": "true", **ANYCAST}
        for count, body in enumerate(bodies, 1):
            last = count == len(bodies) or count % AT_ONCE == 0
            self._connection.send("SEND", {**where, **headers}, body, receipt=last)

    def takes(self, of: str, count: int) -> list[bytes]:
        """Take messages, and give their bodies; they are acknowledged when they are sent."""
        where = {"destination": destination(of, self._connection.server), "id": "1", "ack": "auto", **ANYCAST}
        self._connection.send("SUBSCRIBE", where, receipt=True)
        return [self.got.get(timeout=WAIT_S).body for _ in range(count)]
