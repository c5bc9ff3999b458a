"""The order of marks in a changelog (R4b)."""

from __future__ import annotations

import pytest

from cues_kafka import RecoveryError
from cues_kafka.state.marks import BETWEEN, NO_MARK, order, shown_mark, tool_mark


def test_marks_of_tools_lie_between_those_of_two_steps() -> None:
    """A reader tells which of two marks is the newer one; a tool's mark is never that of a step."""
    marks = [NO_MARK, 0, tool_mark(0, None), 1]
    for _ in range(3):
        marks.append(tool_mark(1, marks[-1]))
    marks += [2, tool_mark(2, marks[2]), 10**9, tool_mark(10**9, 10**9)]
    assert sorted(marks, key=order) == marks
    assert len({*map(order, marks)}) == len(marks)
    assert [mark < NO_MARK for mark in marks] == [False, False, True, False, True, True, True, False, True, False, True]
    assert [shown_mark(mark) for mark in marks[3:6]] == ["step 1", "tool 1 behind step 1", "tool 2 behind step 1"]


def test_a_tool_that_finds_no_mark_left_refuses() -> None:
    """The next mark would be that of the next step."""
    mark: int | None = None
    for _ in range(BETWEEN - 1):
        mark = tool_mark(5, mark)
    with pytest.raises(RecoveryError, match="4095 times behind step 5"):
        tool_mark(5, mark)
