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

import re
import secrets
import threading
from binascii import b2a_base64
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from cues_kafka.errors import GraphError, RecoveryError
from cues_kafka.graph.feed import LatePlace
from cues_kafka.graph.message import Message
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")

ID_CHARACTERS: Final = 16
"""Characters of an id in a place: 12 bytes of a digest in base64, so two ids of a ledger are never taken for one."""

MOST_IDS: Final = 10_000
"""Ids of a ledger. A place has at most 200,000 characters."""

_HEAD: Final = re.compile(r"(\d{1,20})\.([0-9a-f]{8}):")
_PLACE: Final = re.compile(r"(\d{1,20})\.([0-9a-f]{8}):((?:[A-Za-z0-9_-]{16})*)")


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


class Ledger(NamedTuple):
    """
    What a place says.

    Attributes:
        taken: count of messages up to it.
        attempt: the attempt that gave it, see B4.
        ids: digests of the newest ids, the oldest first, each of `ID_CHARACTERS`.
    """

    taken: int
    attempt: str
    ids: str

    @classmethod
    def read(cls, place: str | LatePlace | None) -> Ledger:
        """
        Read a place; None: the beginning.

        Raises:
            RecoveryError: another kind of source gave this place.
        """
        if place is None:
            return cls(0, "", "")
        if (found := _PLACE.fullmatch(str(place))) is None:
            raise RecoveryError(
                f"{str(place)[:80]!r} is not a place of a source with acknowledgements: the feed had another source "
                "before",
                remedy="give the feed a new name=, or its former source",
            )
        return cls(int(found[1]), found[2], found[3])

    @classmethod
    def head(cls, place: str | LatePlace) -> tuple[int, str]:
        """Count and attempt of a place; the ids behind them are not looked at. See `read` for what is raised."""
        if (found := _HEAD.match(str(place))) is None:
            return cls.read(place)[:2]
        return int(found[1]), found[2]

    def split(self) -> list[str]:
        """The digests."""
        return [self.ids[at : at + ID_CHARACTERS] for at in range(0, len(self.ids), ID_CHARACTERS)]

    def __str__(self) -> str:
        return f"{self.taken}.{self.attempt}:{self.ids}"


@lru_cache(maxsize=32)
def digest(name: str) -> str:
    """An id as a ledger has it. One that is not known is offered next, so those of the last ones are kept."""
    made = blake2b(name.encode(errors="surrogatepass"), digest_size=12).digest()
    return b2a_base64(made, newline=False).translate(_FOR_URLS).decode()


_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")


class LedgerText(LatePlace):
    """
    The ids of a ledger behind one more delivery, as a text that is made when it is needed.

    Each one knows the ids before it. A text of 4,000 ids has 64 kB, and two copies of it for each message took longer
    than all else that a ledger does.

    Args:
        before: the ids before it.
        mine: that of the delivery.
        most: characters of all ids.
    """

    __slots__ = ("_most", "before", "length", "mine")

    before: str | LedgerText
    length: int

    LONGEST: Final = 1_000
    """Texts behind each other of which none is made yet, at most."""

    def __init__(self, before: str | LedgerText, mine: str, most: int) -> None:
        length = before.length + 1 if isinstance(before, LedgerText) else 1
        if length > self.LONGEST:
            before, length = str(before), 1
        self.before, self.mine, self._most, self.length = before, mine, most, length

    def __str__(self) -> str:
        if not self.length:  # it was made
            return self.mine
        parts = [self.mine]
        before = self.before
        while isinstance(before, LedgerText) and before.length:
            parts.append(before.mine)
            before = before.before
        parts.append(before if isinstance(before, str) else before.mine)
        parts.reverse()
        self.mine = "".join(parts)[-self._most :]
        self.before, self.length = "", 0
        return self.mine


class LedgerPlace(LatePlace):
    """
    The place behind a delivery that is offered. Its text has the whole ledger, so it is made for one row of a batch.

    Args:
        count: of messages up to it.
        attempt: the one that gives it.
        ids: of the ledger with the delivery.
        most: characters of all ids.
    """

    __slots__ = ("_attempt", "_count", "_most", "ids")

    def __init__(self, count: int, attempt: str, ids: str | LedgerText, most: int) -> None:
        self._count, self._attempt, self.ids, self._most = count, attempt, ids, most

    def __str__(self) -> str:
        return f"{self._count}.{self._attempt}:{str(self.ids)[-self._most :]}"


class Offered(NamedTuple):
    """
    A delivery that was given, until the next call shows whether it was taken.

    Attributes:
        delivery: the one.
        place: the place behind it.
        digest: of its id.
        connection: the one that brought it; on another one it cannot be acknowledged.
    """

    delivery: Arrival
    place: LedgerPlace
    digest: str
    connection: Deliveries | None


def new_attempt() -> str:
    """A name that no other attempt has (B4)."""
    return secrets.token_hex(4)


class AttemptLedger:
    """
    The ledger of an attempt: places that follow each other without a recovery between them.

    Attributes:
        base: the place that it began with; None: the beginning.
        place: the newest one that was taken.
        offered: the delivery that was given last; None: it was taken.
        count: messages up to `place`.
        former: ids that the ledger had when connections began, and their counts. They stay known when the ledger has
            forgotten them; at most `MOST_IDS`, the newest.
        late: whether a redelivery came that only `former` knew.
    """

    def __init__(self, place: str | None, room: int) -> None:
        begun = Ledger.read(place)
        self.base = place
        self.place: str | LedgerPlace | None = place
        self.offered: Offered | None = None
        self.count = begun.taken
        self.former: dict[str, int] = {}
        self.late = False
        self._attempt = new_attempt()
        self._room = room
        ids = begun.split()
        # The oldest first. A plain dict would search for its first entry behind all that were taken out before.
        self._counts: dict[str, int] = OrderedDict(
            (one, begun.taken - len(ids) + nth) for nth, one in enumerate(ids, 1)
        )
        self._text: str | LedgerText = "".join(self._counts)

    def offer(self, delivery: Arrival, connection: Deliveries | None) -> LedgerPlace:
        """The place behind a delivery, which is offered from now on."""
        mine = digest(delivery.id) if delivery.id else ""
        most = self._room * ID_CHARACTERS
        ids = LedgerText(self._text, mine, most) if mine else self._text
        place = LedgerPlace(self.count + 1, self._attempt, ids, most)
        self.offered = Offered(delivery, place, mine, connection)
        return place

    def accept(self) -> None:
        """Note that the offered delivery was taken."""
        if self.offered is None:
            return
        (_, place, mine, _), self.offered = self.offered, None
        self.place = place
        self.count += 1
        if mine:
            self._note(mine, self.count, getattr(place, "ids", None))

    def known(self, delivery: Arrival) -> int | None:
        """
        The count up to which a redelivery must be committed before it is acknowledged; None: it is a message to take.

        It is the newest delivery from now on (B1).
        """
        if not (delivery.again and delivery.id):
            return None
        mine = digest(delivery.id)
        count = self._counts.get(mine)
        if count is None:
            if (count := self.former.get(mine)) is None:
                return None
            self.late = True
        self._note(mine, count)
        return count

    def remember(self) -> None:
        """Keep what former connections may have brought: it may come again behind any number of new messages."""
        older = {one: at for one, at in self.former.items() if one not in self._counts}
        self.former = dict(list((older | self._counts).items())[-MOST_IDS:])

    def former_at(self, place: str | LatePlace | None) -> dict[str, int]:
        """What of `former` is committed up to the place of the next attempt; the rest is void."""
        count = self.covers(str(place)) if place is not None else None
        return {} if count is None else {one: at for one, at in self.former.items() if at <= count}

    def forget(self) -> None:
        """Forget all ids: the broker uses them for other messages."""
        self._counts.clear()
        self.former.clear()
        self._text = ""

    def covers(self, place: str) -> int | None:
        """How many messages are committed with a place; None: it is of another attempt (B4)."""
        taken, attempt = Ledger.head(place)
        return taken if place == self.base or attempt == self._attempt else None

    def _note(self, mine: str, count: int, ids: LedgerText | None = None) -> None:
        """Make an id the newest one; `ids` are those of the ledger with it, where they are there already."""
        counts = self._counts
        moves = counts.pop(mine, None) is not None
        counts[mine] = count
        while len(counts) > self._room:
            del counts[next(iter(counts))]
        if moves:  # most are new
            self._text = "".join(counts)
        else:
            self._text = ids or LedgerText(self._text, mine, self._room * ID_CHARACTERS)


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
        self.most = (prefetch + 1) // 2
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
        """Disconnect."""
        for part in self._parts:
            part.void()

    def _arrived(self) -> None:
        self._wake()
