"""Timers: calls that a function asks for, and that come later; how they are declared, and what is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Raw, Store
from cues_kafka.graph.times import EPOCH, milliseconds_of

Times: TypeAlias = Literal["messages", "clock"]

ENDLESS: Final = 2**62
"""The lifetime of a timer in milliseconds: it ends when it has fired."""

LATEST_MS: Final = 2**62


class Timer(NamedTuple):
    """
    A timer that is due.

    Attributes:
        key: what it was scheduled under.
        due_ms: the time at which it was due, in milliseconds since the epoch.
        hash: the name of this step (F1), 32 hexadecimal digits. It is the same on every attempt.
    """

    key: str
    due_ms: int
    hash: str

    @property
    def due(self) -> datetime:
        """
        `due_ms` as a time in UTC.

        Raises:
            ValueError: it is outside of the years 1 to 9999, which a `datetime` cannot be.
        """
        try:
            return EPOCH + timedelta(milliseconds=self.due_ms)
        except OverflowError:
            raise ValueError(
                f"due_ms={self.due_ms} of timer {self.key!r} is outside of the years 1 to 9999: use due_ms"
            ) from None


@known_arguments()
class Timers(Store):
    """
    Declares the timers of a processor: ``state={"timers": Timers(remind)}``. Its function calls `step.schedule`.

    When a timer is due, `fn` is called with it, as a step of its own: with outputs, one error message or nothing, and
    with the processor's stores, tables, `opts=` and `system=` by name. A timer is committed with the step that sets
    it, and removed with the step that it begins, however that ends.

    Attributes:
        fn: takes the `Timer`; what it returns goes to the processor's outputs.
        by: whose time counts. messages: the newest timestamp of the messages that the task has processed, so that the
            same messages give the same calls whenever they are processed. clock: the time of day; then a timer also
            fires where no message comes.
    """

    __slots__ = ("by", "fn")
    fn: Callable[..., Any]
    by: Times

    def __init__(self, fn: Callable[..., Any], *, by: Times = "messages", max_bytes: int = 1024**3) -> None:
        Store.__init__(self, Raw(), key=Raw(), max_bytes=max_bytes)
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "by", by)
        if not callable(fn):
            raise GraphError(f"Timers({fn!r}): takes the function to call when a timer is due: Timers(remind).")
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise GraphError(f"Timers({fn.__name__}): takes a plain function. Write def instead of async def.")
        if by not in get_args(Times):
            raise GraphError(f"Timers(by={by!r}): takes 'messages' (their timestamps) or 'clock' (the time of day).")

    @property
    def lifetime(self) -> int:
        return ENDLESS

    @property
    def by_time(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is Timers and (self.fn, self.by, self.max_bytes) == (other.fn, other.by, other.max_bytes)

    def __hash__(self) -> int:
        return hash((self.fn, self.by, self.max_bytes))

    def __repr__(self) -> str:
        return f"Timers({getattr(self.fn, '__name__', self.fn)!s}, by={self.by!r})"


def due_ms(at: object) -> int:
    """
    A time in milliseconds since the epoch; one before it is 0, for what is past is due at once.

    Raises:
        ValueError: `at` is not a time, or has no zone.
    """
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"at={at!r} has no zone. Write datetime(..., tzinfo=UTC)")
        at = milliseconds_of(at, "at=")
    if type(at) is not int or at >= LATEST_MS:
        raise ValueError(f"at={at!r:.40}: takes milliseconds since the epoch, or a datetime with a zone")
    return max(at, 0)
