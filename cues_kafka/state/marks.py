"""
Marks: what a transaction of a task writes last into each of its changelogs, and the task's record names (R4b).

A batch's mark is the task's step number. A tool that writes entries moves no step, so its marks lie between those of
the steps: behind step 7 come its first change, its second one, and so on, and then step 8. As a number each is
negative, so that all fit one field.
"""

from __future__ import annotations

import re
from typing import Final

from cues_kafka.core.records import Kept
from cues_kafka.errors import RecoveryError

NO_MARK: Final = -1
"""Stands for the mark of a changelog without one."""

UNFINISHED: Final = "-"
"""Stands among the stores in a record of a task whose stores are being rebuilt: it must not run meanwhile (X3)."""

BETWEEN: Final = 4096
"""Marks for each step: its own, and those of tools behind it."""


def finished(stores: Kept) -> Kept:
    """What a record says of its stores, without that they are being rebuilt."""
    return tuple(one for one in stores if one[0] != UNFINISHED)


def order(mark: int) -> int:
    """A number that grows from mark to mark in a changelog."""
    return mark * BETWEEN if mark >= 0 else NO_MARK if mark == NO_MARK else -mark - 2


def tool_mark(step: int, newest: int | None) -> int:
    """
    The mark with which a tool ends its entries.

    Args:
        step: of the task.
        newest: what the record says now of this changelog; None: nothing.

    Raises:
        RecoveryError: tools have written behind this step too often.
    """
    first = step * BETWEEN
    at = first if newest is None else max(first, order(newest))
    if at - first + 1 >= BETWEEN:
        raise RecoveryError(
            f"the stores were written {BETWEEN - 1} times behind step {step}. Let the task deliver first."
        )
    return -(at + 1) - 2


def shown_mark(mark: int) -> str:
    """What a mark stands for, in words."""
    if mark == UNREADABLE:
        return "a mark that is not a number: another program wrote it"
    step, nth = divmod(order(mark), BETWEEN)
    return f"tool {nth} behind step {step}" if mark < NO_MARK else f"step {mark}"


UNREADABLE: Final = -(1 << 63)
"""What a mark counts as whose bytes are no number, because another program wrote it: no record of a task says so."""


def mark_in(value: bytes | None, otherwise: int) -> int:
    """
    The number in a changelog's mark, or in its clock; `UNREADABLE`: it is none.

    Args:
        value: of the message.
        otherwise: what no value, or an empty one, stands for.
    """
    if not value:
        return otherwise
    return int(value) if _DIGITS.fullmatch(value) else UNREADABLE


_DIGITS: Final = re.compile(rb"-?[0-9]{1,18}")
