"""A step that failed: its description, its line in the log, and its error message."""

from __future__ import annotations

import inspect
import os
import sysconfig
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import CuesError, context_of
from cues_kafka.graph.addresses import led_to
from cues_kafka.graph.error_message import ErrorCause, ErrorMessage
from cues_kafka.ports.log import Coordinates, WireMessage
from cues_kafka.task.calling.carried import Shown
from cues_kafka.task.calling.step import Step
from cues_kafka.words import visible

if TYPE_CHECKING:
    from cues_kafka.task.calling.batch import Batch, Retrying

UNDECODED = frozenset({"decode", "quarantine"})
"""Kinds whose error messages carry the raw bytes, because they could not be decoded."""

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
"""Where the files of this package are."""

MOST_CAUSES = 5
"""Exceptions that led to the one that an error message is about."""

MOST_FRAMES = 10
"""Frames of a trace, the innermost ones."""

_PYTHON = f"{sysconfig.get_path('stdlib')}{os.sep}"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Where files of other libraries are."""

USERS = 2
"""How near to the user their own code is, see `_nearness_of`."""

MOST_TEXT = 500
"""Characters of an exception's text in a log line. The error message has more of it."""


Outcome: TypeAlias = Literal["outputs", "error", "nil"]
"""How a step ends."""


@dataclass(slots=True)
class Delivering:
    """
    A step that is being delivered, and how far it came.

    Attributes:
        taken: consumed messages with the index of their binding.
        batch: the batch that it was called in.
        retrying: earlier calls.
        kind: `decode`, `raised`, `output`, `retries exhausted` or `quarantine`.
        step: what user code saw; None: it was not called.
        decoding: the message that was decoded last, with the index of its binding; None: the lead's.
        fn: the function, which is where an output comes from that cannot be sent; None: it was not called.
        given: what the function gets for this step alone, by the name of the parameter; None: nothing.
        own: what participants keep of it, by participant; None: nothing.
        outcome: how it ended; None: it has not.
        messages: how many outputs it has.
    """

    taken: tuple[tuple[int, WireMessage], ...]
    batch: Batch
    retrying: Retrying | None
    kind: str = "decode"
    step: Step | None = None
    decoding: tuple[int, WireMessage] | None = None
    fn: Any = None
    given: Mapping[str, Any] | None = None
    own: dict[object, Any] | None = None
    outcome: Outcome | None = None
    messages: int = 0

    def keep(self, part: object, what: Any) -> None:
        """A participant keeps something of the step."""
        self.own = {**(self.own or {}), part: what}

    def kept(self, part: object) -> Any:
        """What a participant has kept; None: nothing."""
        return None if self.own is None else self.own.get(part)

    @property
    def consumed(self) -> tuple[Coordinates, ...]:
        """The coordinates of its messages; of a timer, those of the messages whose step set it."""
        return self.batch.coordinates(self.taken)

    def describe(self, error: BaseException) -> str:
        """Which message, what happened, and where in the user's code."""
        what = {"decode": "cannot be decoded", "output": "returned an output that cannot be sent"}.get(
            self.kind, "raised"
        )
        at = f" at {where}" if what == "raised" and (where := self.location(error)) else ""
        shown = text_of(error) if self.kind == "output" else show(error)
        return f"{self.place} {what}: {shown}{at}"

    def mark(self, error: BaseException) -> BaseException:
        """An exception that ends its worker, with a note of the message that it was raised for."""
        at = f" at {where}" if (where := self.location(error)) else ""
        said = f"raised for {self.place}{at}; raise a subclass of Exception to end the message as an error"
        if said not in getattr(error, "__notes__", ()):
            error.add_note(said)
        return error

    def location(self, error: BaseException) -> str:
        """The line of the user's that raised; of an output that was refused, the first line of the function."""
        return location(error, None if self.kind in UNDECODED else self.fn)

    @property
    def place(self) -> str:
        """Where its messages stand, or which timer it is."""
        begun_by = self.batch.begun_by
        return place(self.taken) if begun_by is None else begun_by.place

    def hash(self, consumed: Sequence[Coordinates]) -> bytes:
        """The delivery hash (O4), or the timer's (F1)."""
        spec, begun_by = self.batch.spec, self.batch.begun_by
        return delivery_hash(spec.graph, spec.processor, consumed) if begun_by is None else begun_by.hash


def place(taken: Sequence[tuple[int, WireMessage]]) -> str:
    """Where the messages of a step stand: ``orders/3 at 17``, with commas between those of a join."""
    return ", ".join(f"{m.topic()}/{m.partition()} at {m.offset()}" for _, m in taken)


def note(failure: Delivering, error: BaseException, consumed: Sequence[Coordinates]) -> dict[str, Any]:
    """Keys and values for the log: which step failed, and how."""
    return {
        "at": failure.place,
        "hash": failure.hash(consumed).hex(),
        "kind": failure.kind,
        "error": show(error)[:MOST_TEXT],
        "where": failure.location(error),
    }


def show(error: BaseException) -> str:
    """
    The exception as `ValueError: text`, without a traceback.

    User code often quotes its message, so its texts have escapes for line ends and what a terminal obeys. Texts of ours
    may have several lines.
    """
    text = f"{type(error).__name__}: {text_of(error)}"
    return text if isinstance(error, CuesError) else visible(text)


def ended_by(error: BaseException) -> str:
    """Why a worker has ended: the class, the text if there is one, and for which message user code raised it."""
    text = text_of(error)
    return "; ".join([show(error) if text else type(error).__name__, *getattr(error, "__notes__", ())])


def text_of(error: BaseException) -> str:
    """The exception's text, also when its `__str__` raises."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - the first error must become a message whatever it is
        return f"(its text cannot be made: {type(second).__name__})"


def end_frames(error: BaseException) -> None:
    """
    End what the frames behind an exception still hold, such as a generator in the middle of a `try`.

    Its `finally` would else run when the exception is forgotten: after the step was taken back, and what it writes to
    a store or a database would be committed with the next step.
    """
    for one in led_to(error):
        traceback.clear_frames(one.__traceback__)


def location(error: BaseException, fn: Any = None) -> str:
    """
    The innermost frame of the user's code as `module.py:function:line`, without a path of the machine.

    A look-up in a store raises in this package, and a statement in the driver of a database: the line of the function
    that made it is what helps. Where no frame is the user's, it is the innermost one of a library, or else of this
    package.

    Args:
        error: what was raised.
        fn: a function whose first line it is instead, if no frame is the user's but this function is.
    """
    frames = list(_frames(error))
    nearest = max(reversed(frames), key=_nearness, default=None)
    code = None if fn is None else _code_of(fn)
    if code is not None and _nearness_of(code) == USERS and (nearest is None or _nearness(nearest) < USERS):
        return _place(code, code.co_firstlineno)
    return "" if nearest is None else _shown(nearest)


def _code_of(fn: Any) -> CodeType | None:
    """The code of a function, behind decorators and partials, or of an object that is called; None: it is no Python."""
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    called = fn if hasattr(fn, "__code__") else type(fn).__call__
    found = getattr(called, "__code__", None)
    return found if isinstance(found, CodeType) else None


def trace(error: BaseException) -> tuple[str, ...]:
    """The frames outside this package as `location` shows them, the innermost last."""
    return tuple(_shown(frame) for frame in _frames(error) if _nearness(frame))[-MOST_FRAMES:]


def _frames(error: BaseException) -> Iterator[TracebackType]:
    frame = error.__traceback__
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _nearness(frame: TracebackType) -> int:
    """How near to the user a frame is."""
    return _nearness_of(frame.tb_frame.f_code)


def _nearness_of(code: CodeType) -> int:
    """How near to the user code is: 0 of this package, 1 of a library or of Python, 2 (`USERS`) of the user."""
    file = code.co_filename
    if file.startswith(_PACKAGE):
        return 0
    return 1 if file.startswith(("<frozen", _PYTHON)) or not _INSTALLED.isdisjoint(PurePath(file).parts) else USERS


def _shown(frame: TracebackType) -> str:
    return _place(frame.tb_frame.f_code, frame.tb_lineno)


def _place(code: CodeType, line: int) -> str:
    # Not by `traceback`, which reads the source files: that takes milliseconds for each error message.
    return f"{PurePath(code.co_filename).name}:{code.co_name}:{line}"


def chain(error: BaseException) -> list[BaseException]:
    """The exceptions that led to this one, the nearest first: what it was raised from, or in the handling of."""
    found: list[BaseException] = []
    while len(found) < MOST_CAUSES:
        last = found[-1] if found else error
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or any(cause is one for one in (error, *found)):
            break
        found.append(cause)
    return found


def causes_of(error: BaseException) -> tuple[ErrorCause, ...]:
    """The exceptions that led to this one, for its error message."""
    return tuple(ErrorCause(type(one).__qualname__, text_of(one), trace(one)) for one in chain(error))


def merged_context(error: BaseException) -> dict[str, str]:
    """What `error_context` has added to an exception and to those that led to it; the innermost counts."""
    merged: dict[str, str] = {}
    for one in (error, *chain(error)):
        merged.update(context_of(one))
    return merged


def error_message(
    failure: Delivering,
    error: BaseException,
    consumed: Sequence[Coordinates],
    declaration: Mapping[str, Any],
    shown: Shown,
) -> ErrorMessage:
    """
    The error message of one delivery.

    Args:
        failure: the step.
        error: why it failed.
        consumed: coordinates of its messages.
        declaration: of its processor.
        shown: the payload.
    """
    spec, lead = failure.batch.spec, failure.taken[0][1]
    return ErrorMessage(
        graph=spec.graph,
        processor=spec.processor,
        task=spec.name,
        consumed=tuple(consumed),
        topics=tuple(m.topic() for _, m in failure.taken),
        hash=failure.hash(consumed),
        kind=failure.kind,
        exception=type(error).__qualname__,
        text=text_of(error),
        location=failure.location(error),
        trace=trace(error),
        causes=causes_of(error),
        context={**_timer_of(failure), **(failure.step.context if failure.step else {}), **merged_context(error)},
        attempts=(failure.retrying.attempt if failure.retrying else 0) + 1,
        starts=failure.batch.starts,
        timestamp_ms=int(time.time() * 1000),
        key=lead.key(),
        declaration=declaration,
        **shown,
    )


def _timer_of(failure: Delivering) -> dict[str, str]:
    fired = failure.batch.fired
    return {} if fired is None else {"timer.key": fired.set.key, "timer.due": fired.due}
