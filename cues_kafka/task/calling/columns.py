"""Columns of messages, and calls of a whole chunk at once, for the loop of a plain pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from operator import itemgetter
from types import NoneType
from typing import Any, NamedTuple

from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.message import Message
from cues_kafka.ports.log import Headers, WireMessage
from cues_kafka.task.calling.outputs import size_of

PLAIN_ROOM = 1_000
"""Bytes that the hot loop's size check allows for a key, and again for headers that travel. A message that needs more,
or whose value is nearer to the limit, is measured the long way."""


class Columns(NamedTuple):
    """
    Messages of a plain pipe, and what their outputs inherit.

    Attributes:
        messages: the messages.
        keys: their keys; where the topic has a `key=`, those of the outputs.
        came: the headers that they came with.
        times: their timestamps.
    """

    messages: Sequence[WireMessage]
    keys: list[bytes | None]
    came: list[Headers | None]
    times: Sequence[int]

    def cut(self, start: int, end: int | None) -> Columns:
        """The messages in `[start, end)`."""
        if not start and end is None:
            return self
        return Columns(self.messages[start:end], self.keys[start:end], self.came[start:end], self.times[start:end])

    def of(self, indices: Sequence[int]) -> Columns:
        """The messages with these indices."""
        columns: Iterable[Sequence[Any]] = self
        return Columns(*([column[index] for index in indices] for column in columns))

    def having(self, data: Sequence[bytes | None]) -> Columns:
        """The messages that have a result."""
        kept = [made is not None for made in data]
        columns: Iterable[Sequence[Any]] = self
        return Columns(*(list(compress(column, kept)) for column in columns))


class Ahead:
    """
    Calls the function on a whole chunk at once. Only where each result alone decides about its record.

    If a result is unusual, the long loop takes over: `again` gives it the same results, raises the same exception in
    the same place, and then calls on. So no message is called twice.

    Attributes:
        results: the results so far.
    """

    __slots__ = ("_call", "_error", "_given", "results")

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call
        self.results: list[Any] = []
        self._error: BaseException | None = None
        self._given = 0

    def all_are_bytes(self, values: Iterator[Any], limit: int) -> bool:
        """Call for each value; whether every result is bytes of at most this length."""
        call, results = self._call, self.results
        append = results.append
        try:
            for value in values:
                append(call(value))
        except BaseException as error:  # `again` raises it for the same message
            self._error = error
            return False
        return set(map(type, results)) == {bytes} and max(map(len, results)) <= limit

    def each_is_bytes(self, values: Iterator[Any], limit: int) -> bool:
        """The same, up to the first unusual result: no step begins before it is known whether the one before failed."""
        call, results = self._call, self.results
        append = results.append
        try:
            for value in values:
                result = call(value)
                append(result)
                if type(result) is not bytes or len(result) > limit:
                    return False
        except BaseException as error:  # as above
            self._error = error
            return False
        return True

    def all_encoded(
        self, values: Iterator[Any], encode: Callable[[Sequence[Any]], list[bytes]], limit: int
    ) -> Sequence[bytes | None] | None:
        """Call for each value, and encode all results, None for nil; None: one of them is unusual, or larger."""
        call, results = self._call, self.results
        append = results.append
        try:
            for value in values:
                append(call(value))
        except BaseException as error:  # as above
            self._error = error
            return None
        kinds = set(map(type, results))
        if Message in kinds:
            return None
        data: Sequence[bytes | None]
        try:
            if NoneType in kinds:
                made = iter(encode([result for result in results if result is not None]))
                data = [None if result is None else next(made) for result in results]
            else:
                data = encode(results)
        except BaseException:  # the loop meets it again, and finds whose it is
            return None
        return data if max(map(len, filter(None, data)), default=0) <= limit else None

    def again(self, value: Any) -> Any:
        """The next result, or the exception in its place."""
        index, self._given = self._given, self._given + 1
        if index < len(self.results):
            return self.results[index]
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._call(value)


second = itemgetter(1)


def light(keys: Sequence[bytes | None], came: Sequence[Headers | None]) -> bool:
    """Whether each of these keys and headers needs at most `PLAIN_ROOM` where it is inherited."""
    if max(map(len, filter(None, keys)), default=0) > PLAIN_ROOM:
        return False
    if not any(came):
        return True
    # Most messages have one provenance header of the processor before, which does not travel.
    foreign = (one for one in came if one and (len(one) > 1 or one[0][0] != HEADER))
    return all(size_of(one) <= PLAIN_ROOM for one in foreign)
