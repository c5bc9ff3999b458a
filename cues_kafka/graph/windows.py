"""A processor with a function of ours: it counts messages in tumbling windows."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from cues_kafka.errors import EarlyMessage, GraphError, LateMessage
from cues_kafka.graph.declare import Json, Store
from cues_kafka.graph.durations import milliseconds
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.ready import By, check_place, found
from cues_kafka.graph.timers import Timer, Timers
from cues_kafka.graph.times import shown_time

Late: TypeAlias = Literal["drop", "error"]

NO_GRACE: Final = timedelta(0)


def Tumbling(  # noqa: N802  it stands where `Processor` stands
    name: str,
    *,
    inputs: str,
    outputs: str,
    every: str | timedelta,
    by: By | None = None,
    grace: str | timedelta = NO_GRACE,
    late: Late = "drop",
    ahead: str | timedelta | None = None,
    **settings: Any,
) -> Processor:
    """
    A processor that counts messages by key in windows that follow each other: each hour, each minute.

    A window begins at a multiple of its length since 1970, in UTC. When it closes, each key that has messages in it
    becomes one output, ``{"key": ..., "start_ms": ..., "end_ms": ..., "count": ...}``. It closes when the task has
    processed a message whose timestamp is `grace` behind the end of the window, or later (F2). So the same messages
    give the same counts, through deaths and replays.

    Args:
        name: of the processor.
        inputs: the topic. Messages of one key must be in one partition.
        outputs: where the counts go, with the key.
        every: length of a window, such as "1 hour".
        by: where the key is, as in `rekey`; None: the message's key.
        grace: how long a window waits for messages that come late; none by default.
        late: what becomes of a message whose window is closed. drop: nothing; the log tells the 1st, 2nd, 4th, 8th and
            so on, with their number, and `status` and the metrics count them. error: an error message, of the
            exception `LateMessage`.
        ahead: how far the time of a message may be ahead of the worker's clock. One that is further ahead becomes an
            error message, of the exception `EarlyMessage`, and closes no window; None: any time is taken, and one
            message of a wrong clock closes all windows before it.
        settings: others of `Processor`.

    Raises:
        GraphError: something does not fit.
    """
    if by is not None:
        check_place(name, by)
    try:
        length = milliseconds(every, "every")
        patience = 0 if grace == NO_GRACE else milliseconds(grace, "grace")
        most_ahead = None if ahead is None else milliseconds(ahead, "ahead")
    except ValueError as error:
        raise GraphError(f"{name}: {error}.") from None
    if late not in get_args(Late):
        raise GraphError(f"{name}: late={late!r}: takes 'drop' or 'error'.")
    opts = {"by": by, "every": length, "grace": patience, "late": late, "ahead": most_ahead}
    state = {"counts": Store(Json(int)), "timers": Timers(closed)}
    return Processor(counted, name=name, inputs=inputs, outputs=outputs, state=state, opts=opts, **settings)


def counted(_: Any, step: Any, counts: Any, *, by: Any, every: int, grace: int, late: Late, ahead: int | None) -> None:
    """The function of `Tumbling`."""
    received = step.inputs[step.binding]
    key = received.key if by is None else found(by, received)
    if type(key) is not str:
        raise TypeError(f"the key is {key!r:.60}, and a window counts by text: give the messages keys, or by=")
    made_ms = received.timestamp_ms
    if ahead is not None and made_ms > (bound_ms := int(time.time() * 1000) + ahead):
        # As an error message it does not count for the time of the task (F2).
        raise EarlyMessage(f"its time {shown_time(made_ms)} is beyond {shown_time(bound_ms)}: ahead={ahead / 1000:g} s")
    start_ms = made_ms - made_ms % every
    closes_ms = start_ms + every + grace
    if closes_ms <= step.time_ms:
        at = f"{received.topic}/{received.partition} at {received.offset}"
        if late == "error":
            raise LateMessage(f"{at} was made at {made_ms} ms; its window closed at {closes_ms} ms of the task's time")
        if (messages := step.count_late()) & (messages - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
            step.log.warning("late for its window", at=at, messages=messages)
        return
    entry = f"{start_ms}:{key}"
    counts[entry] = counts.get(entry, 0) + 1
    step.schedule(key, at=closes_ms)


def closed(timer: Timer, counts: Any, every: int, grace: int) -> dict[str, Any]:
    """The function of the timers of `Tumbling`."""
    end_ms = timer.due_ms - grace
    start_ms = end_ms - every
    return {"key": timer.key, "start_ms": start_ms, "end_ms": end_ms, "count": counts.pop(f"{start_ms}:{timer.key}")}
