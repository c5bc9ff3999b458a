"""The messages of a queue of RabbitMQ, for `Acked`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.rabbitmq.client import RabbitMqConnection, RabbitMqLogin
from cues_kafka.bridges.rabbitmq.messages import DELIVERIES, message_of
from cues_kafka.errors import RetriableError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")

OFTEN: Final = 5
"""Deliveries without an acknowledgement from which on the log says so: a quorum queue may give a message up."""


class QueueSource:
    """Connects to the queues of a declared source; see `Acknowledging`."""

    def __init__(
        self,
        login: RabbitMqLogin,
        names: Sequence[str],
        *,
        prefetch: int,
        ids: bool,
        key: str | None,
        shown: Callable[[str], str],
    ) -> None:
        """
        Connect to nothing yet.

        Args:
            login: where the broker is.
            names: of the queues, one for each part.
            prefetch: see `RabbitMq.queue`.
            ids: see `RabbitMq.queue`.
            key: see `RabbitMq.queue`.
            shown: a message for people.
        """
        self._login, self._names = login, names
        self._prefetch, self._ids, self._key, self._shown = prefetch, ids, key, shown

    def show(self, message: str) -> str:
        return self._shown(message)

    def connect(self, part: int, arrived: Callable[[], None]) -> QueueDeliveries:
        """
        See `Acknowledging`.

        Nothing else may consume the queue. A process that died with its machine is a consumer until the broker misses
        its heartbeats; meanwhile new messages would pass by what it had not acknowledged, without an end, and the
        ledger would forget those. Classic queues refuse a second consumer (`exclusive`). Quorum queues do not, so they
        are asked before and behind.
        """
        queue = self._names[part]
        connection = RabbitMqConnection(self._login, f"cues-kafka {queue}", on_lost=arrived)
        try:
            deliveries = QueueDeliveries(connection, arrived, queue=queue, ids=self._ids, key=self._key)
            self._check_alone(connection, queue, 0)
            connection.ask("basic_qos", prefetch_count=self._prefetch)
            connection.consume(queue, deliveries.receive, exclusive=True)
            self._check_alone(connection, queue, 1)
        except BaseException:
            connection.close()
            raise
        return deliveries

    def _check_alone(self, connection: RabbitMqConnection, queue: str, ours: int) -> None:
        found = connection.ask("queue_declare", queue=queue, passive=True).consumer_count
        if found > ours:
            raise RetriableError(
                f"the RabbitMQ queue {queue!r} has {found - ours} other consumers; a feed reads a queue alone. Stop "
                "them. If one is a process that died with its machine, the broker notices it after a minute at most"
            )


class QueueDeliveries:
    """The messages of one connection; see `Deliveries`."""

    def __init__(
        self, connection: RabbitMqConnection, arrived: Callable[[], None], *, queue: str, ids: bool, key: str | None
    ) -> None:
        self._connection, self._arrived, self._ids, self._key = connection, arrived, ids, key
        self._queue, self._said = queue, False
        self._waiting: deque[tuple[Any, Any, bytes]] = deque()

    def receive(self, _: Any, delivered: Any, properties: Any, body: bytes) -> None:
        """A message has arrived; on the connection's thread."""
        self._waiting.append((delivered, properties, body))
        # Otherwise the reader was told, and takes until none is left: it sees this one, or has left none before it.
        if len(self._waiting) == 1:
            self._arrived()

    def take(self, limit: int) -> Sequence[Arrival]:
        self._connection.check()
        waiting = self._waiting  # a deque, which needs no lock between one that appends and one that takes
        return [self._arrival(*waiting.popleft()) for _ in range(min(limit, len(waiting)))]

    def ack(self, tokens: Sequence[Any]) -> None:
        """See `Deliveries`. They come in the order of deliveries, so the last one stands for all."""
        self._connection.check()
        last = tokens[-1]
        self._connection.do(lambda: self._connection.channel.basic_ack(last, multiple=True))

    def close(self) -> None:
        self._connection.close()

    def _arrival(self, delivered: Any, properties: Any, body: bytes) -> Arrival:
        name = ""
        if self._ids and properties.message_id is not None:
            name = name_of(properties.message_id, delivered.routing_key, body)
        message = message_of(delivered, properties, body, self._key)
        if not self._said and properties.headers:
            self._say_if_often(properties.headers.get(DELIVERIES))
        # An id is never used twice, so it needs no mark of the broker; and a publisher that repeats a message because
        # its confirmation was lost gives it the same id.
        return Arrival(name, bool(name), message, delivered.delivery_tag)

    def _say_if_often(self, count: Any) -> None:
        """RabbitMQ does not tell a consumer what the limit of a queue is."""
        if isinstance(count, int) and count >= OFTEN:
            self._said = True
            log.warning(
                "delivered often",
                queue=self._queue,
                deliveries=count,
                effect="a quorum queue drops a message after x-delivery-limit tries (RabbitMQ 4: 20); set it to -1",
            )


def name_of(message_id: str | bytes, routing_key: str | bytes, body: bytes) -> str:
    """
    The id of a message over all of its deliveries.

    The contents are in it, so that a publisher that gives several messages one id loses none of them.
    """
    one = message_id.encode() if isinstance(message_id, str) else message_id
    two = routing_key.encode() if isinstance(routing_key, str) else routing_key
    said = b"%d:%b%d:%b%d:%b" % (len(one), one, len(two), two, len(body), body)
    return blake2b(said, digest_size=16).hexdigest()
