"""When things happened, in few numbers."""

from __future__ import annotations

from cues_kafka.ui.spread import MOST, Spread


def test_times_are_counted_in_parts_of_equal_length() -> None:
    """From the first to the last, in whatever order they come."""
    spread = Spread()
    for at_ms in (5_000, 1_000, 3_000, 3_000):
        spread.add(at_ms)
    bars = spread.bars()

    assert sum(bars) == 4
    assert len(bars) <= MOST
    assert (bars[0], bars[-1], max(bars)) == (1, 1, 2)
    assert abs(bars.index(2) - len(bars) // 2) <= 1


def test_few_numbers_are_kept_however_far_the_times_are_apart() -> None:
    """None is lost."""
    spread = Spread()
    for number in range(3_000):
        spread.add(number**3)

    assert sum(spread.bars()) == 3_000
    assert MOST // 4 <= len(spread.bars()) <= MOST


def test_nothing_has_no_parts() -> None:
    """And one has one."""
    spread = Spread()
    assert spread.bars() == []
    spread.add(7)
    assert spread.bars() == [1]
