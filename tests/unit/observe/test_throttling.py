"""What brokers held back because of a quota: all of it is counted, and said once a minute for each broker."""

from __future__ import annotations

import re

import pytest

from cues_kafka.observe.throttling import Throttling


def test_what_is_held_back_is_added_up_and_said_once_a_minute_for_each_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line has what came since the line before; an answer without a delay says nothing."""
    now_s = 0.0
    throttling = Throttling(lambda: now_s)
    with caplog.at_level("WARNING", "cues_kafka.broker"):
        throttling.held_back("session shop.check.0", "b1", 0.5)
        throttling.held_back("session shop.check.1", "b1", 0.25)
        throttling.held_back("session shop.check.0", "b2", 1.0)
        throttling.held_back("session shop.check.0", "b1", 0.0)
        now_s = 60.0
        throttling.held_back("session shop.check.1", "b1", 0.25)

    assert throttling.total_s == 2.0
    said = re.findall(r"throttled by a quota client='session shop.check.(.)' broker='(..)' for_s=([\d.]+)", caplog.text)
    assert said == [("0", "b1", "0.5"), ("0", "b2", "1.0"), ("1", "b1", "0.5")]
    assert caplog.text.count("remedy=") == 3


def test_last_minute_is_known() -> None:
    """What is older does not count, also where no answer is held back any more."""
    now_s = 100.2
    throttling = Throttling(lambda: now_s)
    assert throttling.recent_s == 0.0
    throttling.held_back("a", "b1", 0.5)
    now_s = 100.9
    throttling.held_back("b", "b2", 0.25)
    now_s = 130.0
    throttling.held_back("a", "b1", 2.0)
    assert (throttling.recent_s, len(throttling._recent)) == (2.75, 2)
    now_s = 170.0
    assert throttling.recent_s == 2.0
    now_s = 200.0
    assert (throttling.recent_s, throttling.total_s) == (0.0, 2.75)
