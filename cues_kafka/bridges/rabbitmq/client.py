"""One connection to a RabbitMQ with one channel, by pika, on a thread of its own.

A connection that is lost stays lost, and its owner makes another one. pika's loop runs on the thread; other threads
hand it what is to be done.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pika
from pika import exceptions

from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.rabbitmq.wire import WiredConnection
from cues_kafka.bridges.tls import early_end, tls_refusal
from cues_kafka.errors import RecoveryError, RetriableError

_PIKA = logging.getLogger("pika")
if _PIKA.level == logging.NOTSET:  # it has ten lines for each attempt to connect, with the address; our owner has one
    _PIKA.setLevel(logging.CRITICAL)

LEAVE_S: Final = 1.0
"""How long closing waits for the thread, which says goodbye."""

ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED = 403, 404, 406

PASSING: Final = ("exclusive use", "down or inaccessible", "does not have a replica", "timed out", "timeout")
"""What refusals say that end by themselves: a consumer is there still, or a queue is not there yet behind a restart."""


@dataclass(frozen=True, slots=True)
class RabbitMqLogin:
    """
    What a client needs to connect.

    Attributes:
        address: where.
        heartbeat_s: see `RabbitMq`.
        timeout_s: see `RabbitMq`.
        tls: how the connection is encrypted; None: it is not.
    """

    address: RabbitMqAddress
    heartbeat_s: int
    timeout_s: float
    tls: ssl.SSLContext | None

    def parameters(self, name: str) -> pika.ConnectionParameters:
        """What pika takes."""
        address = self.address
        return pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.virtual_host,
            credentials=pika.PlainCredentials(address.user, address.password),
            heartbeat=self.heartbeat_s,
            socket_timeout=self.timeout_s,
            stack_timeout=self.timeout_s + 5.0,
            connection_attempts=1,
            ssl_options=None if self.tls is None else pika.SSLOptions(self.tls, address.host),
            client_properties={"connection_name": name},
        )


class RabbitMqConnection:
    """A connection with a channel, both open."""

    def __init__(self, login: RabbitMqLogin, name: str, *, on_lost: Callable[[], None] = lambda: None) -> None:
        """
        Connect, and wait until the channel is open.

        Args:
            login: where and how.
            name: how the broker's own tools name the connection.
            on_lost: called when the connection or the channel is lost, on the connection's thread.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: it refuses.
        """
        self._login = login
        self._on_lost = on_lost
        self._news = threading.Condition()
        self._error: BaseException | None = None
        self._closing = False
        self.channel: Any = None
        self.blocked = False
        """Whether the broker has asked publishers to wait."""
        self._connection = WiredConnection(
            login.parameters(name),
            on_open_callback=self._opened,
            on_open_error_callback=self._ended,
            on_close_callback=self._ended,
        )
        self._connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
        self._connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{name}", daemon=True)
        self._thread.start()
        try:
            self._wait(lambda: self.channel is not None, "has not opened a channel", login.timeout_s)
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, **arguments: Any) -> Any:
        """
        Call a method of the channel that the broker answers, and wait for the answer.

        Raises:
            OSError, RetriableError: the connection is lost, or there is no answer.
            RecoveryError: the broker refuses.
        """
        answers: list[Any] = []

        def answered(frame: Any) -> None:
            with self._news:
                answers.append(frame)
                self._news.notify_all()

        self.do(lambda: getattr(self.channel, method)(**arguments, callback=answered))
        self._wait(lambda: bool(answers), f"has not answered {method}", self._login.timeout_s)
        return answers[0].method

    def do(self, action: Callable[[], object]) -> None:
        """Have the connection's thread do something with the channel. What it raises ends the connection."""

        def act() -> None:
            if self._error is None:
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - the owner sees it
                    self._ended(None, error)

        self._connection.ioloop.add_callback_threadsafe(act)

    def consume(self, queue: str, took: Callable[[Any, Any, Any, bytes], None], **more: Any) -> None:
        """
        Consume a queue, one for each connection.

        Args:
            queue: its name.
            took: called with channel, method, properties and body of each message, on the connection's thread.
            more: what `basic_consume` of the channel takes besides.

        Raises:
            OSError, RetriableError, RecoveryError: see `ask`.
        """
        self._connection.consumer = partial(took, self.channel)
        self.ask("basic_consume", queue=queue, on_message_callback=took, **more)

    def together(self) -> AbstractContextManager[list[bytes]]:
        """Write frames at once, see `WiredConnection`; on the connection's thread."""
        return self._connection.together()

    def check(self) -> None:
        """
        See whether the connection is open.

        Raises:
            OSError, RetriableError: it is lost.
            RecoveryError: the broker has refused something.
        """
        with self._news:
            error = self._error
        if error is not None:
            raise self._shown(error)

    @property
    def lost(self) -> bool:
        """Whether it is lost."""
        return self._error is not None

    def close(self) -> None:
        """Close at once. Never raises, and may be called on any thread."""
        with self._news:
            self._closing = True
        self._connection.ioloop.add_callback_threadsafe(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)

    # On the connection's thread

    def _run(self) -> None:
        try:
            self._connection.ioloop.start()
        except Exception as error:  # noqa: BLE001 - the owner sees it
            self._ended(None, error)
        finally:
            self._connection.ioloop.close()

    def _opened(self, connection: Any) -> None:
        channel = connection.channel(on_open_callback=self._has_channel)
        channel.add_on_close_callback(self._ended)
        channel.add_on_cancel_callback(lambda _: self._ended(None, ConnectionError("the queue was deleted, or moves")))

    def _has_channel(self, channel: Any) -> None:
        with self._news:
            self.channel = channel
            self._news.notify_all()

    def _set_blocked(self, blocked: bool) -> None:
        self.blocked = blocked

    def _ended(self, _: Any, error: BaseException) -> None:
        """The connection or the channel has ended, or was not made; the first reason counts."""
        with self._news:
            first = self._error is None
            self._error = self._error or error
            self._news.notify_all()
        self._leave()
        if first and not self._closing:
            self._on_lost()

    def _leave(self) -> None:
        """Say goodbye, and stop the loop when that is done."""
        connection = self._connection
        if connection.is_closed:
            connection.ioloop.stop()
        elif not connection.is_closing:
            connection.close()

    # On any thread

    def _wait(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        with self._news:
            met = self._news.wait_for(lambda: done() or self._error is not None, timeout_s)
        self.check()
        if not met:
            raise RetriableError(f"RabbitMQ {what} for {timeout_s:g} s")

    def _shown(self, error: BaseException) -> Exception:
        """An error of pika in our words."""
        root = _root(error)
        said = self._login.address.quiet(getattr(root, "reply_text", "") or str(root) or type(root).__name__)
        code = getattr(root, "reply_code", 0)
        if refused := tls_refusal("RabbitMQ", self._login.address, root):
            return refused
        if isinstance(root, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
            return RecoveryError(f"RabbitMQ refuses the login: {said}", remedy="correct user and password")
        if isinstance(root, exceptions.ProbableAccessDeniedError):
            remedy = "create the virtual host, and let the user into it"
            return RecoveryError(f"RabbitMQ refuses the virtual host: {said}", remedy=remedy)
        if code in _REMEDIES and not any(one in said for one in PASSING):
            return RecoveryError(f"RabbitMQ refuses: {said}", remedy=_REMEDIES[code])
        early = self.channel is None and isinstance(root, _ENDED_EARLY)
        hint = f". {early_end(self._login.address)}" if early else ""
        return ConnectionError(f"the connection to RabbitMQ is lost: {said}{hint}")


_ENDED_EARLY: Final = (exceptions.StreamLostError, exceptions.IncompatibleProtocolError)

_REMEDIES: Final = {
    ACCESS_REFUSED: "give the user the permission; the task goes on by itself",
    NOT_FOUND: "declare it at the broker; the task goes on by itself",
    PRECONDITION_FAILED: "correct the declaration, or the queue",
}


def _root(error: BaseException) -> BaseException:
    """The innermost error, of those that pika wraps."""
    inner = [*(getattr(error, "exceptions", None) or ()), getattr(error, "exception", None), *error.args]
    found = [one for one in inner if isinstance(one, BaseException)]
    return _root(found[0]) if found else error
