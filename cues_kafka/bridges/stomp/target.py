"""Messages to a JMS broker, exactly once (E1): what `Stomp(...).target()`, `.to_queue()` and `.to_topic()` declare."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from cues_kafka.bridges.marker import MarkerSession, MarkerTransactions, shared_markers
from cues_kafka.bridges.stomp.client import StompLogin
from cues_kafka.bridges.stomp.marker import StompMarkers
from cues_kafka.bridges.stomp.messages import header_of, message_of
from cues_kafka.errors import GraphError, OutputError
from cues_kafka.graph.levels import STOMP, EdgeKind
from cues_kafka.graph.targets import TargetPart, TaskName, TransactionalTarget, Write

QUEUE, TOPIC = "queue", "topic"

_NAME: Final = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_.$/-]{0,199}")


class JmsBroker(Protocol):
    """What a target needs of `Stomp`: where the broker is, and how patient clients are."""

    @property
    def env(self) -> str: ...
    @property
    def heart_beat_s(self) -> float: ...
    def login(self) -> StompLogin: ...


class StompSender:
    """What a function gets of `effects={"jms": Stomp(...).target()}`. Valid only during the call."""

    __slots__ = ("_write",)

    def __init__(self, write: Write) -> None:
        self._write = write

    def send(self, destination: str, body: Any, headers: Mapping[str, Any] | None = None) -> None:
        """
        Send a message when the step is committed.

        Args:
            destination: `queue://orders` or `topic://prices`.
            body: text, bytes, or a value that becomes JSON.
            headers: properties of the message: texts, numbers and booleans, which all become texts.

        Raises:
            OutputError: it cannot be such a message.
        """
        kind, _, name = destination.partition("://") if isinstance(destination, str) else ("", "", "")
        if kind not in (QUEUE, TOPIC) or not _NAME.fullmatch(name):
            raise OutputError(f"{destination!r:.200} is not a destination. Write queue://orders or topic://prices")
        self._write(message_of(kind, name, body, headers or {}))


class DestinationSender:
    """What a function gets of `Stomp(...).to_queue(...)` and `.to_topic(...)`. Valid only during the call."""

    __slots__ = ("_declared", "_write")

    def __init__(self, write: Write, declared: StompDestination) -> None:
        self._write, self._declared = write, declared

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
        self._write(message_of(declared.to, declared.name, body, {**declared.headers, **(headers or {})}))

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


@dataclass(frozen=True)
class StompTarget(TransactionalTarget):
    """
    A JMS broker that a processor writes to, exactly once; see `Stomp.target` and docs/stomp.md.

    Messages, their outcomes in Kafka and the place in the input are committed by one transaction of the broker. For
    each task the broker has a queue with one message, the *marker*, which says how far the task is. The transaction
    that sends messages takes the old marker and sends the new one. The owner of a task is the one consumer of its
    marker queue.

    Attributes:
        broker: where it is; what it reads is not used.
        markers: what the names of the marker queues begin with.
    """

    what: ClassVar[str] = "broker"
    level: ClassVar[str] = STOMP.level
    rests_on: ClassVar[str] = STOMP.why

    broker: JmsBroker
    markers: str = "cues"

    def __post_init__(self) -> None:
        if not isinstance(self.markers, str) or not _NAME.fullmatch(self.markers):
            raise GraphError(f"Stomp(...), markers={self.markers!r}: takes the beginning of a queue's name, as 'cues'.")
        if not self.broker.heart_beat_s:
            raise GraphError(
                "Stomp(heart_beat_s=0): without heart-beats the broker keeps the marker of a process that is frozen or "
                "cut off. Give it seconds to write to the broker."
            )

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        return self.broker.env

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        """See `Effect`."""
        return STOMP

    def title(self, name: str) -> str:
        """See `Effect`."""
        return f"{self.what} {name}"

    def value(self, write: Write) -> StompSender:
        """See `TransactionalTarget`."""
        return StompSender(write)

    def inspect(self) -> Iterable[str]:
        """See `TransactionalTarget`. It asks the broker whether a marker queue has one consumer at a time."""
        return shared_markers(self._connector(), self.markers)

    def open(self, task: TaskName) -> MarkerTransactions:
        """See `TransactionalTarget`."""
        queue = f"{self.markers}.marker.{task.graph}.{task.processor}.{task.partition}"
        return MarkerTransactions(self._connector(), queue)

    def _connector(self) -> Callable[[], MarkerSession]:
        return partial(StompMarkers, self.broker.login())


@dataclass(frozen=True)
class StompDestination(TargetPart):
    """
    A queue or a topic of a broker; see `Stomp.to_queue` and `Stomp.to_topic`.

    Attributes:
        target: the broker.
        to: `queue` or `topic`.
        name: its name.
        headers: of each message.
    """

    target: StompTarget
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
            given = {key: header_of(key, value) for key, value in self.headers.items()}
        except OutputError as error:
            raise GraphError(f"{self.to} {self.name!r}, headers=: {error}.") from None
        object.__setattr__(self, "headers", given)

    @property
    def home(self) -> StompTarget:
        """See `Effect`."""
        return self.target

    def value(self, write: Write) -> DestinationSender:
        """See `TargetPart`."""
        return DestinationSender(write, self)

    def title(self, name: str) -> str:
        """See `Effect`."""
        del name
        return f"{self.to} {self.name}"
