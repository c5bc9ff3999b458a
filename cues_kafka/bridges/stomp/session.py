"""A connection whose owner takes one message after the other, and what brokers have each in their own way."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Mapping
from typing import Final

from cues_kafka.bridges.marker import PROBE
from cues_kafka.bridges.stomp.client import StompConnection, StompLogin
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.errors import ConfigError

SUBSCRIPTION = "marker"

GUARD: Final = "guard"
"""The mark of a probe that lies before the marker, see `StompSession.guard`."""

FIRST: Final = "9"
"""The highest priority. A broker gives such a message before those of the priority 4, which others have."""

NOTHING: Final = "cues_nothing = 1"
"""A selector of no message."""


class StompSession:
    """One connection to a broker that is known. One thread at a time uses it."""

    def __init__(self, login: StompLogin) -> None:
        """
        Connect.

        Raises:
            OSError: the broker does not answer.
            ConfigError: it is another kind of broker.
            StompRefused: it refuses the login.
        """
        self._news = threading.Condition()
        self._held: deque[Frame] = deque()
        self._connection = StompConnection(login, on_message=self._arrived, on_lost=self._lost)
        server = self._connection.server
        self._artemis = server.startswith("ActiveMQ-Artemis")
        if not self._artemis and not server.startswith("ActiveMQ/"):
            self.close()
            raise ConfigError(
                f"the broker calls itself {server!r:.100}. Exactly once by STOMP is known to hold with ActiveMQ "
                "Classic and Artemis only; RabbitMQ, for example, has no transaction over several queues"
            )

    @property
    def takes_at_once(self) -> bool:
        """
        Whether the broker takes a message when it is acknowledged, also in a transaction.

        Artemis does: its log says `Stomp Transactional acknowledgement is not supported`.
        """
        return self._artemis

    def _arrived(self, frame: Frame) -> None:
        with self._news:
            self._held.append(frame)
            self._news.notify_all()

    def _lost(self) -> None:
        with self._news:
            self._news.notify_all()

    def send(
        self, command: str, headers: Mapping[str, str], body: bytes = b"", *, receipt: bool = False, text: bool = False
    ) -> None:
        """Send a frame; see `StompConnection.send`."""
        self._connection.send(command, headers, body, receipt=receipt, text=text)

    def send_in_turn(self, first: Frame, second: Frame) -> str:
        """Send a frame, and another one when the broker has done it; see `StompConnection.send_in_turn`."""
        return self._connection.send_in_turn(first, second)

    def wait_for(self, done: str) -> None:
        """Wait until the broker has done the second one; see `StompConnection.wait_for`."""
        self._connection.wait_for(done)

    def send_later(self, data: bytes) -> None:
        """Send the bytes of a frame together with the next ones; see `StompConnection.send_later`."""
        self._connection.send_later(data)

    def message(self, timeout_s: float) -> Frame | None:
        """
        Take the next message; None: none comes in this time.

        Raises:
            OSError: the connection is lost, so a message that was taken may be another one's.
            StompRefused: the broker has refused a frame.
        """
        with self._news:
            self._news.wait_for(lambda: self._held or self._is_lost(), timeout_s)
            self._connection.check()
            return self._held.popleft() if self._held else None

    def _is_lost(self) -> bool:
        return not self._connection.is_open

    def destination(self, kind: str, name: str) -> Mapping[str, str]:
        """The headers that name a queue or a topic."""
        if self._artemis:
            return {"destination": name, "destination-type": "ANYCAST" if kind == "queue" else "MULTICAST"}
        return {"destination": f"/{kind}/{name}"}

    def guard(self, queue: str) -> bool:
        """
        See that `subscribe` first gets a message without content, where the broker may lose the first one.

        When a connection is lost, Artemis cleans up in two threads. One rolls back the transaction of the connection's
        acknowledgements. The other one acknowledges the first message that is delivered and not acknowledged, and rolls
        back, too. If it comes second, this acknowledgement is in a transaction that has ended already. Then the message
        is neither taken nor in the queue, until the broker is restarted. Seen in 2.44, and 2.56 has the same lines. The
        second thread is due to STOMP 1.2: Artemis first sends an ERROR frame, and closes the connection behind it.

        So a message of the highest priority is put there, which the owner never acknowledges. It is there before the
        owner gets any message, because a subscription to no message shows first that the queue is free.

        Returns:
            Whether such a message comes. It has the mark `GUARD`.

        Raises:
            OSError, StompRefused: see `StompConnection.send`. Another process consumes the queue.
        """
        if not self._artemis:
            return False
        self.subscribe(queue, NOTHING)
        self.probe(queue, GUARD, FIRST)
        self.send("UNSUBSCRIBE", {"id": SUBSCRIPTION}, receipt=True)
        return True

    def subscribe(self, queue: str, selector: str = "") -> None:
        """Ask to be the one consumer of a queue; each message is to be acknowledged."""
        own = {"id": SUBSCRIPTION, "ack": "client-individual", **self.destination("queue", queue)}
        own |= {"selector": selector} if selector else {}
        if self._artemis:  # its window is in bytes: a large marker would keep the probe behind it back
            own |= {"subscription-type": "ANYCAST", "consumer-window-size": "-1"}
        else:
            own |= {"activemq.exclusive": "true", "activemq.prefetchSize": "100"}
        self.send("SUBSCRIBE", own, receipt=True)

    def probe(self, queue: str, mark: str = "", priority: str = "") -> str:
        """Send a message that only finds out who consumes the queue; gives its mark."""
        mark = mark or secrets.token_hex(8)
        headers = {PROBE: mark, "persistent": "true", **self.destination("queue", queue)}
        headers |= {"priority": priority} if priority else {}
        self.send("SEND", headers, b"probe", receipt=True)
        return mark

    def acknowledge(self, message: Frame, **headers: str) -> None:
        """Acknowledge a message, perhaps in a transaction."""
        self.send("ACK", {"id": message.headers["ack"], **headers})

    def close(self) -> None:
        """Close the connection; see `StompConnection.close`."""
        self._connection.close()
