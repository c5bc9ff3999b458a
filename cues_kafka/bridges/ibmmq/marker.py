"""
A queue manager as `MarkerTransactions` needs it: messages and marker in one unit of work.

Not run against a real IBM MQ; tested on a fake of its client.

The owner of a task is who has its marker queue open for itself (`MQOO_INPUT_EXCLUSIVE`). A second one is refused with
`MQRC_OBJECT_IN_USE`, until the queue manager has ended the first one's connection, and taken back its unit of work.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from cues_kafka.bridges.ibmmq import client
from cues_kafka.bridges.ibmmq.client import MqConnection, MqLogin
from cues_kafka.bridges.ibmmq.messages import ID_BYTES, MqMessage
from cues_kafka.bridges.ibmmq.reasons import OBJECT_IN_USE, UNKNOWN_OBJECT_NAME, MqRefused, MqWaits
from cues_kafka.bridges.marker import BrokerRefused, MarkerMessage

MARKER: Final = "CUESMARK"
PROBE: Final = "CUESPROB"
"""Formats of the messages of a marker queue."""

PRIORITY: Final = 0
"""All of them have one, so that they stay in order."""


class IbmMqMarkers:
    """One connection to a queue manager; see `MarkerSession`."""

    def __init__(self, login: MqLogin, timeout_s: float) -> None:
        self._connection = MqConnection(login)
        self._handle = 0
        self._queue = ""
        self.timeout_s = timeout_s
        self.silence_s = 2.0 * login.heartbeat_s

    def guard(self, queue: str) -> None:
        """See `MarkerSession`. The marker is browsed, so a lost connection cannot keep it."""

    def consume(self, queue: str) -> None:
        try:
            self._handle = self._connection.open(queue, client.BROWSES)
        except MqWaits as error:
            if error.reason == OBJECT_IN_USE:
                raise BrokerRefused(str(error), remedy=error.remedy) from None
            raise
        except MqRefused as error:
            if error.reason == UNKNOWN_OBJECT_NAME:
                raise MqRefused(str(error), reason=error.reason, remedy=defining(queue)) from None
            raise
        self._queue = queue

    def message(self, timeout_s: float) -> MarkerMessage | None:
        """See `MarkerSession`. What is browsed stays in the queue."""
        found = self._connection.get(self._handle, client.BROWSE, wait_s=timeout_s)
        if found is None:
            return None
        descriptor, body = found
        if descriptor.format not in (MARKER, PROBE):
            raise MqRefused(
                f"the queue {self._queue} has a message that is not a marker of a task",
                remedy="take it out of the queue; the task is retried",
            )
        probe = descriptor.correl_id.hex() if descriptor.format == PROBE else None
        return MarkerMessage(body, probe, False, descriptor.msg_id)

    def drop(self, message: MarkerMessage) -> None:
        self._connection.get(self._handle, client.TAKE_ALONE, msg_id=message.token)

    def probe(self, queue: str) -> str:
        mark = secrets.token_bytes(ID_BYTES)
        probe = MqMessage(queue, b"", PROBE, correl_id=mark, priority=PRIORITY)
        self._connection.put(probe, in_unit=False, persistence=client.PASSING)
        return mark.hex()

    def begin(self) -> None:
        """See `MarkerSession`. A unit of work begins with its first message."""

    def write(self, item: Any) -> None:
        self._connection.put(item)

    def move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        self._connection.put(MqMessage(queue, kept, MARKER, priority=PRIORITY))
        if held is not None and self._connection.get(self._handle, client.TAKE_WITH, msg_id=held.token) is None:
            raise ConnectionError(f"the marker in {queue} is gone: another program has taken it")
        self._connection.commit(sends=True)

    def close(self) -> None:
        self._connection.close()


def defining(queue: str) -> str:
    """How a marker queue is made."""
    return (
        f"define the queue in runmqsc: DEFINE QLOCAL('{queue}') DEFPSIST(YES) NOSHARE MAXMSGL(104857600); the task is "
        "retried"
    )
