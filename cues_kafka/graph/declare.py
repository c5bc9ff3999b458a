"""Declarations of codecs, stores, policies and retries: plain data without an implementation.

The runtime finds the implementation by the type of the declaration when a graph starts. So `plan`, `to_dict` and the
command line need neither a codec library nor a client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, get_origin

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.extras import LMDB, Package
from cues_kafka.graph.durations import milliseconds, written


class CodecSpec:
    """
    The base of declared codecs; `codecs.lookup.MAKERS` has the maker of each class.

    Attributes:
        kind: the codec's name in plain data.
    """

    __slots__ = ()
    kind: ClassVar[str]

    @property
    def record(self) -> type[Any] | None:
        """The class of the values; None: the declaration does not name one."""
        return None

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return ()


@known_arguments()
@dataclass(frozen=True, slots=True)
class Json(CodecSpec):
    """
    JSON in UTF-8. With a class, values are instances of it, validated when they are read and written.

    With a class, fields that it does not have are dropped when a message is read, so that a producer may add fields
    first. If an object has a key twice, the last one counts. Read `Json()` or `Raw()` where neither may happen.

    Attributes:
        cls: a dataclass or a `msgspec.Struct`; None: the types of `json` (dict, list, str, int, float, bool, None).
    """

    kind: ClassVar[str] = "json"
    cls: type[Any] | None = None

    def __post_init__(self) -> None:
        if get_origin(self.cls) is not None:
            raise GraphError(
                f"Json({self.cls!r}): takes a class. Give a dataclass that has a field of this type, or write "
                "Json() for plain values of any shape."
            )
        if self.cls is not None and not isinstance(self.cls, type):
            raise GraphError(f"Json({self.cls!r}): takes a class, or nothing. Write Json({type(self.cls).__name__}).")

    @property
    def record(self) -> type[Any] | None:
        return self.cls


@known_arguments()
@dataclass(frozen=True, slots=True)
class Alias:
    """
    The name in messages of a field that Python cannot name so: ``Annotated[str, Alias("order-id")]``.

    Messages and Spark's columns have this name, so in Avro it must be one of Avro. A `msgspec.Struct` has
    ``msgspec.field(name=)``.

    Attributes:
        name: in messages.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError(f"Alias({self.name!r}): takes the field's name in messages.")


COLUMN_DIGITS: Final = 38
"""The most digits of a decimal in Spark's columns."""


@known_arguments()
@dataclass(frozen=True, slots=True)
class Digits:
    """
    How many digits a `Decimal` may have: ``Annotated[Decimal, Digits(12, 2)]``. Avro and Spark need to know.

    A value with more digits is refused, in each format, when it is read and when it is written. Nothing is rounded.

    Attributes:
        precision: all digits.
        scale: those behind the point.
    """

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        counts = type(self.precision) is int and type(self.scale) is int
        if not counts or not 0 < self.precision <= COLUMN_DIGITS or not 0 <= self.scale <= self.precision:
            raise GraphError(f"{self}: takes 1 to {COLUMN_DIGITS} digits, and no more than these after the point.")


@known_arguments()
@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of decoding. A message that exceeds one of them is a decoding error, like any other bad message.

    Attributes:
        bytes: size of a message.
        nesting: how deep values may lie inside each other, where the schema does not bound it.
        empty_items: items of arrays that take no bytes, such as nulls; all other items are bounded by the size.
        references: how many times the check of one message may follow a reference of its JSON Schema.
    """

    bytes: int = 16 * 1024 * 1024
    nesting: int = 100
    empty_items: int = 10_000
    references: int = 100_000

    def __post_init__(self) -> None:
        if any(
            type(one) is not int or one < 0 for one in (self.bytes, self.nesting, self.empty_items, self.references)
        ):
            raise GraphError(f"{self}: takes whole numbers from 0 on, such as Limits(bytes=1_000_000).")


@dataclass(frozen=True, slots=True)
class Raw(CodecSpec):
    """The bytes themselves."""

    kind: ClassVar[str] = "raw"


@known_arguments()
@dataclass(frozen=True, slots=True)
class Store:
    """
    A key-value store of one processor whose changes are committed with the step.

    Attributes:
        value: codec of the values.
        key: codec of the keys; None: they are text.
        max_bytes: memory, or room on the disk, that the entries of one task may take, about. A task that needs more
            stops: no entry is ever dropped for another one.
        ttl: how long an entry lives, by message time, such as "7 days"; None: until it is deleted.
        ttl_messages: instead of `ttl`: how many of the task's messages an entry outlives.
        per_task: whether it makes no difference which task has which entry. Then the input may be given more
            partitions; else `plan` refuses, because messages of a key may come to another task than its entry.
        on_disk: whether a worker holds the entries in a file below `state_dir`, instead of in memory.
    """

    value: CodecSpec = Json()
    key: CodecSpec | None = None
    max_bytes: int = 1024**3
    ttl: str | timedelta | None = None
    ttl_messages: int | None = None
    per_task: bool = False
    on_disk: bool = False

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        codecs = [codec for codec in (self.key, self.value) if codec is not None]
        own = (LMDB,) if self.on_disk else ()
        return (*own, *(package for codec in codecs for package in codec.packages()))

    @property
    def lifetime(self) -> int | None:
        """How long an entry lives, in milliseconds or messages; None: until it is deleted."""
        return self.ttl_messages if self.ttl is None else milliseconds(self.ttl, "ttl")

    @property
    def by_time(self) -> bool:
        """Whether `lifetime` is in milliseconds."""
        return self.ttl is not None

    def __post_init__(self) -> None:
        if self.ttl is not None:
            try:
                object.__setattr__(self, "ttl", written(self.ttl, "ttl"))  # stores with the same lifetime are equal
            except ValueError as error:
                raise GraphError(f"Store({error}).") from None
            if self.ttl_messages is not None:
                raise GraphError("Store(ttl=, ttl_messages=): entries end by time or by messages. Drop one of them.")
        if self.ttl_messages is not None and (type(self.ttl_messages) is not int or self.ttl_messages < 1):
            raise GraphError(f"Store(ttl_messages={self.ttl_messages!r}): takes a number of messages, such as 100_000.")
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise GraphError(f"Store(max_bytes={self.max_bytes!r}): takes a number of bytes, such as 512 * 1024**2.")
        if not isinstance(self.key, CodecSpec | None):
            raise GraphError(f"Store(key={self.key!r}): takes a codec, such as Avro('long'), or None for text.")
        if not isinstance(self.value, CodecSpec):
            raise GraphError(
                f"Store({self.value!r}): takes a codec. Write Store(Json()), Store(Avro(...)) or Store(Raw())."
            )


@known_arguments()
@dataclass(frozen=True, slots=True)
class Table:
    """
    A topic that a function looks up by key. It never causes a call. The topic's settings have the codecs.

    Each task holds the partition of its own number, so keys must be partitioned as those of the input.

    Attributes:
        topic: to read, usually a compacted one.
        max_bytes: memory that the entries of one partition may take, about. A task that needs more stops.
        wait: how long a call waits, such as "10 seconds", until the table has all that was committed in its topic when
            the messages of the call were fetched; None: a call does not wait, and may miss what came just before.
        then: what happens when `wait` is over: "stop" fails the task, which tries again and stops if that does not
            help; "call" calls the function with what was read.
    """

    topic: str
    max_bytes: int = 1024**3
    wait: str | timedelta | None = None
    then: Literal["stop", "call"] = "stop"
    kind: ClassVar[str] = "table"

    @property
    def wait_s(self) -> float | None:
        """How long a call waits, in seconds; None: it does not."""
        return None if self.wait is None else milliseconds(self.wait, "wait") / 1000

    def __post_init__(self) -> None:
        if self.wait is not None:
            try:
                object.__setattr__(self, "wait", written(self.wait, "wait"))  # equal for equal durations
            except ValueError as error:
                raise GraphError(f"{type(self).__name__}({error}).") from None
        if self.then not in ("stop", "call"):
            raise GraphError(f"{self!r}: then= is 'stop' or 'call'.")
        if self.wait is None and self.then != "stop":
            raise GraphError(f"{self!r}: then= needs wait=, such as wait='10 seconds'.")
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise GraphError(f"{self!r}: max_bytes= takes a number of bytes, such as 512 * 1024**2.")


@known_arguments()
class GlobalTable(Table):
    """A `Table` of which each process holds all partitions, whatever the input's keys are."""

    __slots__ = ()
    kind: ClassVar[str] = "global"


@known_arguments()
@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """
    When a batch of steps is committed at the latest. It is committed earlier when its input is drained.

    A function may also ask for a commit behind its step: `step.request_commit()`.

    Attributes:
        max_messages: steps in one transaction; with a database, in one of its transactions. One of Kafka follows up to
            eight of those, as long as no message comes of their steps.
        max_bytes: bytes of keys and values in one transaction.
        max_seconds: how long user code is called for one transaction.
        idle_seconds: after how long a position that moved only over markers is committed (P1).
    """

    max_messages: int = 10_000
    max_bytes: int = 32 * 1024 * 1024
    max_seconds: float = 1.0
    idle_seconds: float = 60.0

    def __post_init__(self) -> None:
        whole = (self.max_messages, self.max_bytes)
        if any(type(one) is not int for one in whole) or any(
            isinstance(one, bool) or not isinstance(one, int | float) or not one > 0
            for one in (*whole, self.max_seconds, self.idle_seconds)
        ):
            raise GraphError(f"{self!r}: takes numbers above 0, such as CommitPolicy(max_messages=1_000).")


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """
    What a worker does when one call of a function takes long. With `batch=True` a call has many messages.

    Attributes:
        warn_seconds: the worker logs a call that takes longer, once, with its message.
        end_seconds: the worker ends when a call takes longer; None: never. The call counts as a death of its process,
            so a message that hangs each time is quarantined in the end.
    """

    warn_seconds: float = 60.0
    end_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("warn_seconds", "end_seconds"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ConfigError(f"calls.{name} must be more than 0 seconds, not {value!r}")


@known_arguments()
@dataclass(frozen=True, slots=True)
class Retry:
    """
    Which exceptions are retried, and for how long; each retry calls the function with the same step and hash.

    Attributes:
        on: exception classes to retry.
        for_s: how long, in seconds since the first call.
        first_s: the first pause, in seconds; each later one is twice as long.
        max_s: the longest pause, in seconds.
        then: what follows when the time is over. stop: the task stops, because an outage is not the message's fault.
            error: the exception is handled like any other, as an error message if there is an errors topic.
    """

    on: type[Exception] | tuple[type[Exception], ...] = (OSError,)
    for_s: float = field(default=300.0, kw_only=True)
    first_s: float = field(default=0.1, kw_only=True)
    max_s: float = field(default=30.0, kw_only=True)
    then: Literal["stop", "error"] = field(default="stop", kw_only=True)

    def __post_init__(self) -> None:
        classes: tuple[Any, ...] = self.on if isinstance(self.on, tuple) else (self.on,)
        object.__setattr__(self, "on", classes)
        if not classes or not all(isinstance(cls, type) and issubclass(cls, Exception) for cls in classes):
            raise GraphError(f"Retry(on={self.on!r}): takes subclasses of Exception. Write Retry(on=(OSError,)).")
        for name in ("for_s", "first_s", "max_s"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise GraphError(f"Retry({name}={seconds!r}): takes seconds above 0. Give a number such as 30.")
        if self.first_s > self.max_s:
            raise GraphError(f"Retry: first_s={self.first_s} is longer than max_s={self.max_s}. Swap or raise max_s.")
        if self.then not in ("stop", "error"):
            raise GraphError(f"Retry(then={self.then!r}): takes 'stop' or 'error'.")

    @property
    def classes(self) -> tuple[type[Exception], ...]:
        """`on` as a tuple, for ``isinstance`` and ``except``."""
        return self.on if isinstance(self.on, tuple) else (self.on,)
