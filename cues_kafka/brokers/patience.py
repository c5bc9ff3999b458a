"""Asks a cluster again while its answer may change within a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

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
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, RetriableError) and while_(error)),
        stop=stop_after_delay(for_s),
        wait=wait_exponential(FIRST_S, max=longest_s),
        reraise=True,
    )
    return retrying(question)
