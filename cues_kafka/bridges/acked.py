"""
Sources whose messages are acknowledged, such as queues of other brokers, behind a feed.

A broker forgets a message when it is acknowledged, and delivers it again otherwise. So a message is acknowledged behind
its commit in Kafka, never before. A death between the two makes the broker deliver it again. The *ledger* tells then:
the place of the feed names the newest deliveries by their ids, and is committed in the transaction of their messages. A
redelivery whose id is in the ledger is dropped.

The rules. Each one is taken out by a test, which then finds a loss, a duplicate or a standstill:

- B1: the ledger names the newest deliveries, redeliveries included, at least as many as the broker makes without an
  acknowledgement (`prefetch`), whatever was acknowledged. Acknowledgements are not confirmed, and may be lost.
- B2: a message is acknowledged behind the commit of its id, in the order of deliveries. That holds for a redelivery
  which is dropped, too: the transaction that names it may still be aborted.
- B3: a read from another place than the last one closes the connection. What was delivered on it and became void would
  never come again on it.
- B4: a committed place acknowledges deliveries of its own attempt only. Counts of another attempt mean other messages.
- B5: a batch has at most as many messages as the broker delivers without an acknowledgement. A larger one never fills.
- B6: ids alone decide, together with the broker's mark. Times, order and contents do not.
- B7: a part that goes to another process is let go of: its connection would keep messages from the other process.

`Acked` has all of them. A driver of a broker implements `Acknowledging` and `Deliveries`. It never reconnects by
itself: a lost connection is an `OSError`, and the next read connects again. B1 expects that a part has one consumer at
a time, and that the broker redelivers before it delivers new messages, in the order of the first deliveries. For one
that does not, give a `ledger` that is larger than `prefetch`. Where ids are never used twice (`unique`), the process
also remembers what the ledger had at each connection: what comes again behind any number of new messages is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cues_kafka.bridges.deliveries import Acknowledging, Arrival, Deliveries
from cues_kafka.bridges.ledger import MOST_IDS, AttemptLedger, Ledger
from cues_kafka.errors import GraphError
from cues_kafka.graph.feed import LatePlace
from cues_kafka.graph.message import Message
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")


class AckedPart:
    """One part of a source in one process: its connection, and what was delivered on it."""

    def __init__(
        self, broker: Acknowledging, number: int, room: int, arrived: Callable[[], None], *, unique: bool = False
    ) -> None:
        self._broker = broker
        self._unique = unique
        self._warned = False
        self._number = number
        self._room = room
        self._arrived = arrived
        self._lock = threading.RLock()  # of the fields below: `void` comes on any thread
        self._memory: AttemptLedger | None = None  # of the attempt; None: the next read begins one
        self._connection: Deliveries | None = None
        self._held: deque[Arrival] = deque()  # delivered and not yet given
        self._pending: deque[tuple[int, Any]] = deque()  # not acknowledged: count to be committed before, and token
        self._told: str | None = None
        self._committed = -1  # count of messages of this attempt whose commit is known

    def read(self, place: str | LatePlace | None, limit: int) -> Iterator[tuple[Message[Any], LatePlace]]:
        memory, lock, left = self._stand_at(place), self._lock, limit
        while left:
            with lock:  # once for each message: what was offered is taken, and the next one is found
                if self._memory is not memory:
                    return
                if memory.offered is not None:
                    self._accept(memory)
                delivery = self._next(memory)
                connection = self._connection
            if delivery is not None:
                left -= 1
                yield delivery.message, memory.offer(delivery, connection)
            elif not self._receive(memory, limit):
                return
        with lock:
            if self._memory is memory:
                self._accept(memory)

    def committed(self, place: str) -> None:
        """Acknowledge what is committed up to this place."""
        with self._lock:
            self._told, memory = place, self._memory
            if memory is None:
                return
            if memory.offered is not None and memory.offered.place == place:
                self._accept(memory)
            count = memory.covers(place)
            if count is None:
                self.void()
                return
            self._committed = max(self._committed, count)
        self._settle()

    def void(self) -> None:
        """End the attempt, and close its connection. It may come on any thread."""
        with self._lock:
            self._memory = None
            self._committed = -1
            self._disconnect()

    def _stand_at(self, place: str | LatePlace | None) -> AttemptLedger:
        """Go on in the same attempt, or begin one at another place (B3)."""
        with self._lock:
            memory = self._memory
            if memory is not None and (offered := memory.offered) is not None:
                if place == offered.place:
                    self._accept(memory)
                elif place == memory.place:  # it was given and not taken, such as while a registry did not answer
                    memory.offered = None
                    if offered.connection is self._connection:
                        self._held.appendleft(offered.delivery)
            if memory is None or place != memory.place:
                former = {} if memory is None else memory.former_at(place)
                self.void()
                place = None if place is None else str(place)
                self._memory = memory = AttemptLedger(place, self._room)
                memory.former = former
                self._committed = memory.count if place == self._told else -1
            return memory

    def _accept(self, memory: AttemptLedger) -> None:
        if (offered := memory.offered) is not None:
            memory.accept()
            if offered.connection is self._connection:
                self._pending.append((memory.count, offered.delivery.token))

    def _next(self, memory: AttemptLedger) -> Arrival | None:
        """The next delivery that is to be taken; None: nothing more has been received. The lock is held."""
        held = self._held
        while held:
            delivery = held.popleft()
            count = memory.known(delivery)
            if count is None:
                return delivery
            if memory.late and not self._warned:
                self._warn(count)
            self._pending.append((count, delivery.token))
        return None

    def _receive(self, memory: AttemptLedger, limit: int) -> bool:
        """Acknowledge what is due, and receive what has come; whether something has."""
        self._settle()
        connection = self._connected(memory)
        with self._loses(connection):
            taken = connection.take(limit)
        with self._lock:
            if not taken or self._connection is not connection:
                return False
            self._held.extend(taken)
        return True

    def _warn(self, count: int) -> None:
        """Say once that a redelivery is dropped which a new process would take for a message."""
        self._warned = True
        log.warning(
            "the broker delivered again behind more new messages than the ledger names",
            message=self._broker.show(f"message {count}"),
            effect="it was dropped; behind a restart of the process it would have come twice",
            remedy="use a queue without priorities and with one consumer, or a larger prefetch=",
        )

    def _settle(self) -> None:
        """Acknowledge what is committed, in the order of deliveries (B2)."""
        with self._lock:
            connection, tokens, pending = self._connection, list[Any](), self._pending
            while pending and pending[0][0] <= self._committed:
                tokens.append(pending.popleft()[1])
        if connection is not None and tokens:
            with self._loses(connection):
                connection.ack(tokens)

    def _connected(self, memory: AttemptLedger) -> Deliveries:
        with self._lock:
            if self._connection is not None:
                return self._connection
        connection = self._broker.connect(self._number, self._arrived)
        with self._lock:
            if self._memory is memory:
                self._connection = connection
                if getattr(connection, "fresh", False):
                    memory.forget()
                    if memory.count and (tells := getattr(connection, "forgotten", None)):
                        tells()
                if self._unique:
                    memory.remember()
                return connection
        connection.close()
        raise InterruptedError("the part was released while it connected")

    @contextmanager
    def _loses(self, connection: Deliveries) -> Iterator[None]:
        """After a failure the connection is not used again."""
        try:
            yield
        except BaseException:
            with self._lock:
                if self._connection is connection:
                    self._disconnect()
            raise

    def _disconnect(self) -> None:
        """What was delivered comes again on the next connection, and is known there as far as it was taken."""
        connection, self._connection = self._connection, None
        self._held.clear()
        self._pending.clear()
        if connection is not None:
            connection.close()


class Acked:
    """
    A `ReplayableSource` that acknowledges messages of a broker behind their commit in Kafka.

    The `open` of a declared source returns one, for one process.

    Attributes:
        most: rows of a batch at most (B5): half of `prefetch`, so that the next batch fills during a commit.
        prompt: commits are reported to it at once, because the broker waits for acknowledgements.
    """

    prompt = True

    def __init__(
        self,
        broker: Acknowledging,
        *,
        parts: int = 1,
        prefetch: int,
        ledger: int | None = None,
        unique: bool = False,
    ) -> None:
        """
        Make the source; it connects when it is read.

        Args:
            broker: connects.
            parts: how many parts are read side by side, each on a connection of its own.
            prefetch: how many deliveries the broker makes on a connection without an acknowledgement.
            ledger: ids that are kept, where a redelivery may come after more new messages than `prefetch`.
            unique: whether an id is never used for another message. Then a redelivery is known behind any number of
                new messages, as long as the process lives that began with its id in the ledger, or took it.

        Raises:
            GraphError: `ledger` is less than `prefetch`, or one of them is out of range.
        """
        room = prefetch if ledger is None else ledger
        if not 1 <= prefetch <= MOST_IDS:
            raise GraphError(f"prefetch={prefetch!r}: takes a whole number from 1 to {MOST_IDS:,}.")
        if not prefetch <= room <= MOST_IDS:
            raise GraphError(f"ledger={ledger!r}: takes a whole number from prefetch={prefetch} to {MOST_IDS:,}.")
        self.most: int = (prefetch + 1) // 2
        self._broker = broker
        self._wake: Callable[[], None] = lambda: None
        self._parts = [AckedPart(broker, number, room, self._arrived, unique=unique) for number in range(parts)]

    def parts(self) -> int:
        return len(self._parts)

    def read(self, part: int, place: Any, limit: int) -> Iterator[tuple[Message[Any], Any]]:
        """See `ReplayableSource`. Its places are `LatePlace`s; it takes texts as well."""
        return self._parts[part].read(place, limit)

    def committed(self, part: int, place: str) -> None:
        """Acknowledge what is committed."""
        self._parts[part].committed(place)

    def release(self, part: int) -> None:
        """Another process may read this part from now on (B7)."""
        self._parts[part].void()

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` when messages arrive."""
        self._wake = wake

    def show(self, place: str) -> str:
        """The number of the message among all that the feed has taken."""
        return self._broker.show(f"message {Ledger.read(place).taken}")

    def close(self) -> None:
        for part in self._parts:
            part.void()

    def _arrived(self) -> None:
        self._wake()
