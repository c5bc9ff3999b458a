"""Messages of a topic that are read when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, overload

from cues_kafka.client.access import Access, Since, TopicAccess
from cues_kafka.errors import ConfigError
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.scanning import read_newest, read_since
from cues_kafka.task.calling.step import Received

SHOWN = 20
"""How many messages `repr` shows at most."""


class Messages(Sequence[Received]):
    """
    The committed messages of a topic, up to its end at the moment of the call.

    They are read while you iterate, so a topic may be larger than the memory. Each iteration reads the topic again.
    `len`, an index and a slice read everything, and keep it.
    """

    def __init__(self, read: Callable[[], Iterable[Received]]) -> None:
        self._read = read
        self._all: list[Received] | None = None

    def __iter__(self) -> Iterator[Received]:
        return iter(self._read() if self._all is None else self._all)

    def __len__(self) -> int:
        return len(self._loaded())

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    @overload
    def __getitem__(self, index: int) -> Received: ...

    @overload
    def __getitem__(self, index: slice) -> list[Received]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._loaded()[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Messages) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [repr(one) for one in islice(self, SHOWN + 1)]
        return f"[{', '.join(shown if len(shown) <= SHOWN else [*shown[:SHOWN], '...'])}]"

    def _loaded(self) -> list[Received]:
        if self._all is None:
            self._all = list(self._read())
        return self._all


def messages_of(
    access: Access, topic: TopicAccess, limit: int | None, *, last: int | None, since: Since | None
) -> Messages:
    """
    Make the messages of a topic; see `Client.messages`.

    Raises:
        ConfigError: the topic does not exist, or a number is negative.
    """
    for name, number in (("limit", limit), ("last", last)):
        if number is not None and number < 0:
            raise ConfigError(f"messages({topic.name!r}, {name}={number}): give 0 or more")
    since_ms = None if since is None else access.milliseconds(since)
    ranges = topic.ranges(since_ms)

    def read() -> Iterator[Received]:
        found: Iterable[WireMessage]
        if last is None:
            found = islice(read_since(access.broker, ranges, since_ms, group=topic.group), limit)
        else:
            found = read_newest(access.broker, ranges, last, since_ms, group=topic.group)
        for message in found:
            yield topic.received(message)

    return Messages(read)
