"""Credit is given when nothing is under way: RabbitMQ would deliver more than it may, see `_allow_now`."""

from __future__ import annotations

from unittest.mock import Mock

from cues_kafka.bridges.amqp.client import AmqpConnection, Taken


class Receiver:
    """A link with the credit that its broker has left."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.given: list[int] = []

    def flow(self, count: int) -> None:
        """More credit."""
        self.credit += count
        self.given.append(count)


def test_broker_gets_credit_for_all_that_was_taken_when_it_has_used_what_it_had() -> None:
    """Not while it may have deliveries under way, and at once where it has none."""
    connection = AmqpConnection.__new__(AmqpConnection)
    receiver = Receiver(credit=2)
    got: list[Taken] = []
    connection._receiver, connection._transport, connection._taker = receiver, Mock(), got.append
    connection._owed, connection._numbers, connection._deliveries = 0, 0, {}
    connection._then = {}

    def arrives() -> None:
        receiver.credit -= 1
        link = Mock(recv=lambda _: b"", flow=receiver.flow, is_receiver=True)
        connection.took(Mock(partial=False, aborted=False), link)

    arrives()
    connection._forget_now([1])
    assert receiver.given == []
    arrives()
    assert receiver.given == [1]
    arrives()
    connection._forget_now([2, 3])
    assert receiver.given == [1, 2]
    assert [one.number for one in got] == [1, 2, 3]
