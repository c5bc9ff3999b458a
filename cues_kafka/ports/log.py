"""What a log has: places, messages as they are fetched and produced, and the one safe way to read headers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = "list[tuple[str, bytes | None]]"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Coordinates(NamedTuple):
    """The place of one consumed message, which no other message ever has.

    Attributes:
        binding: the input binding that it came by.
        topic_id: the 16 bytes of the topic's id (KIP-516); a recreated topic has another one.
        partition: partition number.
        offset: the message's offset.
    """

    binding: str
    topic_id: bytes
    partition: int
    offset: int


class Position(NamedTuple):
    """The next offset to read of one input binding (O2)."""

    binding: str
    topic: str
    topic_id: bytes
    offset: int


Positions: TypeAlias = tuple[Position, ...]
"""One `Position` for each input binding, in the order of declaration; the partition is the task's own."""


class WireMessage(Protocol):
    """A fetched message: the methods of confluent-kafka's `Message`, so that no wrapper stands on the hot path."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None:
        """The headers. Ask `headers_of` first: if a name is not UTF-8, this call must not be made twice."""
        ...

    def set_headers(self, value: Headers) -> None:
        """Set what `headers` returns from now on."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """(type, milliseconds since the epoch); type 0 means that the message has no timestamp."""
        ...

    def __len__(self) -> int:
        """Length of the value in bytes. So a message with an empty value is false: compare with None."""
        ...


class _Unreadable(list[Any]):
    """The type of `UNREADABLE`."""


UNREADABLE: Final[Headers] = _Unreadable()
"""Stands for the headers of a message that the client cannot read; it is known by identity."""


def headers_of(message: WireMessage) -> Headers | None:
    """The headers of a message, or `UNREADABLE`; see `headers_of_each`. Afterwards its `headers` may be called."""
    return headers_of_each((message,))[0]


def headers_of_each(messages: Sequence[WireMessage]) -> list[Headers | None]:
    """
    Return the headers of messages of one class, and `UNREADABLE` if a name is not UTF-8.

    Kafka takes any bytes as the name of a header. On a message with such a name, the first call of confluent-kafka
    2.16.1 returns an incomplete list *and* sets an exception. A second call returns that list, and reading it ends the
    process. So each message is asked once, and told what to answer from then on. `map` makes the call, because it
    checks for an exception after each call. A call in Python code that the interpreter has specialised does not, and
    the exception then comes up in a later line.
    """
    found: list[Headers | None] = []
    while len(found) < len(messages):
        try:
            found.extend(map(type(messages[0]).headers, islice(messages, len(found), None) if found else messages))
        except SystemError:
            messages[len(found)].set_headers(UNREADABLE)
            found.append(UNREADABLE)
    return found


class Fetched(NamedTuple):
    """The result of one poll for one partition: messages in order of offset, and the end of the partition if reached.

    Attributes:
        eof: the offset at which the reader found no more committed messages, the last stable offset, or None. It comes
            after `messages`, so it is at least one past the last of them.
    """

    partition: TopicPartition
    messages: list[WireMessage]
    eof: int | None


class Outgoing(NamedTuple):
    """One record to produce, as bytes. `partition=None`: murmur2 of the key. `timestamp_ms=0`: the broker's time.

    On the hot path any tuple of this shape will do.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp_ms: int = 0


class Sent(NamedTuple):
    """The partition and offset of an acknowledged record."""

    topic: str
    partition: int
    offset: int
