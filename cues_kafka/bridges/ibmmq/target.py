"""
Messages to queues of IBM MQ, exactly once (E1): what `IbmMq(...).target()` and `.to_queue()` declare.

Not run against a real IBM MQ; tested on a fake of its client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from cues_kafka.bridges.ibmmq.messages import correlation_of, property_of, written
from cues_kafka.bridges.marker import MarkerSession, MarkerTransactions
from cues_kafka.errors import GraphError, OutputError
from cues_kafka.extras import IBMMQ, Package
from cues_kafka.graph.levels import EXACTLY_ONCE, EdgeKind
from cues_kafka.graph.targets import TargetPart, TaskName, TransactionalTarget, Write

if TYPE_CHECKING:
    from cues_kafka.bridges.ibmmq.client import MqLogin

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9._/%]{1,48}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._/%]{1,24}")
_LONGEST: Final = 48
_MOST_EXPIRY_S: Final = 99_999_999

NOT_RUN: Final = "Not run against a real IBM MQ; tested on a fake of its client"

TO_IBMMQ: Final = EdgeKind(
    'Kafka to IBM MQ, `effects={"mq": IbmMq(...).target()}` or `Sink(..., into=IbmMq(...).to_queue("ORDERS"))`',
    EXACTLY_ONCE,
    "messages, outcomes and position in one unit of work; the queue manager must keep what it commits, and a marker "
    f"queue must be there for each task. {NOT_RUN}",
    "pytest tests/unit/bridges/ibmmq",
)


class MqManager(Protocol):
    """What a target needs of `IbmMq`: where the queue manager is, and how patient clients are."""

    @property
    def env(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    def login(self) -> MqLogin: ...


class MqSender:
    """What a function gets of `effects={"mq": IbmMq(...).target()}`. Valid only during the call."""

    __slots__ = ("_write",)

    def __init__(self, write: Write) -> None:
        self._write = write

    def put(
        self,
        queue: str,
        body: Any,
        headers: Mapping[str, Any] | None = None,
        *,
        correlation_id: str | bytes = b"",
        reply_to: str = "",
        priority: int | None = None,
        expiry_s: float | None = None,
    ) -> None:
        """
        Put a message when the step is committed.

        Args:
            queue: where it goes. A queue that is not there makes the message in Kafka an error message.
            body: text, bytes, or a value that becomes JSON.
            headers: properties of the message: texts, numbers and booleans, which all become texts.
            correlation_id: 24 bytes, 48 hexadecimal digits, or a shorter text.
            reply_to: a queue for answers.
            priority: from 0 to 9; None: as the queue says.
            expiry_s: for how long the queue keeps the message, in seconds; None: until it is read.

        Raises:
            OutputError: it cannot be such a message.
        """
        for name in (queue, *([reply_to] if reply_to else ())):
            if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name):
                raise OutputError(
                    f"{name!r:.200} cannot be the name of a queue: at most 48 letters, digits, and . _ / %"
                )
        if why := wrong_option(priority, expiry_s):
            raise OutputError(why)
        more = {"reply_to": reply_to, "priority": priority, "expiry_s": expiry_s, "chosen": True}
        self._write(written(queue, body, headers or {}, correl_id=correlation_of(correlation_id), **more))


class MqQueueSender:
    """What a function gets of `IbmMq(...).to_queue(...)`. Valid only during the call."""

    __slots__ = ("_declared", "_write")

    def __init__(self, write: Write, declared: IbmMqDestination) -> None:
        self._write, self._declared = write, declared

    def put(self, body: Any, headers: Mapping[str, Any] | None = None, *, correlation_id: str | bytes = b"") -> None:
        """
        Put a message when the step is committed.

        Args:
            body: text, bytes, or a value that becomes JSON.
            headers: properties of the message; they win over those of the declaration.
            correlation_id: see `MqSender.put`.

        Raises:
            OutputError: it cannot be such a message.
        """
        declared = self._declared
        own = {"correl_id": correlation_of(correlation_id)}
        more = {"priority": declared.priority, "expiry_s": declared.expiry_s}
        self._write(written(declared.name, body, {**declared.headers, **(headers or {})}, **own, **more))

    def write(self, value: Any, message: Any) -> None:
        """
        Put the value of a message, for a `Sink`. A key that is text goes into the property `cues_key`.

        Raises:
            OutputError: it is a tombstone.
        """
        if value is None:
            raise OutputError(
                f"a message without a value (a tombstone) is not a message for queue {self._declared.name!r}. Leave "
                "tombstones out, with filter="
            )
        key = getattr(message, "key", None)
        self.put(value, {"cues_key": key} if isinstance(key, str) else None)


@dataclass(frozen=True)
class IbmMqTarget(TransactionalTarget):
    """
    A queue manager that a processor writes to, exactly once; see `IbmMq.target` and docs/ibmmq.md.

    Not run against a real IBM MQ; tested on a fake of its client.

    Messages, their outcomes in Kafka and the place in the input are committed by one unit of work. For each task there
    is a queue with one message, the *marker*, which says how far the task is. The unit that puts messages takes the old
    marker and puts the new one. The owner of a task is the one that has its marker queue open.

    Attributes:
        manager: where it is.
        markers: what the names of the marker queues begin with.
    """

    what: ClassVar[str] = "queue manager"
    apart: ClassVar[bool] = True
    level: ClassVar[str] = TO_IBMMQ.level
    rests_on: ClassVar[str] = TO_IBMMQ.why

    manager: MqManager
    markers: str = "CUES"

    def __post_init__(self) -> None:
        if not isinstance(self.markers, str) or not _PREFIX.fullmatch(self.markers):
            raise GraphError(
                f"IbmMq(...), markers={self.markers!r}: takes the beginning of a queue's name, as 'CUES', with at most "
                "24 characters."
            )

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        return self.manager.env

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        return TO_IBMMQ

    def packages(self) -> tuple[Package, ...]:
        return (IBMMQ,)

    def title(self, name: str) -> str:
        return f"{self.what} {name}"

    def value(self, write: Write) -> MqSender:
        return MqSender(write)

    def open(self, task: TaskName) -> MarkerTransactions:
        return MarkerTransactions(self._connector(), self.marker_of(task))

    def marker_of(self, task: TaskName) -> str:
        """
        The queue of a task's marker, such as ``CUES.shop.ship.0``.

        A name in IBM MQ has no ``-``, and at most 48 characters. So ``-`` is written as ``%``, and a longer name ends
        with a digest. Two tasks never have one name.
        """
        whole = f"{task.graph}.{task.processor}.{task.partition}".replace("-", "%")
        room = _LONGEST - len(self.markers) - 1
        if len(whole) > room:  # no short name ends like that: behind its last point are digits only
            end = f"%%{blake2b(whole.encode(), digest_size=8).hexdigest()}"
            whole = whole[: room - len(end)] + end
        return f"{self.markers}.{whole}"

    def _connector(self) -> Callable[[], MarkerSession]:
        login, timeout_s = self.manager.login(), self.manager.timeout_s
        from cues_kafka.bridges.ibmmq.marker import IbmMqMarkers  # noqa: PLC0415 - needs an extra

        return lambda: IbmMqMarkers(login, timeout_s)


@dataclass(frozen=True)
class IbmMqDestination(TargetPart):
    """
    A queue that messages go to; see `IbmMq.to_queue`.

    Attributes:
        target: the queue manager.
        name: of the queue.
        headers, priority, expiry_s: of each message.
    """

    target: IbmMqTarget
    name: str
    headers: Mapping[str, Any] = field(default_factory=dict, hash=False)
    priority: int | None = None
    expiry_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not QUEUE_NAME.fullmatch(self.name):
            raise GraphError(
                f"{self.name!r:.200} cannot be the name of a queue in IBM MQ: at most 48 letters, digits, and . _ / %"
            )
        try:
            given = {key: property_of(key, value) for key, value in self.headers.items()}
        except OutputError as error:
            raise GraphError(f"queue {self.name!r}, headers=: {error}.") from None
        if why := wrong_option(self.priority, self.expiry_s):
            raise GraphError(f"queue {self.name!r}: {why}.")
        object.__setattr__(self, "headers", given)

    @property
    def home(self) -> IbmMqTarget:
        return self.target

    def value(self, write: Write) -> MqQueueSender:
        return MqQueueSender(write, self)

    def title(self, name: str) -> str:
        del name
        return f"queue {self.name}"


def wrong_option(priority: Any, expiry_s: Any) -> str:
    """Why a message cannot have this priority or this expiry; empty: it can."""
    if priority is not None and (type(priority) is not int or not 0 <= priority <= 9):
        return f"priority={priority!r:.80}: takes a whole number from 0 to 9"
    number = isinstance(expiry_s, int | float) and not isinstance(expiry_s, bool)
    if expiry_s is not None and not (number and 0 < expiry_s <= _MOST_EXPIRY_S):
        return f"expiry_s={expiry_s!r:.80}: takes a number of seconds above 0, up to {_MOST_EXPIRY_S:,}"
    return ""
