"""The messages of JMS queues over STOMP, for `Acked`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Protocol

from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.stomp.client import StompConnection, StompLogin
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message, quick_message

SUBSCRIPTION: Final = "cues"

OWN_HEADERS: Final = frozenset({"subscription", "ack", "message-id", "content-length", "receipt", "redelivered"})
"""Headers of a MESSAGE frame that say something of the delivery, and nothing of the message."""

MOST_DIGITS: Final = 15
"""Digits of a time in milliseconds. A number with more digits is not taken for a time."""

ANYCAST: Final = {"destination-type": "ANYCAST", "subscription-type": "ANYCAST"}


class ReadsQueues(Protocol):
    """What a source needs of its declaration; see `Stomp`."""

    @property
    def key(self) -> str | None:
        """The header that is the key."""
        ...

    @property
    def timestamps(self) -> bool:
        """Whether messages have the time at which they were sent."""
        ...

    @property
    def prefetch(self) -> int:
        """Messages without an acknowledgement."""
        ...

    @property
    def window_bytes(self) -> int:
        """Bytes without an acknowledgement."""
        ...

    def read_by(self, part: int) -> tuple[str, str]:
        """Queue and selector of a part."""
        ...

    def shown(self, message: str) -> str:
        """A message for people."""
        ...


class StompSource:
    """Connects to the queues of a declared source; see `Acknowledging`."""

    def __init__(self, declared: ReadsQueues, login: StompLogin) -> None:
        self._declared, self._login = declared, login

    def show(self, message: str) -> str:
        return self._declared.shown(message)

    def connect(self, part: int, arrived: Callable[[], None]) -> StompDeliveries:
        made = StompDeliveries(self._declared, arrived)
        connect = partial(StompConnection, on_message=made.receive, on_read=made.hand_over, on_lost=arrived)
        connection = connect(self._login)
        if connection.server.startswith("ActiveMQ-Artemis"):
            # By STOMP 1.2 it cleans up twice at once when a connection is lost, and may hold a message back then until
            # it is restarted: `StompSession.guard`. By 1.1 it does so once.
            connection.close()
            login = replace(self._login, version="1.1")
            connection = connect(login)
        try:
            if connection.server.startswith("RabbitMQ"):
                raise RecoveryError(
                    "RabbitMQ gives each delivery over STOMP another message-id, so a redelivery cannot be told from a "
                    "new message",
                    remedy="read it with Feed(RabbitMq(...)), by AMQP",
                )
            made.begin(connection)
            connection.send("SUBSCRIBE", self._subscription(part, connection.server), receipt=True)
        except BaseException:
            connection.close()
            raise
        return made

    def _subscription(self, part: int, server: str) -> dict[str, str]:
        queue, selector = self._declared.read_by(part)
        found = {
            "id": SUBSCRIPTION,
            "destination": destination(queue, server),
            "ack": "client-individual",
            "activemq.prefetchSize": str(self._declared.prefetch),  # Classic: messages
            "consumer-window-size": str(self._declared.window_bytes),  # Artemis: bytes
            **ANYCAST,
        }
        # Classic's exclusive consumer is one of the whole queue, whatever its selector is.
        return found | ({"selector": selector} if selector else {"activemq.exclusive": "true"})


class StompDeliveries:
    """
    What arrives on one connection; see `Deliveries`.

    A delivery is made ready on the connection's thread: the feed's thread has more to do, and often waits for Kafka.
    What one read of the connection brought is handed over at once, and the feed is woken once for it.
    """

    def __init__(self, declared: ReadsQueues, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._key, self._timed = declared.key, declared.timestamps
        self._ready: list[Arrival] = []  # of this read; the connection's thread has it
        self._lock = threading.Lock()
        self._held: list[Arrival] = []
        self._refused: RecoveryError | None = None
        self._connection: StompConnection | None = None

    def begin(self, connection: StompConnection) -> None:
        """Use this connection from now on."""
        self._connection = connection

    def receive(self, frame: Frame) -> None:
        """Make a delivery ready; on the connection's thread. Behind one that is refused nothing is kept."""
        if self._refused is not None:
            return
        headers = frame.headers
        try:
            name = name_of(frame)
        except RecoveryError as error:
            self.hand_over()  # what came before it is taken first
            self._refused = error
            self._arrived()
            return
        self._ready.append(Arrival(name, True, self._message(frame), headers.get("ack") or headers["message-id"]))

    def hand_over(self) -> None:
        """Give what is ready to the reader; on the connection's thread."""
        ready, self._ready = self._ready, []
        if not ready:
            return
        with self._lock:
            first = not self._held  # else the reader was told, and takes until none is left
            self._held += ready
        if first:
            self._arrived()

    def take(self, limit: int) -> Sequence[Arrival]:
        with self._lock:
            found, self._held = self._held[:limit], self._held[limit:]
        if not found:
            if self._refused is not None:
                raise self._refused
            self._open.check()
        return found

    def ack(self, tokens: Sequence[Any]) -> None:
        """
        Acknowledge, when the broker has confirmed those before.

        A broker that dies may have lost acknowledgements that it has not confirmed, and have made new deliveries for
        them. So it may deliver again a window and one batch more, and the ledger has room for four windows.
        """
        self._open.acknowledge(tokens, SUBSCRIPTION)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(SUBSCRIPTION)

    @property
    def _open(self) -> StompConnection:
        if self._connection is None:
            raise ConnectionError("the connection to the STOMP broker is not open")
        return self._connection

    def _message(self, frame: Frame) -> Message[Any]:
        headers, key = frame.headers, self._key
        at = headers.get("timestamp", "") if self._timed else ""
        return quick_message(
            Encoded(frame.body),
            headers.get(key) if key else None,
            [pair for pair in headers.items() if pair[0] not in OWN_HEADERS],
            int(at) if at.isdecimal() and at.isascii() and len(at) <= MOST_DIGITS else None,
        )


def destination(queue: str, server: str) -> str:
    """A queue as a broker of this name wants it: ActiveMQ Classic wants ``/queue/orders``, Artemis ``orders``."""
    return f"/queue/{queue}" if server.startswith("ActiveMQ/") and not queue.startswith("/") else queue


def name_of(frame: Frame) -> str:
    """
    The id of a message over all of its deliveries.

    Artemis names a delivery by the consumer and the message, as ``7,21474`` does. Only the number of the message stays
    the same: its journal has it. A broker that was made again counts from 1 again, so the time at which the message was
    sent and its body are in the id, too.

    Raises:
        RecoveryError: the broker names no message.
    """
    name = frame.headers.get("message-id", "")
    if not name:
        raise RecoveryError(
            "a message came without a message-id, so a redelivery could not be told from a new message",
            remedy="read a queue of ActiveMQ Classic or Artemis",
        )
    consumer, comma, number = name.partition(",")
    if not (comma and consumer.isdecimal() and number.isdecimal()):
        return name
    body = _BODY.copy()  # takes a third less time than a new one
    body.update(frame.body)
    return f"{number} {frame.headers.get('timestamp', '')} {body.hexdigest()}"


_BODY: Final = blake2b(digest_size=16)
