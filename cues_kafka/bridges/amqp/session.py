"""Marker queues by AMQP 1.0: what `MarkerTransactions` needs of a connection."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from typing import Final

from cues_kafka.bridges.amqp.client import COORDINATOR, AmqpConnection, Taken
from cues_kafka.bridges.amqp.encoding import contents
from cues_kafka.bridges.amqp.engine import AmqpEnded, AmqpLogin, AmqpRefused
from cues_kafka.bridges.amqp.messages import AmqpMessage
from cues_kafka.bridges.marker import PROBE, MarkerMessage
from cues_kafka.errors import ConfigError

CREDIT: Final = 100

TOGETHER: Final = 100
"""Messages that are handed to the connection at once."""


class AmqpMarkers:
    """See `MarkerSession`."""

    def __init__(self, login: AmqpLogin) -> None:
        """
        Connect.

        Raises:
            OSError: the broker does not answer.
            ConfigError: it has no transactions.
            AmqpRefused: it refuses the login.
        """
        self._connection = AmqpConnection(login, "cues-kafka")
        self._held: deque[Taken] = deque()
        self._transaction = b""
        self._sent: list[int] = []
        self._names: list[str] = []
        self._items: list[AmqpMessage] = []  # written, and not yet sent
        self.timeout_s = login.timeout_s
        self.silence_s = self._connection.silence_s
        try:
            self._connection.open_sender(*COORDINATOR)
        except AmqpRefused as error:
            self.close()
            raise ConfigError(
                f"the broker {self._connection.product!r:.100} has no transactions of AMQP 1.0, so nothing can be sent "
                f'to it exactly once ({error}). Send at least once, with Amqp(...).address("/queue/orders"), or to '
                "Artemis"
            ) from None
        except BaseException:
            self.close()
            raise

    def guard(self, queue: str) -> None:
        """See `MarkerSession`. A lost connection of AMQP gives all back that it has not taken."""

    def consume(self, queue: str) -> None:
        try:
            self._connection.receive(queue, self._held.append, credit=CREDIT)
        except AmqpEnded as error:
            if not error.link:
                raise
            raise AmqpRefused(str(error), remedy="end the other consumer of the queue; the task is retried") from error

    def message(self, timeout_s: float) -> MarkerMessage | None:
        connection = self._connection
        with connection.news:
            connection.news.wait_for(lambda: self._held or not connection.is_open, timeout_s)
            connection.check()
            if not self._held:
                return None
            taken = self._held.popleft()
        found = contents(taken.data)
        again = len(found.header) > 4 and bool(found.header[4])
        mark = found.application.get(PROBE)
        body = found.body if isinstance(found.body, bytes) else b""
        return MarkerMessage(body, None if mark is None else str(mark), again, taken.number)

    def drop(self, message: MarkerMessage) -> None:
        self._connection.take([message.token])

    def probe(self, queue: str) -> str:
        mark = secrets.token_hex(8)
        sent = self._connection.send(AmqpMessage("queue", queue, b"probe", {PROBE: mark}))
        self._confirm([sent], [queue])
        return mark

    def begin(self) -> None:
        self._transaction = self._connection.declare()
        self._sent, self._names, self._items = [], [], []

    def write(self, item: AmqpMessage) -> None:
        self._items.append(item)
        if len(self._items) >= TOGETHER:
            self._send()

    def _send(self) -> None:
        items, self._items = self._items, []
        self._names += [item.name for item in items]
        self._sent += self._connection.send_all(items, self._transaction)

    def move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        connection = self._connection
        self.write(AmqpMessage("queue", queue, kept))
        self._send()
        self._confirm(self._sent, self._names)
        taken = [] if held is None else [held.token]
        connection.take(taken, self._transaction)
        connection.discharge(self._transaction)
        connection.forget(taken)

    def close(self) -> None:
        self._connection.close()

    def _confirm(self, sent: Sequence[int], names: Sequence[str]) -> None:
        for name, why in zip(names, self._connection.outcomes(sent), strict=True):
            if why:
                raise ConnectionError(f"the broker does not take a message for {name}: {why}")
