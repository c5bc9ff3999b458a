"""Sends messages to an address of an AMQP 1.0 broker, for the tasks of one processor in one process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cues_kafka.bridges.amqp.addresses import ADDRESSES
from cues_kafka.bridges.amqp.client import AmqpConnection
from cues_kafka.bridges.amqp.engine import AmqpLogin
from cues_kafka.bridges.amqp.messages import AmqpMessage
from cues_kafka.bridges.published import Template, payload_of, received_by
from cues_kafka.errors import OutputError, RetriableError


class AddressSettings(NamedTuple):
    """How messages are sent; see `Amqp.address`."""

    address: str
    headers: tuple[str, ...]
    content_type: str
    max_bytes: int | None


class AmqpPublisher:
    """
    See `Publisher`.

    A batch is sent at once, and the broker confirms each message. What it does not confirm is sent again, with the same
    ids.
    """

    def __init__(self, declared: AddressSettings, login: AmqpLogin, name: str) -> None:
        """
        Args:
            declared: how and where.
            login: where the broker is.
            name: what the broker's own tools name the connection.
        """
        self._declared, self._login, self._name = declared, login, name
        self._address = Template(declared.address, ADDRESSES)
        self._turn = threading.Lock()  # tasks share the connection, one batch at a time
        self._connection: AmqpConnection | None = None

    def prepare(self, value: Any, step: Any, given: Mapping[str, Any]) -> AmqpMessage:
        """See `Publisher`; a function may give `address=`, which takes the place of the declared one."""
        received = received_by(step)
        address = self._address.chosen(given, "address", value, received)
        body = payload_of(value, received)
        most = self._declared.max_bytes
        if most is not None and len(body) > most:
            raise OutputError(
                f"a message for the AMQP broker has {len(body):,} bytes, and {most:,} are allowed. Raise max_bytes=, "
                "or send less"
            )
        headers = {
            name: one.decode(errors="backslashreplace")
            for name, one in (received.headers if received is not None and self._declared.headers else ())
            if name in self._declared.headers and one is not None
        }
        fields = {"content_type": self._declared.content_type} if self._declared.content_type else {}
        return AmqpMessage("", address, body, headers, fields)

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        with self._turn:
            try:
                self._send(self._connected(), messages)
            except BaseException:
                self._disconnect()
                raise

    def close(self) -> None:
        with self._turn:
            self._disconnect()

    def _connected(self) -> AmqpConnection:
        """The connection, or a new one."""
        if self._connection is not None and not self._connection.is_open:
            self._disconnect()
        if self._connection is None:
            self._connection = AmqpConnection(self._login, self._name)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, connection: AmqpConnection, messages: Sequence[tuple[str, AmqpMessage]]) -> None:
        """
        Send all, and wait until the broker has confirmed them.

        Raises:
            OSError, RetriableError: it did not.
            RecoveryError: it refuses.
        """
        named = [message._replace(fields={**message.fields, "id": name}) for name, message in messages]
        try:
            sent = connection.send_all(named)
        except OutputError as error:  # it was found too large too late: the step is over
            raise RetriableError(f"{error}. Declare max_bytes=, which makes it an error message") from None
        for (_, message), why in zip(messages, connection.outcomes(sent), strict=True):
            if why:
                raise RetriableError(f"the AMQP broker does not take a message for {message.name!r}: {why}")
