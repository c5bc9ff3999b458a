"""The statements on our two tables, which name each table with the schema that it was found in."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_OF_TASK = "graph = ? AND processor = ? AND part = ?"


class Places(NamedTuple):
    """
    Our tables as statements name them, so that no `search_path`, `USE` or temporary table puts another in their place.

    Attributes:
        tasks: `cues_task`, with its schema.
        outbox: `cues_outbox`, with its schema.
    """

    tasks: str
    outbox: str


class Statements(NamedTuple):
    """
    The statements; parameters are written `?`.

    Attributes:
        select: where a task stands: base, step, owner, attempt, backend.
        steps: the tasks of a processor that have a row, and their steps.
        claim: names an owner and its connection, unless there is a later owner.
        move: moves the row to the end of an attempt, as a tool does.
        advance: the same for a batch, from the step and the owner that the batch found: one row, or none.
        insert: the row of a task that has none.
        own: names an owner.
        empty: empties the outbox of a task.
        read: its records.
        fill: puts one row into it.
        moved: one row if the task stands there, and if its outbox has as many rows of as many bytes in all; else none.
    """

    select: str
    steps: str
    claim: str
    move: str
    advance: str
    insert: str
    own: str
    empty: str
    read: str
    fill: str
    moved: str


@lru_cache(maxsize=64)
def statements_on(places: Places) -> Statements:
    """The statements on tables of these names."""
    tasks, outbox = places
    move = f"UPDATE {tasks} SET base = ?, step = ?, owner = ?, attempt = ? WHERE {_OF_TASK}"  # noqa: S608
    return Statements(
        select=f"SELECT base, step, owner, attempt, backend FROM {tasks} WHERE {_OF_TASK}",  # noqa: S608
        steps=f"SELECT part, step FROM {tasks} WHERE graph = ? AND processor = ?",  # noqa: S608
        claim=f"UPDATE {tasks} SET owner = ?, backend = ? WHERE {_OF_TASK} AND owner <= ?",  # noqa: S608
        move=move,
        advance=f"{move} AND step = ? AND owner = ?",
        insert=f"INSERT INTO {tasks} (graph, processor, part, base, step, owner, attempt, backend) "  # noqa: S608
        "VALUES (?, ?, ?, 0, 0, ?, '', '')",
        own=f"UPDATE {tasks} SET owner = ? WHERE {_OF_TASK}",  # noqa: S608
        empty=f"DELETE FROM {outbox} WHERE {_OF_TASK}",  # noqa: S608
        read=f"SELECT records FROM {outbox} WHERE {_OF_TASK} ORDER BY place",  # noqa: S608
        fill=f"INSERT INTO {outbox} (graph, processor, part, place, records) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        moved=f"SELECT 1 FROM {tasks} WHERE {_OF_TASK} AND base = ? AND step = ? AND owner = ? AND attempt = ? AND "  # noqa: S608
        f"(SELECT COUNT(*) FROM {outbox} WHERE {_OF_TASK}) = ? AND "
        f"(SELECT COALESCE(SUM(LENGTH(records)), 0) FROM {outbox} WHERE {_OF_TASK}) = ?",
    )
