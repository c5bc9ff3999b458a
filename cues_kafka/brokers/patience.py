"""Asking a cluster again where the answer may be another one a moment later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from cues_kafka.errors import RetriableError

FIRST_S: Final = 0.05
LONGEST_S: Final = 1.0
"""Between two questions: a pause that doubles. Leaders move within tens of milliseconds, brokers restart in seconds."""

_Answer = TypeVar("_Answer")


def ask_again(
    question: Callable[[], _Answer],
    for_s: float,
    *,
    while_: Callable[[RetriableError], bool] = lambda _: True,
    longest_s: float = LONGEST_S,
) -> _Answer:
    """
    Ask, and ask again while leaders move or the cluster does not answer.

    Args:
        question: what to ask.
        for_s: how long.
        while_: whether an error is one that passes.
        longest_s: the longest pause between two questions.

    Raises:
        RetriableError: the last one, when the time is over or it is not one that passes.
    """
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, RetriableError) and while_(error)),
        stop=stop_after_delay(for_s),
        wait=wait_exponential(FIRST_S, max=longest_s),
        reraise=True,
    )
    return retrying(question)
