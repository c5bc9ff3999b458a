"""
The transactions of one task on a broker: messages and marker in one of them (E1).

The marker queue of a task has one message. What it says is kept for the task. To commit, the owner takes this message
and sends the next one, in the transaction of the messages. A message can be taken once, so the comparison of
`Transactions.commit` is that the owner holds the message with the bytes that it commits over. It has been delivered on
the owner's connection, and is given to no other one before that connection is lost. What the owner then still sends is
void: its transaction has ended with its connection.

A queue without a marker, and one whose marker another process holds, look the same. So the owner must be the only
consumer of the queue, and must know it: it sends a *probe* there, and waits until the probe is delivered to it. Then
every former owner's connection is gone. A second probe, sent after that, comes behind all that they have committed.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

from cues_kafka.bridges.stomp.client import StompLogin, StompRefused
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.messages import JmsMessage
from cues_kafka.bridges.stomp.session import PROBE, StompSession
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.targets import TargetMoved, Transactions

PAUSE_S: Final = 0.1
"""Seconds between two attempts to become the one consumer where the broker refuses a second one."""


class StompTransactions(Transactions):
    """The transactions of one task, on one connection that is never opened again."""

    def __init__(self, login: StompLogin, queue: str) -> None:
        self._login, self._queue = login, queue
        self._session: StompSession | None = None
        self._marker: Frame | None = None  # delivered, and not acknowledged
        self._coming: bytes | None = None  # committed by this connection, and not yet delivered
        self._transaction = ""

    def ask(self) -> bytes | None:
        """See `Transactions`. On a connection that owns the queue it is what was delivered last."""
        if self._session is None:
            self._become_owner()
        held = self._held()
        return None if held is None else held.body

    def begin(self) -> None:
        """See `Transactions`."""
        self._transaction = secrets.token_hex(8)
        self._owned.send("BEGIN", {"transaction": self._transaction})

    def write(self, item: JmsMessage) -> None:
        """See `Transactions`."""
        own = {"persistent": "true", "transaction": self._transaction}
        headers = {**item.headers, **own, **self._owned.destination(item.kind, item.name)}
        if isinstance(item.body, str):
            self._owned.send("SEND", headers, item.body.encode(), text=True)
            return
        empty = {} if item.body else {"content-length": "0"}  # without it a message is a text
        self._owned.send("SEND", {**headers, **empty}, item.body)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        """See `Transactions`."""
        held = self._held()
        if (None if held is None else held.body) != over:
            raise TargetMoved("the marker of the task has been moved")
        self._move(kept, held)

    def close(self) -> None:
        """See `Transactions`. The broker takes back what is open, and gives the marker to the next owner."""
        session, self._session, self._marker, self._coming = self._session, None, None, None
        if session is not None:
            session.close()

    @property
    def _owned(self) -> StompSession:
        if self._session is None:
            raise ConnectionError("the connection was closed")
        return self._session

    def _move(self, kept: bytes, held: Frame | None) -> None:
        """Put this marker into the place of the one that is held, and commit."""
        session, own = self._owned, {"persistent": "true", "transaction": self._transaction}
        session.send("SEND", {**own, **session.destination("queue", self._queue)}, kept)
        if held is not None:
            session.acknowledge(held, transaction=self._transaction)
        session.send("COMMIT", {"transaction": self._transaction}, receipt=True)
        self._marker, self._coming = None, kept

    def _become_owner(self) -> None:
        session = self._session = self._consumer()
        try:
            markers = self._before(session, session.probe(self._queue))
            markers += self._before(session, session.probe(self._queue))
            if len(markers) > 1:
                raise RecoveryError(
                    f"the queue {self._queue} has {len(markers)} messages, and each of them says where the task stands",
                    remedy="look at them, and leave the one with the greatest step: others were copied or moved there",
                )
            if not markers:
                return
            [self._marker] = markers
            if self._marker.headers.get("redelivered") == "true":
                # Artemis moves away what was delivered too often. A new message has not been delivered yet.
                self.begin()
                self._move(self._marker.body, self._marker)
        except BaseException:
            self.close()
            raise

    def _consumer(self) -> StompSession:
        """A session that consumes the marker queue. Artemis refuses a second one, as long as there is one."""
        deadline = time.monotonic() + self._patience_s
        while True:
            session = StompSession(self._login)
            try:
                session.subscribe(self._queue)
                return session
            except StompRefused as error:  # the broker has closed the connection
                session.close()
                if time.monotonic() >= deadline:
                    raise ConnectionError(f"{error}. {self._taken}. Or this user may not consume the queue") from error
                time.sleep(PAUSE_S)  # the broker does not say when a queue becomes free
            except BaseException:
                session.close()
                raise

    @property
    def _patience_s(self) -> float:
        return max(self._login.timeout_s, 3 * self._login.heart_beat_s)

    @property
    def _taken(self) -> str:
        return (
            f"Another process has the queue {self._queue}: the task's former owner, or a tool that looks. It loses the "
            f"queue with its connection, about {2.5 * self._login.heart_beat_s:g} s after it was frozen or cut off"
        )

    def _before(self, session: StompSession, probe: str) -> list[Frame]:
        """The markers that are delivered before this probe; probes of others are dropped."""
        markers: list[Frame] = []
        while True:
            found = session.message(self._patience_s)
            if found is None:
                raise TimeoutError(self._taken)
            mark = found.headers.get(PROBE)
            if mark is None:
                markers.append(found)
                continue
            session.acknowledge(found)
            if mark == probe:
                return markers

    def _held(self) -> Frame | None:
        """
        The marker that this connection holds. The one that it has committed last is on its way; probes come, too.

        Raises:
            OSError: the connection is lost, so another one may hold it.
        """
        session, deadline = self._owned, time.monotonic() + self._login.timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic()) if self._coming is not None else 0.0
            found = session.message(left)
            if found is None:
                if self._coming is None:
                    return self._marker
                raise TimeoutError(f"the marker in {self._queue} was committed, and was not delivered in time")
            if PROBE in found.headers:
                session.acknowledge(found)
            elif self._coming is not None and found.body == self._coming:
                self._marker, self._coming = found, None
            else:
                raise ConnectionError(f"the queue {self._queue} has a message that this owner did not send")
