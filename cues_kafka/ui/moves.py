"""
Why tasks moved: what can be known of the process that had them.

A process that is stopped in order tells so on the status topic before it leaves its groups. One that is killed tells
nothing more. One that goes on, because the tasks were shared out again, tells of its other tasks. If it has none, it is
silent, too, so silence is told as silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cues_kafka.operate.look.seen import SeenTask

SILENT_S: Final = 30.0
"""Behind a move, a process that was not heard of for so long counts as silent. It tells every 5 s by default."""


@dataclass(slots=True)
class TaskMoved:
    """
    A task that has another owner now.

    Attributes:
        at_s: when it was seen.
        old, new: the owners.
        told_s: when the new one told of it, by the broker's clock.
        why: what became of the old one; empty: it is not known yet.
    """

    at_s: float
    old: str
    new: str
    told_s: float
    why: str = ""

    @property
    def text(self) -> str:
        """For a mark."""
        return f"moved to {self.new}: {self.why}" if self.why else f"moved to {self.new}"


class Moves:
    """Says what became of the processes that had tasks. Give it each look."""

    def __init__(self) -> None:
        self._open: list[TaskMoved] = []

    def begin(self, at_s: float, old: str, one: SeenTask) -> TaskMoved:
        """A task has another owner than before."""
        move = TaskMoved(at_s, old, one.owner, one.told_s)
        self._open.append(move)
        return move

    def look(self, tasks: Iterable[SeenTask], left: Collection[str], at_s: float) -> None:
        """
        Decide what can be decided now.

        Args:
            tasks: as they are seen.
            left: the processes that have told that they leave.
            at_s: when.
        """
        if not self._open:
            return
        heard: dict[str, float] = {}
        for one in tasks:
            if one.owner and one.state != "left":
                heard[one.owner] = max(heard.get(one.owner, 0.0), one.told_s)
        for move in self._open:
            move.why = _why(move, heard, left, at_s)
        self._open = [move for move in self._open if not move.why]


def _why(move: TaskMoved, heard: Mapping[str, float], left: Collection[str], at_s: float) -> str:
    if move.old in left:
        return f"{move.old} was stopped in order"
    if heard.get(move.old, 0.0) > move.told_s:
        return f"{move.old} goes on, and the tasks were shared out again"
    if at_s - move.at_s < SILENT_S:
        return ""
    return f"{move.old} is silent without a farewell: it was killed or cut off, or it has no task left"
