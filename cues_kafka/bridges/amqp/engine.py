"""The engine of a connection to an AMQP 1.0 broker: Qpid Proton's, with a thread that reads and writes.

Proton's engine does no I/O: it takes bytes and gives bytes. So TLS is Python's own, and a connection that is lost stays
lost: its owner makes another one. Any thread may use the engine while it holds `AmqpEngine.news`; the thread exchanges
the bytes.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import proton
from proton import Delivery, Endpoint, Event, symbol

from cues_kafka.bridges.amqp.address import AmqpAddress
from cues_kafka.bridges.marker import BrokerRefused
from cues_kafka.bridges.tls import early_end, tls_refusal

WHO: Final = "the AMQP broker"

READ_BYTES: Final = 64 * 1024

LEAVE_S: Final = 1.0
"""How long closing waits for the broker's goodbye."""

ACTIVE: Final = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE

PASSING: Final = frozenset({
    "amqp:connection:forced", "amqp:connection:framing-error", "amqp:internal-error", "amqp:link:detach-forced",
    "amqp:link:transfer-limit-exceeded", "amqp:session:window-violation", "amqp:resource-locked",
    "amqp:resource-deleted", "amqp:resource-limit-exceeded",
})  # fmt: skip
"""Conditions under which a broker ends a connection that may be made again at once."""


class AmqpRefused(BrokerRefused):
    """The broker refuses something. Do what the text says; the task is retried."""


class AmqpEnded(ConnectionError):
    """
    The broker has ended the connection, for a reason that may pass.

    Attributes:
        link: the name of the link that it ended, and with it ours; empty: no link.
    """

    def __init__(self, text: str, link: str = "") -> None:
        super().__init__(text)
        self.link = link


_BEFORE: Final = "Before that come address, user and password: check them, and that AMQP 1.0 is spoken at this port"


def _login_refused(said: str) -> AmqpRefused:
    return AmqpRefused(
        f"the AMQP broker refuses the login: {said}",
        remedy="correct user and password; the task is retried",
    )


@dataclass(frozen=True, slots=True)
class AmqpLogin:
    """
    What a client needs to connect.

    Attributes:
        address: where.
        vhost: the virtual host, as the broker wants it; empty: the name of the host.
        idle_s: after how many seconds a silent broker counts as lost.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        tls: how the connection is encrypted; None: it is not.
        certificate: whether `tls` has a certificate of our own, which may be the login.
    """

    address: AmqpAddress
    vhost: str = ""
    idle_s: float = 10.0
    timeout_s: float = 10.0
    tls: ssl.SSLContext | None = None
    certificate: bool = False


class AmqpEngine:
    """
    A connection that is open, with one session.

    Attributes:
        news: notified of each event; who holds it may use the engine.
        product: what the broker calls itself, such as ``apache-activemq-artemis``; empty: it does not say.
        silence_s: after how many seconds the broker notices that we are gone; 0: it does not say.
    """

    def __init__(self, login: AmqpLogin, name: str, *, on_lost: Callable[[], None] = lambda: None) -> None:
        """
        Connect, and wait until the broker has accepted it.

        Args:
            login: where and how.
            name: how the broker's own tools name the connection; a random text follows.
            on_lost: called once when the connection is lost, on its thread; not after `close`.

        Raises:
            OSError: the broker does not answer.
            AmqpRefused: it refuses.
        """
        self._login, self._on_lost = login, on_lost
        self.news = threading.Condition(threading.RLock())
        self._error: Exception | None = None
        self._closing = False
        self._roused = False
        self.product = ""
        self.silence_s = 0.0
        self._collector = proton.Collector()
        self._transport = proton.Transport()
        self._connection = proton.Connection()
        self._socket = self._connected()
        self._greet(name)
        self._session = self._connection.session()
        self._session.open()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"amqp-{name}", daemon=True)
        self._thread.start()
        try:
            self.wait(lambda: self._session.state == ACTIVE, "has not opened a session")
        except BaseException:
            self.close()
            raise
        properties = self._connection.remote_properties or {}
        self.product = str(properties.get(symbol("product"), ""))
        self.silence_s = 2.0 * self._transport.remote_idle_timeout

    # What the owner asks for

    def wait(self, done: Callable[[], object], what: str) -> None:
        """
        Wait for something that the broker does; `done` is asked while `news` is held.

        Raises:
            OSError: the connection is lost, or it is not done in time; then it is lost, too.
            AmqpRefused: the broker refuses.
        """
        with self.news:
            met = self.news.wait_for(lambda: self._error is not None or done(), self._login.timeout_s)
            self.check()
        if not met:
            error = TimeoutError(f"the AMQP broker {what} for {self._login.timeout_s:g} s")
            self._lose(error)
            raise error

    def check(self) -> None:
        """
        See whether the connection is open.

        Raises:
            OSError: it is lost.
            AmqpRefused: the broker has refused something, and closed it.
        """
        if (error := self._error) is not None:
            raise error.with_traceback(None)

    @property
    def is_open(self) -> bool:
        """Whether `check` raises nothing."""
        return self._error is None

    def close(self) -> None:
        """Say goodbye and close. What is not confirmed may be done or not. It never raises, and may be called twice."""
        with self.news:
            self._closing = True
            if self._error is None:
                self._error = ConnectionError("the connection is closed")
                self._connection.close()
            self.news.notify_all()
        self._rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S + 0.5)

    # Connecting

    def _connected(self) -> socket.socket:
        login, address = self._login, self._login.address
        try:
            made = socket.create_connection((address.host, address.port), timeout=login.timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if login.tls is not None:
                made = login.tls.wrap_socket(made, server_hostname=address.host)
        except (OSError, ValueError) as error:
            away = ConnectionError(f"the AMQP broker does not answer: {address.quiet(error)}")
            raise tls_refusal(WHO, address, error) or away from None
        made.setblocking(False)
        return made

    def _greet(self, name: str) -> None:
        login, address = self._login, self._login.address
        connection, transport = self._connection, self._transport
        connection.container = f"{name}-{uuid.uuid4().hex[:12]}"
        connection.hostname = login.vhost or address.host
        if address.user is not None:
            connection.user, connection.password = address.user, address.password or ""
        connection.collect(self._collector)
        connection.open()
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True  # encrypted or not is our owner's choice: amqp:// or amqps://
        sasl.allowed_mechs("PLAIN" if address.user is not None else "EXTERNAL" if login.certificate else "ANONYMOUS")
        transport.idle_timeout = login.idle_s
        transport.bind(connection)

    # At work; `news` is held

    def _rouse(self) -> None:
        """Have the thread look at the engine."""
        if self._roused:  # it looks at what there is when it wakes
            return
        self._roused = True
        with suppress(OSError):  # it is awake if the pipe is full, and gone if that is closed
            self._wake.send(b"\0")

    @contextmanager
    def engine(self) -> Iterator[None]:
        """Use the engine, and have its bytes sent."""
        with self.news:
            self.check()
            yield
        self._rouse()

    def _handle(self, event: Event) -> None:
        kind = event.type
        if kind == Event.DELIVERY:
            self.took(event.delivery, event.link)
        elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            self._ended_link(event.link)
        elif kind == Event.SESSION_REMOTE_CLOSE:
            self._end(event.session.remote_condition, "has ended the session")
        elif kind == Event.CONNECTION_REMOTE_CLOSE:
            self._end(event.connection.remote_condition, "has closed the connection")
        elif kind == Event.TRANSPORT_ERROR:
            self._break(event.transport.condition)

    def _ended_link(self, link: proton.Link) -> None:
        if link.state & Endpoint.LOCAL_CLOSED:  # we have ended it
            link.free()
            return
        name = link.name.rpartition("-")[0]
        self._end(link.remote_condition, f"has ended {name}", link=name)

    def took(self, delivery: Delivery, link: proton.Link) -> None:
        """There is news of a delivery on a link. Proton takes long to find the link of a delivery."""

    def _end(self, condition: proton.Condition | None, what: str, *, link: str = "") -> None:
        """The broker has ended something of ours, so all of it."""
        name = condition.name if condition is not None else ""
        said = self._quiet(f"{name}: {condition.description or ''}" if condition else "without a reason")[:500]
        if not name or name in PASSING:
            self._lose(AmqpEnded(f"the AMQP broker {what}: {said}", link))
            return
        if name == "amqp:unauthorized-access" and not self._opened:
            self._lose(_login_refused(said))
            return
        self._lose(
            AmqpRefused(
                f"the AMQP broker refuses: {said}",
                remedy="correct the queue or the selector, give this user the right, or end another consumer of the "
                "queue; the task is retried",
            )
        )

    def _break(self, condition: proton.Condition | None) -> None:
        """The bytes of the broker end, or make no sense."""
        name = condition.name if condition is not None else ""
        said = self._quiet(f"{name}: {condition.description or ''}" if condition else "without a reason")[:500]
        if name == "amqp:unauthorized-access":
            self._lose(_login_refused(said))
        elif self._opened:
            self._lose(AmqpEnded(f"the connection to the AMQP broker is lost: {said}"))
        else:
            self._lose(AmqpEnded(f"the AMQP broker has not let us in: {said}. {self._before()}"))

    def _end_of_bytes(self) -> Exception:
        """Why the broker may have closed the socket. Artemis does so behind the answer that a password is wrong."""
        if self._transport.sasl().outcome == proton.SASL.AUTH:
            return _login_refused("it does not know this user with this password")
        return AmqpEnded("the AMQP broker closed the connection" + ("" if self._opened else f". {self._before()}"))

    def _before(self) -> str:
        return f"{_BEFORE}. {early_end(self._login.address)}"

    @property
    def _opened(self) -> bool:
        return bool(self._connection.state & Endpoint.REMOTE_ACTIVE)

    def _lose(self, error: Exception) -> None:
        with self.news:
            first = self._error is None
            if first:
                self._error = error
                self._connection.close()
            self.news.notify_all()
        self._rouse()
        if first and not self._closing:
            self._on_lost()

    # The connection's thread

    def _run(self) -> None:
        until_s = None
        try:
            while True:
                wait_s = self._exchange()
                if wait_s is None:
                    break
                if self._error is not None:
                    until_s = until_s or time.monotonic() + LEAVE_S
                    if time.monotonic() >= until_s:
                        break
                    wait_s = min(wait_s, LEAVE_S)
                self._sleep(wait_s)
            self._lose(self._end_of_bytes())
        except (OSError, ValueError, proton.ProtonException) as error:
            lost = ConnectionError(f"the connection to the AMQP broker is lost: {self._quiet(error)}")
            self._lose(tls_refusal(WHO, self._login.address, error) or lost)
        finally:
            self._selector.close()
            for one in (self._socket, self._wake, self._woken):
                one.close()

    def _quiet(self, error: object) -> str:
        return self._login.address.quiet(error)

    def _sleep(self, wait_s: float) -> None:
        events = selectors.EVENT_READ
        with self.news:
            if self._transport.pending() > 0:
                events |= selectors.EVENT_WRITE
        self._selector.modify(self._socket, events)
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._woken:
                with suppress(BlockingIOError):
                    while self._woken.recv(4096):
                        pass
                self._roused = False

    def _exchange(self) -> float | None:
        """Read, think and write as far as it goes without waiting; gives how long to wait, or None at the end."""
        transport = self._transport
        with self.news:
            open_in = self._read()
            self._think()
            now_s = time.monotonic()
            next_s = transport.tick(now_s)
            self._think()
            open_out = self._write()
            if not open_in or not open_out:
                return None
            return max(0.01, next_s - now_s) if next_s else 60.0

    def _think(self) -> None:
        some = False
        while (event := self._collector.peek()) is not None:
            some = True
            self._handle(event)
            self._collector.pop()
        if some:
            self.news.notify_all()

    def _read(self) -> bool:
        transport = self._transport
        while (room := transport.capacity()) > 0:
            try:
                data = self._socket.recv(min(room, READ_BYTES))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            if not data:
                transport.close_tail()
                self._think()
                return False
            transport.push(data)
            self._think()
        return bool(room >= 0)

    def _write(self) -> bool:
        transport = self._transport
        while (size := transport.pending()) > 0:
            try:
                sent = self._socket.send(transport.peek(min(size, READ_BYTES)) or b"")
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            transport.pop(sent)
            self._think()
        return bool(size >= 0)
