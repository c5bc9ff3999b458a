"""Entries of a changelog as of whole transactions, and the positions that they are true for (R4b)."""

from __future__ import annotations

from cues_kafka.ports import Position
from cues_kafka.state.followed import Followed


def at(offset: int) -> tuple[Position, ...]:
    """Positions of one input."""
    return (Position("in", "in", b"", offset),)


def test_changes_show_with_their_mark() -> None:
    """Not before it."""
    part = Followed()
    part.change(b"ka", b"1")
    part.change(b"kb", b"2")
    assert part.entries == {}
    part.change(b"m", b"2")
    assert part.entries == {b"a": b"1", b"b": b"2"}
    part.change(b"ka", None)
    part.change(b"kc", None)
    part.change(b"m", b"3")
    assert part.entries == {b"b": b"2"}


def test_positions_count_with_record_and_mark_in_either_order() -> None:
    """The record names the step of the mark."""
    part = Followed()
    part.record(None, at(0))  # of a task that has not written to the store
    assert part.positions == at(0)
    part.record(2, at(5))
    part.record(2, at(6))  # it moved over markers only
    part.record(3, at(7))
    assert part.positions == at(0)
    part.change(b"m", b"2")
    assert part.positions == at(6)
    part.change(b"m", b"4")
    assert part.positions == at(7)
    part.record(4, at(9))
    assert part.positions == at(9)


def test_other_keys_are_no_entries() -> None:
    """Room for what comes later."""
    part = Followed()
    part.change(b"t1", b"1")
    part.change(b"m", b"1")
    assert part.entries == {}
