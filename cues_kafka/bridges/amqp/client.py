"""One connection to an AMQP 1.0 broker: a queue that it consumes, links that it sends by, and transactions.

Objects of Proton count their references without a lock. So none of them leaves this class: deliveries have numbers, and
links the names of their addresses. Methods that end with `_now` are called while `news` is held.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import proton
from proton import Delivery, Described, Terminus, symbol, ulong

from cues_kafka.bridges.amqp.engine import ACTIVE, LEAVE_S, AmqpEnded, AmqpEngine, AmqpLogin
from cues_kafka.bridges.amqp.messages import AmqpMessage
from cues_kafka.bridges.amqp.outgoing import ACCEPTED, TRANSACTIONAL, control, encoded, refusal
from cues_kafka.errors import OutputError

MOST_BYTES: Final = 64 * 1024 * 1024
"""The largest message that is taken."""

MOST_LINKS: Final = 100
"""Links that are kept for sending. A function may name any number of queues."""

DECLARED: Final = 0x33
"""The state of an answer that names a transaction."""

SELECTOR: Final = "apache.org:selector-filter:string"

COORDINATOR: Final = ("", "coordinator")
"""The address and the kind of the link that begins and ends transactions."""


class Taken(NamedTuple):
    """
    A delivery as it has come.

    Attributes:
        data: the encoded message.
        number: of the delivery on this connection.
    """

    data: bytes
    number: int


class AmqpConnection(AmqpEngine):
    """See `AmqpEngine`."""

    def __init__(self, login: AmqpLogin, name: str, *, on_lost: Callable[[], None] = lambda: None) -> None:
        self._taker: Callable[[Taken], None] = lambda _: None
        self._receiver: Any = None
        self._senders: dict[tuple[str, str], Any] = {}  # by address and kind, the one that was used last at the end
        self._deliveries: dict[int, Any] = {}
        self._then: dict[int, Callable[[int], None]] = {}  # called with the number when it has its outcome
        self._taking = False  # a transaction of acknowledgements is under way
        self._owed = 0  # deliveries that were forgotten, and for which the broker may make no new ones yet
        self._numbers = 0
        super().__init__(login, name, on_lost=on_lost)

    # What comes in

    def receive(self, address: str, taker: Callable[[Taken], None], *, credit: int, selector: str = "") -> None:
        """
        Consume a queue, one for each connection.

        Args:
            address: of the queue.
            taker: called with each delivery, on the connection's thread, while `news` is held.
            credit: how many deliveries the broker may make without `take`.
            selector: which messages, in the language of JMS; empty: all.

        Raises:
            OSError: the connection is lost, or the broker does not answer.
            AmqpRefused: it refuses.
        """
        self._taker = taker
        with self.engine():
            self._receive_now(address, credit, selector)
        self.wait(lambda: _is_open(self._receiver, self._receiver.remote_source), f"has not let us consume {address}")

    def take(self, numbers: Iterable[int], transaction: bytes | None = None) -> None:
        """Take deliveries out of the queue; in a transaction, `forget` them behind its commit."""
        state = None if transaction is None else [transaction, Described(ulong(ACCEPTED), [])]
        with self.engine():
            for number in numbers:
                self._accept_now(number, state)
            if transaction is None:
                self._forget_now(numbers)

    def take_confirmed(self, numbers: Sequence[int]) -> None:
        """
        Take deliveries out of the queue in a transaction of their own, which the connection's thread goes on with.

        It waits until that of the call before is committed, so one transaction at most is not confirmed. The broker
        makes new deliveries behind the commit.

        Raises:
            OSError, AmqpRefused: see `receive`.
        """
        self.wait(lambda: not self._taking, "has not confirmed acknowledgements")
        self.open_sender(*COORDINATOR)
        self._taking = True
        with self.engine():
            self._then[self._send_now(COORDINATOR, control("declare", [None]), None)] = partial(self._take_now, numbers)

    def settle(self) -> None:
        """Wait for a moment until the broker has committed what `take_confirmed` took. It never raises."""
        with self.news:
            self.news.wait_for(lambda: not (self._taking and self.is_open), LEAVE_S)

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget deliveries that were taken in a transaction; the broker may make as many new ones."""
        with self.engine():
            self._forget_now(numbers)

    # What goes out

    def open_sender(self, address: str, kind: str = "") -> None:
        """
        Open a link that sends to an address, if there is none.

        Args:
            address: a queue or a topic; empty: none, as of a coordinator.
            kind: `queue`, `topic`, or `coordinator` of transactions; empty: as the broker has it.

        Raises:
            OSError, AmqpRefused: see `receive`.
        """
        key = (address, kind)
        if key in self._senders:
            self._senders[key] = self._senders.pop(key)
            return
        with self.engine():
            self._open_now(key)
        self.wait(
            lambda: _is_open(self._senders[key], self._senders[key].remote_target) and self._senders[key].credit > 0,
            f"takes no messages for {address}" if address else "has not answered about transactions",
        )

    def send(self, message: AmqpMessage, transaction: bytes | None = None) -> int:
        """
        Send a message, in a transaction if one is given, and give its number; see `outcomes`.

        Raises:
            OSError, AmqpRefused: see `open_sender`.
            OutputError: it is larger than the broker takes.
        """
        [number] = self.send_all([message], transaction)
        return number

    def send_all(self, messages: Sequence[AmqpMessage], transaction: bytes | None = None) -> list[int]:
        """Send messages in this order, and give their numbers; see `send`."""
        numbers = list[int]()
        for key, some in groupby(messages, attrgetter("name", "kind")):
            self.open_sender(*key)
            data = [encoded(one) for one in some]
            with self.engine():
                numbers += [self._send_now(key, one, transaction) for one in data]
        return numbers

    def outcomes(self, numbers: Sequence[int], what: str = "has not confirmed what was sent") -> list[str]:
        """
        Wait until the broker has said what becomes of all of these; gives for each why it was not taken, or nothing.

        Raises:
            OSError: the connection is lost, or nothing comes in time.
            AmqpRefused: it refuses.
        """
        waiting = deque(numbers)

        def some_has() -> bool:
            """Whether the next one has its outcome; those behind it are not asked about."""
            before = len(waiting)
            while waiting and self._has_outcome(waiting[0]):
                waiting.popleft()
            return len(waiting) < before

        while waiting:
            self.wait(some_has, what)
        with self.engine():
            found = [refusal(self._deliveries[number]) for number in numbers]
            self._settle_now(numbers)
        return found

    # Transactions

    def declare(self) -> bytes:
        """
        Begin a transaction, and give its name.

        Raises:
            OSError, AmqpRefused: see `receive`.
        """
        number = self._control("declare", [None])
        with self.engine():
            name = self._declared_now(number)
        if not name:
            raise AmqpEnded("the AMQP broker has not begun a transaction")
        return name

    def discharge(self, transaction: bytes) -> None:
        """
        Commit a transaction, and wait until that is done.

        Raises:
            OSError, AmqpRefused: see `receive`; it may be committed or not.
        """
        [why] = self.outcomes([self._control("discharge", [transaction, False])])
        if why:
            raise AmqpEnded(f"the AMQP broker has not committed the transaction: {why}")

    def _control(self, what: str, values: Sequence[Any]) -> int:
        """Tell the coordinator of transactions something, and wait for the answer."""
        self.open_sender(*COORDINATOR)
        with self.engine():
            number = self._send_now(COORDINATOR, control(what, values), None)
        self.wait(lambda: self._has_outcome(number), f"has not answered to {what}")
        return number

    # The engine; `news` is held

    def took(self, delivery: Delivery, link: proton.Link) -> None:
        if self._then and link.is_sender:
            number = int(delivery.tag)
            if number in self._then and self._has_outcome(number):
                self._then.pop(number)(number)
        if not (link.is_receiver and delivery.readable) or delivery.partial:
            return
        if delivery.aborted:
            delivery.settle()
            self._owed += 1
            self._allow_now()
            return
        data = bytes(link.recv(delivery.pending) or b"")
        link.advance()
        self._numbers += 1
        self._deliveries[self._numbers] = delivery
        self._allow_now()
        self._taker(Taken(data, self._numbers))

    def _receive_now(self, address: str, credit: int, selector: str) -> None:
        link = self._receiver = self._session.receiver(f"{address}-{uuid.uuid4().hex[:8]}")
        link.source.address = address
        link.source.capabilities.put_object(symbol("queue"))
        if selector:
            link.source.filter.put_object({symbol("selector"): Described(symbol(SELECTOR), selector)})
        link.snd_settle_mode = proton.Link.SND_UNSETTLED
        link.max_message_size = MOST_BYTES
        link.open()
        link.flow(credit)

    def _open_now(self, key: tuple[str, str]) -> None:
        address, kind = key
        for other in list(self._senders)[: 1 - MOST_LINKS or None]:
            if other != COORDINATOR and not self._senders[other].unsettled:
                self._senders.pop(other).close()
        link = self._senders[key] = self._session.sender(f"{address or kind}-{uuid.uuid4().hex[:8]}")
        if key == COORDINATOR:
            link.target.type = Terminus.COORDINATOR
            link.target.capabilities.put_object(symbol("amqp:local-transactions"))
        else:
            link.target.address = address
            link.target.durability = Terminus.DELIVERIES  # RabbitMQ declares a queue of this kind for /queue/NAME
            if kind:
                link.target.capabilities.put_object(symbol(kind))
        link.snd_settle_mode = proton.Link.SND_UNSETTLED
        link.open()

    def _send_now(self, key: tuple[str, str], data: bytes, transaction: bytes | None) -> int:
        link = self._senders[key]
        most = link.remote_max_message_size
        if most and len(data) > most:
            raise OutputError(
                f"a message for {key[0]} has {len(data):,} bytes with its headers, and the broker takes {most:,}"
            )
        self._numbers += 1
        delivery = self._deliveries[self._numbers] = link.delivery(f"{self._numbers}")
        link.stream(data)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL)
        link.advance()
        return self._numbers

    def _has_outcome(self, number: int) -> bool:
        delivery = self._deliveries[number]
        return bool(delivery.remote_state or delivery.settled)

    def _declared_now(self, number: int) -> bytes:
        answer = self._deliveries[number]
        found = answer.remote.data if answer.remote_state == DECLARED else None
        self._settle_now([number])
        return bytes(found[0]) if found else b""

    def _take_now(self, numbers: Sequence[int], declared: int) -> None:
        """The transaction has begun: take the deliveries in it, and commit it."""
        name = self._declared_now(declared)
        if not name:
            self._lose(AmqpEnded("the AMQP broker has not begun a transaction"))
            return
        state = [name, Described(ulong(ACCEPTED), [])]
        for number in numbers:
            self._accept_now(number, state)
        discharge = self._send_now(COORDINATOR, control("discharge", [name, False]), None)
        self._then[discharge] = partial(self._taken_now, numbers)

    def _taken_now(self, numbers: Sequence[int], discharge: int) -> None:
        why = refusal(self._deliveries[discharge])
        self._settle_now([discharge])
        if why:
            self._lose(AmqpEnded(f"the AMQP broker has not committed the transaction: {why}"))
            return
        self._taking = False
        self._forget_now(numbers)

    def _accept_now(self, number: int, state: list[Any] | None) -> None:
        delivery = self._deliveries[number]
        if state is None:
            delivery.update(Delivery.ACCEPTED)
        else:
            delivery.local.data = state
            delivery.update(TRANSACTIONAL)

    def _settle_now(self, numbers: Iterable[int]) -> int:
        count = 0
        for number in numbers:
            self._deliveries.pop(number).settle()
            count += 1
        return count

    def _forget_now(self, numbers: Iterable[int]) -> None:
        self._owed += self._settle_now(numbers)
        self._transport.pending()  # what was taken goes before the credit, so the broker reads it first
        self._allow_now()

    def _allow_now(self) -> None:
        """
        Let the broker make a new delivery for each one that was forgotten, when it has made all that it might.

        RabbitMQ 3.10 reads credit as if nothing was under way. What is under way then comes in addition, again and
        again: it was seen to have 1,077 deliveries without an acknowledgement where 20 were allowed. Behind the last
        delivery that it might make, nothing is under way.
        """
        if self._owed and self._receiver.credit <= 0:
            owed, self._owed = self._owed, 0
            self._receiver.flow(owed)


def _is_open(link: Any, terminus: Any) -> bool:
    """Whether a link is open. A broker that refuses one opens it without a terminus, and closes it then."""
    return bool(link.state == ACTIVE and terminus.type != Terminus.UNSPECIFIED)
