"""The messages of AMQP 1.0 queues, for `Acked`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cues_kafka.bridges.amqp.arrivals import incoming
from cues_kafka.bridges.amqp.client import COORDINATOR, AmqpConnection, Taken
from cues_kafka.bridges.amqp.engine import AmqpLogin, AmqpRefused
from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.errors import RecoveryError


class ReadsAmqp(Protocol):
    """What a source needs of its declaration; see `AmqpQueue`."""

    @property
    def key(self) -> str | None:
        """What the key is."""
        ...

    @property
    def timestamps(self) -> bool:
        """Whether messages have the time at which they were made."""
        ...

    @property
    def ids(self) -> bool:
        """Whether publishers give ids."""
        ...

    @property
    def prefetch(self) -> int:
        """Messages without an acknowledgement."""
        ...

    def read_by(self, part: int) -> tuple[str, str]:
        """Queue and selector of a part."""
        ...

    def shown(self, message: str) -> str:
        """A message for people."""
        ...


class AmqpSource:
    """Connects to the queues of a declared source; see `Acknowledging`."""

    def __init__(self, declared: ReadsAmqp, login: AmqpLogin) -> None:
        self._declared, self._login = declared, login
        self._transactions = True  # until a broker says that it has none

    def show(self, message: str) -> str:
        return self._declared.shown(message)

    def connect(self, part: int, arrived: Callable[[], None]) -> AmqpDeliveries:
        queue, selector = self._declared.read_by(part)
        if self._transactions:
            try:
                return self._connect(queue, selector, arrived, transactions=True)
            except NoTransactions:
                self._transactions = False
        return self._connect(queue, selector, arrived, transactions=False)

    def _connect(self, queue: str, selector: str, arrived: Callable[[], None], *, transactions: bool) -> AmqpDeliveries:
        connection = AmqpConnection(self._login, f"cues-kafka {queue}", on_lost=arrived)
        try:
            if selector and connection.product.startswith("RabbitMQ"):
                raise RecoveryError(
                    f"RabbitMQ ignores the selector {selector!r:.200}, and would give us all messages",
                    remedy="leave selector= out, or read from a broker that knows selectors, such as Artemis",
                )
            if transactions:
                _check_transactions(connection)
            made = AmqpDeliveries(self._declared, connection, arrived, transactions=transactions)
            made.consume(queue, selector)
        except BaseException:
            connection.close()
            raise
        return made


class NoTransactions(Exception):
    """The broker has no transactions."""


def _check_transactions(connection: AmqpConnection) -> None:
    try:
        connection.open_sender(*COORDINATOR)
    except AmqpRefused as error:
        raise NoTransactions from error


class AmqpDeliveries:
    """What arrives on one connection; see `Deliveries`."""

    def __init__(
        self, declared: ReadsAmqp, connection: AmqpConnection, arrived: Callable[[], None], *, transactions: bool
    ) -> None:
        self._declared, self._connection, self._arrived = declared, connection, arrived
        self._transactions = transactions
        self._lock = threading.Lock()
        self._held: deque[Taken] = deque()

    def consume(self, queue: str, selector: str) -> None:
        """Begin to consume a queue."""
        self._connection.receive(queue, self.receive, credit=self._declared.prefetch, selector=selector)

    def receive(self, taken: Taken) -> None:
        """Keep a delivery; on the connection's thread."""
        with self._lock:
            first = not self._held  # else the reader was told, and takes until none is left
            self._held.append(taken)
        if first:
            self._arrived()

    def take(self, limit: int) -> Sequence[Arrival]:
        with self._lock:
            taken = [self._held.popleft() for _ in range(min(limit, len(self._held)))]
        if not taken:
            self._connection.check()
        return [self._arrival(one) for one in taken]

    def ack(self, tokens: Sequence[Any]) -> None:
        """
        See `Deliveries`.

        The standard has no answer to an acknowledgement. Where the broker has transactions, one of them holds these,
        and its commit is confirmed, while the next batch is read. Otherwise a broker that dies may have lost them.
        """
        if self._transactions:
            self._connection.take_confirmed(tokens)
        else:
            self._connection.take(tokens)

    def close(self) -> None:
        """See `Deliveries`. What is acknowledged is done before another consumer may come, if the broker answers."""
        self._connection.settle()
        self._connection.close()

    def _arrival(self, taken: Taken) -> Arrival:
        declared = self._declared
        found = incoming(taken.data, declared.key, timestamps=declared.timestamps)
        name = found.id if declared.ids else ""
        # An id is never used twice, so it needs no mark of the broker, such as the count of deliveries: that one says
        # too little where a connection was lost. A publisher that repeats a message gives it the same id.
        return Arrival(name, bool(name), found.message, taken.number)
