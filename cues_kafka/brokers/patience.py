"""Asks a cluster again while its answer may change within a moment.

Tenacity would keep each error, and with it the frames that it went through, in a cycle with its own. One of those
frames holds a client. Only Python's garbage collector would free it, and that may run on a thread of librdkafka, which
must destroy no client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from cues_kafka.errors import RetriableError

FIRST_S: Final = 0.05
LONGEST_S: Final = 1.0
"""The pause between two questions doubles from the first to the longest: a leader moves within tens of milliseconds,
a broker restarts in seconds."""

_Answer = TypeVar("_Answer")


def ask_again(
    question: Callable[[], _Answer],
    for_s: float,
    *,
    while_: Callable[[RetriableError], bool] = lambda _: True,
    longest_s: float = LONGEST_S,
) -> _Answer:
    """
    Ask, and ask again for `for_s` seconds while leaders move or the cluster does not answer.

    Args:
        question: what to ask.
        for_s: how long.
        while_: says whether an error passes.
        longest_s: the longest pause between two questions.

    Raises:
        RetriableError: the last one, when the time is over or the error does not pass.
    """
    deadline, pause_s = time.monotonic() + for_s, FIRST_S
    while True:
        try:
            return question()
        except RetriableError as error:
            if not while_(error) or time.monotonic() >= deadline:
                raise
        time.sleep(min(pause_s, longest_s))
        pause_s *= 2
