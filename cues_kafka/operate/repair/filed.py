"""Error messages as tools choose them, show them and count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cues_kafka.arguments import known_arguments
from cues_kafka.core.delivery import ErrorPlace
from cues_kafka.errors import ConfigError
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import quoted
from cues_kafka.records.requests import Settled, Wish

KINDS: Final = ("raised", "decode", "output", "retries exhausted", "quarantine")
"""Kinds of error messages."""

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of an error message."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_places(value: Any) -> bool:
    whole = isinstance(value, set | frozenset) and all(isinstance(one, tuple) and len(one) == 3 for one in value)
    return whole and all(isinstance(t, str) and isinstance(p, int) and isinstance(o, int) for t, p, o in value)


_TAKES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "processor": (_is_text, "the name of a processor"),
    "kind": (_is_text, "a kind of error messages, such as 'raised'"),
    "exception": (_is_text, "the name of a class, such as 'ValueError'"),
    "since_ms": (_is_time, "milliseconds since 1970, as a whole number"),
    "until_ms": (_is_time, "milliseconds since 1970, as a whole number"),
    "places": (_are_places, "a set of (topic, partition, offset), such as frozenset({('shop.errors', 0, 17)})"),
}


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which error messages are meant: those for which all of this holds. What is None or empty leaves the choice open.

    Attributes:
        processor: name of the processor; those of its former names count as its own, see `follow`.
        kind: one of `KINDS`.
        exception: name of the exception's class.
        since_ms: they failed at this time or later, in milliseconds since 1970.
        until_ms: they failed before this time.
        places: where they stand.
    """

    processor: str | None = None
    kind: str | None = None
    exception: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    places: frozenset[Place] = frozenset()

    def fits(self, place: Place, error: ErrorMessage, now: str) -> bool:
        """Whether it is one of them; its processor has the name `now` since it was renamed."""
        return (
            self.processor in (None, error.processor, now)
            and self.kind in (None, error.kind)
            and self.exception in (None, error.exception)
            and (self.since_ms is None or error.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or error.timestamp_ms < self.until_ms)
            and (not self.places or place in self.places)
        )


ALL: Final = Selection()


@dataclass(frozen=True, slots=True)
class FiledError:
    """
    An error message where it stands, and what became of it.

    Attributes:
        topic, partition, offset: where it stands.
        place: the same by topic id.
        message: what it says.
        asked_of: the processor whose tasks take requests for it: its own, or what that one was renamed to.
        number: of the replay that comes next: 1 for a message that was not replayed yet.
        asked: what a task was asked to do with it; None: nothing.
        settled: what that came to; None: it is open.
        obstacle: why its messages cannot be delivered again; empty: they can.
        droppable: whether it can be dropped.
    """

    topic: str
    partition: int
    offset: int
    place: ErrorPlace
    message: ErrorMessage
    asked_of: str
    number: int
    asked: Wish | None
    settled: Settled | None
    obstacle: str
    droppable: bool

    def __str__(self) -> str:
        """Where it stands, as commands take it: ``shop.errors/0@17``."""
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(slots=True)
class FailureCause:
    """
    Error messages of one processor with one class of exception and one kind.

    Attributes:
        processor, exception, kind: what they have in common.
        count: how many there are.
        asked: how many of these were asked for, and are not settled yet.
        settled: how many of these are settled.
        first_ms, last_ms: when the first and the last one failed, in milliseconds since 1970.
        example: where the newest one stands.
        text: what its exception says.
    """

    processor: str
    exception: str
    kind: str
    count: int = 0
    asked: int = 0
    settled: int = 0
    first_ms: int = 0
    last_ms: int = 0
    example: str = ""
    text: str = ""

    def add(self, one: FiledError) -> None:
        """Count one of them."""
        at_ms, alone = one.message.timestamp_ms, not self.count
        self.count += 1
        self.asked += one.settled is None and one.asked is not None
        self.settled += one.settled is not None
        self.first_ms = at_ms if alone else min(self.first_ms, at_ms)
        if alone or at_ms >= self.last_ms:  # a time may be anything, also negative
            self.last_ms, self.example, self.text = at_ms, str(one), one.message.text


Causes: TypeAlias = "dict[tuple[str, str, str], FailureCause]"
"""By processor, exception and kind."""


def count_cause(causes: Causes, one: FiledError) -> None:
    """Count an error message by its cause."""
    key = one.message.processor, one.message.exception, one.message.kind
    causes.setdefault(key, FailureCause(*key)).add(one)


@dataclass(slots=True)
class Requested:
    """
    What became of a wish.

    Attributes:
        wish: to replay, or to drop.
        causes: those that were asked for; of a dry run those that would be.
        waiting: error messages that are not settled yet, as far as they were asked for: where each stands, by the key
            of the record that will settle it, for each task.
        before: how many were asked for already, and are not settled yet.
        settled: how many are settled already.
        refused: how many cannot be, by reason.
        examples: where one of these stands, by reason.
        outcomes: what those came to that `wait` has seen settled.
    """

    wish: Wish
    causes: Causes = field(default_factory=dict)
    waiting: dict[str, dict[bytes, str]] = field(default_factory=dict)
    before: int = 0
    settled: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """How many were asked for now."""
        return sum(cause.count for cause in self.causes.values())

    @property
    def open(self) -> tuple[str, ...]:
        """Where those stand that are not settled yet."""
        return tuple(where for places in self.waiting.values() for where in places.values())


def check_selection(wanted: Any) -> None:
    """
    Refuse what chooses no error messages.

    Raises:
        ConfigError: it is no selection, or an attribute is not what it takes.
    """
    if not isinstance(wanted, Selection):
        example = "Selection(processor='check')"
        raise ConfigError(f"{wanted!r:.80}: error messages are chosen by a Selection(...), such as {example}.")
    for name, (fits, takes) in _TAKES.items():
        value = getattr(wanted, name)
        if value is not None and not fits(value):
            raise ConfigError(f"Selection({name}={value!r:.80}): takes {takes}.")
    if wanted.kind is not None and wanted.kind not in KINDS:
        raise ConfigError(f"there are no error messages of kind {wanted.kind!r}. Kinds: {quoted(KINDS)}.")
