"""Queues and topics of a broker with transactions, as what a processor writes to, exactly once (E1).

`stomp/target.py` and `amqp/target.py` say what a message is there, and how the broker is reached.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from cues_kafka.bridges.marker import Connect, MarkerTransactions, shared_markers
from cues_kafka.errors import GraphError, OutputError
from cues_kafka.graph.targets import TargetPart, TaskName, TransactionalTarget, Write

QUEUE, TOPIC = "queue", "topic"

_NAME: Final = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_.$/-]{0,199}")


class MakesMessages(Protocol):
    """Makes a message of the broker's of what a function gives; raises an `OutputError` if it cannot be one."""

    def __call__(self, kind: str, name: str, body: Any, headers: Mapping[str, Any]) -> Any: ...


def body_of(body: Any) -> str | bytes:
    """
    The body of a message that a function gives: text, bytes, or a value that becomes JSON.

    Raises:
        OutputError: JSON has no form for the value, or UTF-8 cannot carry the text.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if not isinstance(body, str):
        try:
            body = json.dumps(body, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise OutputError(f"the body is not text, bytes or JSON: {error}. Encode it in the function") from None
    check_text(body, "the body")
    return str(body)


def check_text(text: str, what: str) -> None:
    """
    Check that a text can be sent.

    Raises:
        OutputError: UTF-8 cannot carry it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OutputError(f"{what} has half of a surrogate pair, so it cannot be written as UTF-8") from None


class BrokerSender:
    """What a function gets of `effects={"jms": Stomp(...).target()}`. Valid only during the call."""

    __slots__ = ("_message", "_write")

    def __init__(self, write: Write, message: MakesMessages) -> None:
        self._write, self._message = write, message

    def send(self, destination: str, body: Any, headers: Mapping[str, Any] | None = None) -> None:
        """
        Send a message when the step is committed.

        Args:
            destination: `queue://orders` or `topic://prices`.
            body: text, bytes, or a value that becomes JSON.
            headers: properties of the message.

        Raises:
            OutputError: it cannot be such a message.
        """
        kind, _, name = destination.partition("://") if isinstance(destination, str) else ("", "", "")
        if kind not in (QUEUE, TOPIC) or not _NAME.fullmatch(name):
            raise OutputError(f"{destination!r:.200} is not a destination. Write queue://orders or topic://prices")
        self._write(self._message(kind, name, body, headers or {}))


class DestinationSender:
    """What a function gets of `.to_queue(...)` and `.to_topic(...)`. Valid only during the call."""

    __slots__ = ("_declared", "_message", "_write")

    def __init__(self, write: Write, declared: BrokerDestination, message: MakesMessages) -> None:
        self._write, self._declared, self._message = write, declared, message

    def send(self, body: Any, headers: Mapping[str, Any] | None = None) -> None:
        """
        Send a message when the step is committed.

        Args:
            body: text, bytes, or a value that becomes JSON.
            headers: properties of the message; they win over those of the declaration.

        Raises:
            OutputError: it cannot be such a message.
        """
        declared = self._declared
        given = {**declared.headers, **headers} if headers else declared.headers
        self._write(self._message(declared.to, declared.name, body, given))

    def write(self, value: Any, message: Any) -> None:
        """
        Send the value of a message, for a `Sink`. A key that is text goes into the property `cues_key`.

        Raises:
            OutputError: it is a tombstone.
        """
        if value is None:
            raise OutputError(
                f"a message without a value (a tombstone) is not a message for {self._declared.to} "
                f"{self._declared.name!r}. Leave tombstones out, with filter="
            )
        key = getattr(message, "key", None)
        self.send(value, {"cues_key": key} if isinstance(key, str) else None)


class BrokerTarget(TransactionalTarget):
    """
    A broker of queues that a processor writes to, exactly once.

    Messages, their outcomes in Kafka and the place in the input are committed by one transaction of the broker. For
    each task the broker has a queue with one message, the *marker*, which says how far the task is. The transaction
    that sends messages takes the old marker and sends the new one. The owner of a task is the one consumer of its
    marker queue.

    Attributes:
        broker: where it is; what it reads is not used.
        markers: what the names of the marker queues begin with.
    """

    what: ClassVar[str] = "broker"
    apart: ClassVar[bool] = True
    message: ClassVar[MakesMessages]
    header: ClassVar[Callable[[Any, Any], Any]]

    broker: Any
    markers: str

    @abstractmethod
    def connector(self) -> Connect:
        """What makes a connection for markers."""

    def check_markers(self) -> None:
        """
        Check what the names of the marker queues begin with.

        Raises:
            GraphError: it cannot be the beginning of a queue's name.
        """
        if not isinstance(self.markers, str) or not _NAME.fullmatch(self.markers):
            raise GraphError(
                f"{type(self.broker).__name__}(...), markers={self.markers!r}: takes the beginning of a queue's name, "
                "as 'cues'."
            )

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        return str(self.broker.env)

    def title(self, name: str) -> str:
        return f"{self.what} {name}"

    def value(self, write: Write) -> BrokerSender:
        return BrokerSender(write, type(self).message)

    def inspect(self) -> Iterable[str]:
        """See `TransactionalTarget`. It asks the broker whether a marker queue has one consumer at a time."""
        return shared_markers(self.connector(), self.markers)

    def open(self, task: TaskName) -> MarkerTransactions:
        queue = f"{self.markers}.marker.{task.graph}.{task.processor}.{task.partition}"
        return MarkerTransactions(self.connector(), queue)


@dataclass(frozen=True)
class BrokerDestination(TargetPart):
    """
    A queue or a topic of a broker, exactly once.

    Attributes:
        target: the broker.
        to: `queue` or `topic`.
        name: its name.
        headers: of each message.
    """

    target: BrokerTarget
    to: str
    name: str
    headers: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise GraphError(
                f"{self.name!r:.200} cannot be the name of a {self.to} here. Use letters, digits, '.', '_', '-', '$' "
                "and '/'."
            )
        try:
            given = {key: type(self.target).header(key, value) for key, value in self.headers.items()}
        except OutputError as error:
            raise GraphError(f"{self.to} {self.name!r}, headers=: {error}.") from None
        object.__setattr__(self, "headers", given)

    @property
    def home(self) -> BrokerTarget:
        return self.target

    def value(self, write: Write) -> DestinationSender:
        return DestinationSender(write, self, type(self.target).message)

    def title(self, name: str) -> str:
        del name
        return f"{self.to} {self.name}"
