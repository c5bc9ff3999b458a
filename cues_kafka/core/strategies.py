"""What a delivery strategy changes in the machine: a table beside `machine.TRANSITIONS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """
    What holds for the tasks of one strategy.

    Attributes:
        fenced: sessions have the task's transactional id. So a record lands right behind the one before it (P6a), and
            the group's offsets are those of the newest record (R5).
        snapshots: deaths in user code are counted, so a snapshot stands before the calls that S1 and S2 name.
        ahead: the shell may call user code while the last commit is under way (P7).
    """

    fenced: bool
    snapshots: bool
    ahead: bool


STRATEGIES: dict[str, Strategy] = {"exactly-once": Strategy(fenced=True, snapshots=True, ahead=True)}
"""The strategies that the machine knows, by the name that records carry."""
