"""Tables for screens of any width. Numbers are never truncated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from cues_kafka.words import visible

WIDTH: Final = 80
"""Characters of a line where the output is no terminal."""


def aligned(rows: Sequence[Sequence[str]], *, left: Collection[int]) -> list[str]:
    """
    Rows as lines, each column as wide as its widest cell.

    Args:
        rows: cells; the first row holds the titles.
        left: columns that are aligned to the left; the others are numbers.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(wide) if i in left else cell.rjust(wide)
            for i, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fits(lines: Sequence[str], width: int) -> bool:
    """Whether all lines fit the screen."""
    return max(map(len, lines)) <= width


def paragraph(title: str, items: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """A row as a paragraph: its title, and below it as many named values in a line as fit."""
    yield title
    line = ""
    for name, value in items:
        item = f"  {name} {value}"
        if line and len(line) + len(item) > width:
            yield line
            line = ""
        line += item
    yield line
