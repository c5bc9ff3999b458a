"""What a driver of a broker with acknowledgements implements: connections, and the messages that come on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from cues_kafka.graph.message import Message


class Arrival(NamedTuple):
    """
    One message as a broker has delivered it.

    Attributes:
        id: names the message over all of its deliveries; empty: nothing does, so a redelivery is a duplicate.
        again: whether it may have been delivered before. Where ids are never used twice, True is right for all.
        message: what goes into Kafka.
        token: what `Deliveries.ack` needs.
    """

    id: str
    again: bool
    message: Message[Any]
    token: Any


class Deliveries(Protocol):
    """
    The messages of one connection. It is used on one thread, except for `close`.

    It may have the attribute `fresh`: True where the broker had forgotten all deliveries, as an MQTT broker that
    has lost the session. It may use their ids for new messages, so the ledger forgets them, too. And it may have the
    method `forgotten()`, which is called then if messages were taken before, also by another process.
    """

    def take(self, limit: int) -> Sequence[Arrival]:
        """
        What has arrived, in the order of arrival, at most `limit` deliveries. It does not wait.

        Raises:
            OSError, RetriableError: the connection is lost, and nothing that has arrived is left.
            RecoveryError: the source must not be read on.
        """
        ...

    def ack(self, tokens: Sequence[Any]) -> None:
        """
        Acknowledge these deliveries, in this order. It need not wait for an answer.

        Raises:
            OSError, RetriableError: the connection is lost.
        """
        ...

    def close(self) -> None:
        """Close the connection at once, so that the broker delivers again what is not acknowledged. Never raises."""
        ...


class Acknowledging(Protocol):
    """A broker as `Acked` needs it."""

    def connect(self, part: int, arrived: Callable[[], None]) -> Deliveries:
        """
        Connect and subscribe.

        Args:
            part: number of the part, from 0: a queue, a selector or a session of its own.
            arrived: call it on any thread when a delivery has arrived, or the connection is lost.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: it refuses.
        """
        ...

    def show(self, message: str) -> str:
        """A message for people: `message 17`, and of what."""
        ...
