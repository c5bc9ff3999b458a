"""Entries of a changelog as of whole transactions, and the positions that they are true for (R4b)."""

from __future__ import annotations

from cues_kafka.ports.log import Position
from cues_kafka.state.expiring import MESSAGES, Expiring
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


def test_entries_end_by_the_time_of_whole_transactions() -> None:
    """As the task itself sees them."""
    part = Followed(10, MESSAGES)
    layers = Expiring(None, 10, MESSAGES)
    for step, (time, key) in enumerate([(1, b"a"), (5, b"b"), (11, b"c"), (14, b"a"), (30, b"d")]):
        layers.begin_batch()
        layers.begin_step()
        layers.advance(time)
        layers.change(key, b"%d" % time)
        for changed, value in layers.seal(step).items():
            part.change(layers.entry + changed, value)
        before = part.entries
        part.change(layers.unit, b"%d" % layers.time)
        assert part.entries == before
        part.change(b"m", b"%d" % step)
        layers.commit(step)
        assert part.entries == layers.committed_entries()
        assert {one: part.get(one) for one in b"a b c d".split()} == {
            one: layers.committed(one) for one in b"a b c d".split()
        }
    assert part.entries == {b"d": b"30"}
