"""A step that failed: its description, its line in the log, and its error message."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import RetriableError
from cues_kafka.graph.processor import Processor
from cues_kafka.ports import Coordinates, WireMessage
from cues_kafka.records.bytes import ErrorMessage
from cues_kafka.runtime.calling.step import Step
from cues_kafka.sinks.calls import Delivery

if TYPE_CHECKING:
    from cues_kafka.runtime.calling.batch import Batch, Retrying

UNDECODED = frozenset({"decode", "quarantine"})
"""Kinds whose error messages carry the raw bytes, because they could not be decoded."""

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
"""Where the files of this package are."""

MOST_TEXT = 500
"""Characters of an exception's text in a log line. The error message has more of it."""


class Outage(RetriableError):
    """What a codec needs does not answer, or lacks what was declared: not the message's fault, wherever it comes up."""


@dataclass(slots=True)
class Failure:
    """
    A step that is being delivered, and how far it came.

    Attributes:
        taken: consumed messages with the index of their binding.
        batch: the batch that it was called in.
        retrying: earlier calls.
        kind: `decode`, `raised`, `output`, `retries exhausted` or `quarantine`.
        step: what user code saw; None: it was not called.
        decoding: the message that was decoded last; None: the lead's.
        delivery: what its calls know of it; None: it was not called, or makes none.
    """

    taken: tuple[tuple[int, WireMessage], ...]
    batch: Batch
    retrying: Retrying | None
    kind: str = "decode"
    step: Step | None = None
    decoding: WireMessage | None = None
    delivery: Delivery | None = None

    def describe(self, error: BaseException) -> str:
        """Which message, what happened, and where in the user's code."""
        what = {"decode": "cannot be decoded", "output": "returned an output that cannot be sent"}.get(
            self.kind, "raised"
        )
        at = f" at {where}" if what == "raised" and (where := location(error)) else ""
        shown = text_of(error) if self.kind == "output" else show(error)
        return f"{self.place} {what}: {shown}{at}"

    @property
    def place(self) -> str:
        """Where its messages stand, or which timer it is."""
        fired = self.batch.fired
        return place(self.taken) if fired is None else fired.place

    def hash(self, consumed: Sequence[Coordinates]) -> bytes:
        """The delivery hash (O4), or the timer's (F1)."""
        spec, fired = self.batch.spec, self.batch.fired
        return delivery_hash(spec.graph, spec.processor, consumed) if fired is None else fired.hash


def place(taken: Sequence[tuple[int, WireMessage]]) -> str:
    """Where the messages of a step stand: ``orders/3 at 17``, with commas between those of a join."""
    return ", ".join(f"{m.topic()}/{m.partition()} at {m.offset()}" for _, m in taken)


def note(failure: Failure, error: BaseException, consumed: Sequence[Coordinates]) -> dict[str, Any]:
    """Keys and values for the log: which step failed, and how."""
    return {
        "at": failure.place,
        "hash": failure.hash(consumed).hex(),
        "kind": failure.kind,
        "error": show(error)[:MOST_TEXT],
        "where": location(error),
    }


def show(error: BaseException) -> str:
    """The exception as `ValueError: text`, without a traceback."""
    return f"{type(error).__name__}: {text_of(error)}"


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
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        if (one := left.pop()) is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            left += [one.__cause__, one.__context__]


def location(error: BaseException) -> str:
    """
    The innermost frame outside this package as `module.py:function:line`, without a path of the machine.

    A look-up in a store or table raises in this package, and the line of the function that made it is what helps.
    Where all frames are in this package, it is the innermost one.
    """
    found = frame = error.__traceback__
    if found is None:
        return ""
    own = False  # whether a frame outside this package was found
    while frame is not None:
        outside = not frame.tb_frame.f_code.co_filename.startswith(_PACKAGE)
        if outside or not own:
            found, own = frame, outside
        frame = frame.tb_next
    # Not by `traceback`, which reads the source files: that takes milliseconds for each error message.
    code = found.tb_frame.f_code
    return f"{PurePath(code.co_filename).name}:{code.co_name}:{found.tb_lineno}"


def error_message(
    processor: Processor, failure: Failure, error: BaseException, consumed: Sequence[Coordinates]
) -> ErrorMessage:
    """The error message of one delivery."""
    spec, lead = failure.batch.spec, failure.taken[0][1]
    unread = lead if failure.decoding is None else failure.decoding
    return ErrorMessage(
        graph=spec.graph,
        processor=processor.name,
        task=spec.name,
        consumed=tuple(consumed),
        topics=tuple(m.topic() for _, m in failure.taken),
        hash=failure.hash(consumed),
        kind=failure.kind,
        exception=type(error).__qualname__,
        text=text_of(error),
        location=location(error),
        context={**_timer_of(failure), **(failure.step.context if failure.step else {})},
        attempts=(failure.retrying.attempt if failure.retrying else 0) + 1,
        starts=failure.batch.starts,
        timestamp_ms=int(time.time() * 1000),
        key=lead.key(),
        payload=unread.value() if failure.kind in UNDECODED else None,
    )


def _timer_of(failure: Failure) -> dict[str, str]:
    fired = failure.batch.fired
    return {} if fired is None else {"timer.key": fired.set.key, "timer.due": fired.due}
