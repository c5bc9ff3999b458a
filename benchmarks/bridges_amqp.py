"""The plain loops of `bridges_side` for AMQP 1.0, with the reactor of qpid-proton on a thread of its own."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

Row = tuple[bytes, list[tuple[str, str | bytes]], Any]
"""As `bridges_side` has it."""


class Loop(MessagingHandler, ABC):  # type: ignore[misc]  # Proton has no types
    """A connection whose thread does what others ask it to."""

    def __init__(self, url: str, window: int) -> None:
        super().__init__(prefetch=window, auto_accept=False)
        self._url = url
        self._asked = EventInjector()
        self.open = threading.Event()

    def begin(self) -> None:
        """Connect, and wait until the link is open."""
        container = Container(self)
        threading.Thread(target=container.run, daemon=True).start()
        self.open.wait()

    def on_start(self, event: Any) -> None:
        """The reactor runs."""
        self.container = event.container
        event.container.selectable(self._asked)
        self.connection = event.container.connect(self._url, allowed_mechs="PLAIN ANONYMOUS")
        self.link()

    @abstractmethod
    def link(self) -> None:
        """Open the link; on the reactor's thread."""

    def on_link_opened(self, _: Any) -> None:
        """The broker has answered."""
        self.open.set()

    def ask(self, call: Callable[[], None]) -> None:
        """Call it on the reactor's thread."""
        self._asked.trigger(ApplicationEvent("asked", subject=call))

    def close(self) -> None:
        """Disconnect, which ends the thread."""
        self.ask(self.connection.close)
        self.ask(self._asked.close)

    def on_asked(self, event: Any) -> None:
        """It is that thread."""
        event.subject()


class AmqpReader(Loop):
    """A receiver whose deliveries are accepted by hand."""

    def __init__(self, url: str, name: str, window: int, batch: int, wait_s: float) -> None:
        super().__init__(url, window)
        self._name, self._batch, self._wait_s = name, batch, wait_s
        self._rows: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self.begin()

    def link(self) -> None:
        """Receive."""
        self.container.create_receiver(self.connection, self._name)

    def on_message(self, event: Any) -> None:
        """A message has arrived."""
        one = event.message
        self._rows.put((bytes(one.body), [("message-id", str(one.id))] if one.id else [], event.delivery))

    def take(self) -> list[Row]:
        """Up to a batch of messages."""
        rows: list[Row] = []
        try:
            rows.append(self._rows.get(timeout=self._wait_s))
            while len(rows) < self._batch:
                rows.append(self._rows.get_nowait())
        except queue.Empty:
            pass
        return rows

    def ack(self, tokens: Sequence[Any]) -> None:
        """Accept each; the broker does not answer."""

        def accept() -> None:
            for one in tokens:
                self.accept(one)

        self.ask(accept)


class AmqpWriter(Loop):
    """A transaction of the broker for each batch."""

    def __init__(self, url: str, name: str, window: int) -> None:
        super().__init__(url, window)
        self._name = name
        self._rows: deque[tuple[str, bytes]] = deque()
        self._transaction: Any = None
        self._committed = threading.Semaphore(0)
        self.begin()

    def link(self) -> None:
        """Send."""
        self._sender = self.container.create_sender(self.connection, self._name)

    def publish(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Send all, and wait until the transaction is committed."""

        def send() -> None:
            self._rows.extend(rows)
            self.container.declare_transaction(self.connection, handler=self)

        self.ask(send)
        self._committed.acquire()

    def on_transaction_declared(self, event: Any) -> None:
        """The broker has begun it."""
        self._transaction = event.transaction
        self._send()

    def on_sendable(self, _: Any) -> None:
        """The broker takes more."""
        self._send()

    def _send(self) -> None:
        while self._transaction is not None and self._rows and self._sender.credit:
            number, value = self._rows.popleft()
            self._transaction.send(self._sender, Message(body=value, id=number, durable=True, inferred=True))
        if self._transaction is not None and not self._rows:
            transaction, self._transaction = self._transaction, None
            transaction.commit()

    def on_transaction_committed(self, _: Any) -> None:
        """It is done."""
        self._committed.release()
