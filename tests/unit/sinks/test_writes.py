"""E1: writes that a target takes while the function is called, and what fails there."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka.sinks.writes import EARLY, Writes
from cues_kafka.targets import Transactions


class Late(Transactions):
    """Takes writes at the commit, which is the default; refuses one of them once."""

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at
        self.open: list[Any] = []

    def ask(self) -> bytes | None:
        return None

    def begin(self) -> None:
        self.open = []

    def write(self, item: Any) -> None:
        if item == self.fails_at:
            self.fails_at = -1
            raise ConnectionError("it is away for a moment")
        self.open.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        raise AssertionError("these tests commit nothing")

    def close(self) -> None:
        pass


class Early(Late):
    """Takes writes early."""

    early = True


def filled(writes: Writes, opened: Transactions) -> None:
    """Add twice as many as are handed on together."""
    for number in range(2 * EARLY):
        if writes.add(number):
            writes.hand_on_early(opened)


def test_failure_during_a_call_is_raised_at_the_commit_also_where_the_next_write_would_pass() -> None:
    """Of what had failed nothing says whether the target has it."""
    target, writes = Early(fails_at=3), Writes()
    filled(writes, target)
    assert target.open == [0, 1, 2]
    with pytest.raises(ConnectionError, match="away for a moment"):
        writes.hand_on(target)


def test_other_targets_get_writes_at_the_commit_only() -> None:
    """Their transactions may lock what a call waits for."""
    target, writes = Late(), Writes()
    filled(writes, target)
    assert target.open == []
    writes.hand_on(target)
    assert target.open == [*range(2 * EARLY)]


def test_target_that_was_opened_again_gets_all_writes() -> None:
    """The first ones are in a transaction that has ended with its connection."""
    first, second, writes = Early(), Early(), Writes()
    filled(writes, first)
    writes.hand_on(second)
    assert second.open == [*range(2 * EARLY)]
