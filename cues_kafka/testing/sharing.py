"""One local broker for all testers of pytest-xdist, which the process that started them owns.

A tester ends as soon as no test is left for it, while others go on; so the broker is a child of the controller. It
starts when the first tester asks for it, since a controller does not know which tests will run.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import Final, NamedTuple, Protocol, Self

from cues_kafka.errors import BrokerError, CuesError

JOIN_S: Final = 10.0
"""How long the owner waits at the end for a question under way; a program that connects and says nothing is left."""


class OwnBroker(Protocol):
    """A broker that tests start and stop: a local one, or one in a container."""

    @property
    def bootstrap(self) -> str:
        """The address of the broker, as ``bootstrap.servers``."""
        ...

    def start(self) -> Self:
        """
        Start, and wait until it serves.

        Raises:
            CuesError: it does not start; the text has the remedy.
        """
        ...

    def stop(self) -> None:
        """Stop the broker."""
        ...


class BrokerOwner(NamedTuple):
    """Where the owner of a broker is asked for it: a port of 127.0.0.1, and the key that it wants to hear."""

    port: int
    key: str

    def ask(self) -> str:
        """
        ``bootstrap.servers`` of the broker, which starts now if it does not run.

        Raises:
            BrokerError: it did not start, or its owner has ended.
        """
        try:
            with Client(("127.0.0.1", self.port), authkey=self.key.encode()) as owner:
                bootstrap, reason = owner.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            text = f"The process that owns the broker of this run does not answer ({error!r}). Run the tests again."
            raise BrokerError(text) from error
        if reason:
            raise BrokerError(reason)
        return str(bootstrap)


class SharedBroker:
    """
    A broker of this process, whose address other processes of this machine may ask for.

    Attributes:
        owner: where they ask.
    """

    def __init__(self, broker: Callable[[], OwnBroker]) -> None:
        """
        Args:
            broker: starts the broker, at the first question.
        """
        key = secrets.token_hex()
        self._listener = Listener(("127.0.0.1", 0), backlog=64, authkey=key.encode())
        self.owner = BrokerOwner(self._listener.address[1], key)
        self._start = broker
        self._broker: OwnBroker | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="shared broker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the broker, if it runs; who asks from now on is refused."""
        self._closed = True
        with suppress(BrokerError):  # the answer does not matter: a question ends the wait for one
            self.owner.ask()
        self._thread.join(JOIN_S)
        if self._broker is not None:
            self._broker.stop()

    def _serve(self) -> None:
        """Answer one after the other: while the broker starts, all others wait."""
        with self._listener:
            while not self._closed:
                with suppress(OSError, EOFError, AuthenticationError), self._listener.accept() as asking:
                    asking.send(self._answer())

    def _answer(self) -> tuple[str, str]:
        """The address and an empty reason; or an empty address, and why the broker does not run."""
        if self._closed:
            return "", "The run ends, and its broker with it."
        try:
            if self._broker is None:
                self._broker = self._start()
            return self._broker.bootstrap, ""
        except CuesError as error:
            return "", str(error)
