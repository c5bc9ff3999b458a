"""A cluster is asked again while leaders move, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cues_kafka.brokers.patience import ask_again
from cues_kafka.errors import FatalError, RetriableError


class Time:
    """In the place of the module `time`: sleeping lets it pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses_s.append(seconds)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr("cues_kafka.brokers.patience.time", found)
    return found


def failing(times: int, error: Exception) -> Callable[[], int]:
    """A question that is answered with the number of times that it was asked."""
    asked = 0

    def question() -> int:
        nonlocal asked
        asked += 1
        if asked <= times:
            raise error
        return asked

    return question


def test_a_question_is_asked_again_until_it_is_answered(time: Time) -> None:
    """After pauses that double up to the longest one."""
    assert ask_again(failing(4, RetriableError("no leader")), 10.0, longest_s=0.2) == 5
    assert time.pauses_s == [0.05, 0.1, 0.2, 0.2]


def test_the_last_error_is_raised_when_the_time_is_over(time: Time) -> None:
    """Not earlier: the question is asked once more at the end."""
    with pytest.raises(RetriableError, match="no leader"):
        ask_again(failing(10**6, RetriableError("no leader")), 10.0)
    assert 10.0 <= time.now_s <= 11.0


def test_an_error_that_does_not_pass_is_raised_at_once(time: Time) -> None:
    """Whether it is of another class, or one that the caller does not wait for."""
    with pytest.raises(FatalError):
        ask_again(failing(1, FatalError("no")), 10.0)
    with pytest.raises(RetriableError):
        ask_again(failing(1, RetriableError("other")), 10.0, while_=lambda error: "leader" in str(error))
    assert time.pauses_s == []
