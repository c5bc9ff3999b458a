"""
The transactions of one task on a broker of queues: messages and marker in one of them (E1).

The marker queue of a task has one message. What it says is kept for the task. To commit, the owner takes this message
and sends the next one, in the transaction of the messages. A message can be taken once, so the comparison of
`Transactions.commit` is that the owner holds the message with the bytes that it commits over. It has been delivered on
the owner's connection, and is given to no other one before that connection is lost. What the owner then still sends is
void: its transaction has ended with its connection.

A queue without a marker, and one whose marker another process holds, look the same. So the owner must be the only
consumer of the queue, and must know it: it sends a *probe* there, and waits until the probe is delivered to it. Then
every former owner's connection is gone. A second probe, sent after that, comes behind all that they have committed.

A protocol, such as STOMP, implements `MarkerSession`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.targets import TargetMoved, Transactions

PAUSE_S: Final = 0.1
"""Seconds between two attempts to become the one consumer where the broker refuses a second one."""

PATIENCE_S: Final = 30.0
"""Seconds that one question waits for the end of a former owner at most; the task asks again."""

PROBES: Final = 4
"""Two consumers that take turns get two each."""

PROBE: Final = "cues-probe"
"""The header or property that marks a message which only finds out who consumes a queue."""


class BrokerRefused(RecoveryError):
    """
    The broker refuses something. Do what the text says; the task is retried.

    Attributes:
        denied: whether the user lacks a right, so that the end of another consumer does not help.
    """

    denied = False


class MarkerMessage(NamedTuple):
    """
    A message of a marker queue.

    Attributes:
        body: what it says.
        probe: the mark of a probe; None: it is a marker.
        again: whether another one is to be sent in its place at once, for instance because it was delivered before.
        token: what the session needs to take it out of the queue.
        over: the name of the marker that it has replaced; empty: the session takes that one in its transaction.
    """

    body: bytes
    probe: str | None
    again: bool
    token: Any
    over: str = ""

    @property
    def name(self) -> str:
        """What the marker that replaces this one calls it."""
        return blake2b(self.body, digest_size=16).hexdigest()


class MarkerSession(Protocol):
    """
    One connection to a broker, which is never opened again. One thread at a time uses it.

    Its methods raise an `OSError` where the connection is lost, and `BrokerRefused` where the broker refuses.
    """

    @property
    def timeout_s(self) -> float:
        """How long an answer of the broker may take, in seconds."""
        ...

    @property
    def silence_s(self) -> float:
        """After how many seconds the broker ends the connection of a process that is frozen or cut off."""
        ...

    def guard(self, queue: str) -> None:
        """Do what the broker needs so that it loses no marker when the connection is lost; called before `consume`."""
        ...

    def consume(self, queue: str) -> None:
        """Become the one consumer of a queue, whose messages stay in it until they are taken."""
        ...

    def message(self, timeout_s: float) -> MarkerMessage | None:
        """The next message that was delivered; None: none comes in this time."""
        ...

    def drop(self, message: MarkerMessage) -> None:
        """Take a message out of its queue, in no transaction."""
        ...

    def probe(self, queue: str) -> str:
        """Send a probe, in no transaction, and wait until the broker has it; gives its mark."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def write(self, item: Any) -> None:
        """Send a message of the user's in the open transaction."""
        ...

    def move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        """
        Send this marker, take the one that is held, if any, and commit the open transaction.

        A broker that takes messages in no transaction takes the one that is held behind the commit. A death between
        the two leaves both markers, and the new one names the other as the one that it is `over`.
        """
        ...

    def close(self) -> None:
        """Close the connection; an open transaction is taken back. It never raises."""
        ...


@runtime_checkable
class TakesBack(Protocol):
    """A `MarkerSession` whose broker works on messages before the commit, so that they are sent early."""

    def abort(self) -> None:
        """Take the open transaction back, and keep the connection."""
        ...


@runtime_checkable
class MovesInTurn(Protocol):
    """A `MarkerSession` that commits one transaction while messages of the next one are sent."""

    def start_move(self, queue: str, kept: bytes, held: MarkerMessage | None) -> None:
        """Begin what `move` does, and do not wait. What follows belongs to the next transaction."""
        ...

    def finish_move(self) -> None:
        """Wait until that is committed."""
        ...


Connect: TypeAlias = Callable[[], MarkerSession]


class MarkerTransactions(Transactions):
    """The transactions of one task, on one connection that is never opened again."""

    def __init__(self, connect: Connect, queue: str) -> None:
        self._connect, self._queue = connect, queue
        self._session: MarkerSession | None = None
        self._marker: MarkerMessage | None = None  # delivered, and not taken
        self._coming: bytes | None = None  # committed by this connection, and not yet delivered
        self._moving: bytes | None = None  # its commit is under way
        self._open = False  # a transaction is

    @property
    def early(self) -> bool:
        """See `Transactions`. An open transaction of a broker of queues locks nothing."""
        return isinstance(self._session, TakesBack)

    def ask(self) -> bytes | None:
        """See `Transactions`. On a connection that owns the queue it is what was delivered last."""
        if self._session is None:
            self._become_owner()
        self._take_back()
        self.finish_commit()
        held = self._held()
        return None if held is None else held.body

    def begin(self) -> None:
        """See `Transactions`. What was sent early, and was given up, is taken back."""
        self._take_back()
        self._owned.begin()
        self._open = True

    def write(self, item: Any) -> None:
        self._owned.write(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        self._move(kept, self._compared(over))

    def start_commit(self, kept: bytes, over: bytes | None) -> None:
        held, session = self._compared(over), self._owned
        if isinstance(session, MovesInTurn):
            session.start_move(self._queue, kept, held)
            self._marker, self._moving, self._open = None, kept, False
        else:
            self._move(kept, held)

    def finish_commit(self) -> None:
        session = self._owned
        if self._moving is not None and isinstance(session, MovesInTurn):
            session.finish_move()
            self._coming, self._moving = self._moving, None

    def close(self) -> None:
        """See `Transactions`. The broker takes back what is open, and gives the marker to the next owner."""
        session, self._session, self._marker, self._coming = self._session, None, None, None
        self._open, self._moving = False, None
        if session is not None:
            session.close()

    @property
    def _owned(self) -> MarkerSession:
        if self._session is None:
            raise ConnectionError("the connection was closed")
        return self._session

    def _compared(self, over: bytes | None) -> MarkerMessage | None:
        """The marker that is held; it must say this."""
        self.finish_commit()
        held = self._held()
        if (None if held is None else held.body) != over:
            raise TargetMoved("the marker of the task has been moved")
        return held

    def _move(self, kept: bytes, held: MarkerMessage | None) -> None:
        """Put this marker into the place of the one that is held, and commit."""
        self._owned.move(self._queue, kept, held)
        self._marker, self._coming, self._open = None, kept, False

    def _take_back(self) -> None:
        if self._open and isinstance(self._session, TakesBack):
            self._session.abort()
        self._open = False

    def _become_owner(self) -> None:
        session = self._consumer()
        try:
            markers = self._before(session, session.probe(self._queue))
            markers += self._before(session, session.probe(self._queue))
            while (older := _replaced(markers)) is not None:  # a former owner has died before it took it
                session.drop(older)
                markers.remove(older)
            if len(markers) > 1:
                raise RecoveryError(
                    f"the queue {self._queue} has {len(markers)} messages, and each of them says where the task stands",
                    remedy="look at them, and leave the one with the greatest step: others were copied or moved there",
                )
            if not markers:
                return
            [self._marker] = markers
            if self._marker.again:
                # Artemis moves away what was delivered too often. A new message has not been delivered yet.
                self.begin()
                self._move(self._marker.body, self._marker)
        except BaseException:
            self.close()
            raise

    def _consumer(self) -> MarkerSession:
        """A session that consumes the marker queue. Artemis refuses a second one, as long as there is one."""
        began_s = time.monotonic()
        while True:
            session = self._session = self._connect()  # at once: `close` may come while this waits for the broker
            try:
                session.guard(self._queue)
                session.consume(self._queue)
                return session
            except BrokerRefused as error:  # the broker has closed the connection
                self.close()
                if error.denied:
                    raise
                if time.monotonic() >= began_s + _patience_s(session):
                    why = f"{error}. {self._taken(session)}. Or this user may not consume the queue"
                    raise ConnectionError(why) from error
                time.sleep(PAUSE_S)  # the broker does not say when a queue becomes free
            except BaseException:
                self.close()
                raise

    def _taken(self, session: MarkerSession) -> str:
        return (
            f"Another process has the queue {self._queue}: the task's former owner, or a tool that looks. It loses the "
            f"queue with its connection, about {session.silence_s:g} s after it was frozen or cut off"
        )

    def _before(self, session: MarkerSession, probe: str) -> list[MarkerMessage]:
        """The markers that are delivered before this probe; probes of others are dropped."""
        markers: list[MarkerMessage] = []
        while True:
            found = session.message(_patience_s(session))
            if found is None:
                raise TimeoutError(self._taken(session))
            if found.probe is None:
                markers.append(found)
                continue
            session.drop(found)
            if found.probe == probe:
                return markers

    def _held(self) -> MarkerMessage | None:
        """
        The marker that this connection holds. The one that it has committed last is on its way; probes come, too.

        Raises:
            OSError: the connection is lost, so another one may hold it.
        """
        session = self._owned
        deadline = time.monotonic() + session.timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic()) if self._coming is not None else 0.0
            found = session.message(left)
            if found is None:
                if self._coming is None:
                    return self._marker
                raise TimeoutError(f"the marker in {self._queue} was committed, and was not delivered in time")
            if found.probe is not None:
                session.drop(found)
            elif self._coming is not None and found.body == self._coming:
                self._marker, self._coming = found, None
            else:
                raise ConnectionError(f"the queue {self._queue} has a message that this owner did not send")


def _replaced(markers: Sequence[MarkerMessage]) -> MarkerMessage | None:
    """One that another marker names as the one which it has replaced; they may come in any order."""
    return next((one for one in markers if any(two is not one and two.over == one.name for two in markers)), None)


def _patience_s(session: MarkerSession) -> float:
    """How long a former owner may be there still, with some margin, in seconds."""
    return max(session.timeout_s, min(1.2 * session.silence_s, PATIENCE_S))


def shared_markers(connect: Connect, markers: str) -> list[str]:
    """
    Say what is wrong if a second consumer gets messages of a queue that has one: exactly once rests on it.

    Args:
        connect: makes a session.
        markers: what the names of the marker queues begin with.

    Raises:
        RetriableError: the broker does not answer.
        ConfigError: it is another kind of broker.
        RecoveryError: it refuses the login.
    """
    queue = f"{markers}.check.{secrets.token_hex(8)}"
    sessions: list[MarkerSession] = []
    try:
        for _ in range(2):
            sessions.append(connect())
            try:
                sessions[-1].consume(queue)
            except BrokerRefused:
                if len(sessions) == 1:
                    raise
                return []  # a second consumer is refused, as it should be
        if not _gets_some(sessions[0], sessions[1], queue):
            return []
    except OSError as error:
        raise RetriableError(f"the broker does not answer: {error}", code="TARGET") from None
    finally:
        for one in sessions:
            one.close()
    setting = f'<address-setting match="{markers}.#"><default-max-consumers>1</default-max-consumers></address-setting>'
    why = (
        f"the broker gives messages of one queue to two consumers, and each queue {markers}.marker.* needs "
        f"one at a time. In broker.xml of Artemis write {setting}"
    )
    return [why]


def _gets_some(first: MarkerSession, second: MarkerSession, queue: str) -> bool:
    """
    Whether the second consumer gets one of some messages while the first one is there.

    Raises:
        OSError: a connection is lost. What the first one held goes to the second one then, as it should.
    """
    for _ in range(PROBES):
        first.probe(queue)
    came, deadline = 0, time.monotonic() + first.timeout_s
    while came < PROBES and time.monotonic() < deadline:
        if (found := first.message(0.05)) is not None:
            first.drop(found)
            came += 1
        if (other := second.message(0.0)) is not None:
            second.drop(other)
            first.probe(queue)
            return True
    return False
