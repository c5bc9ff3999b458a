"""What a delivery strategy changes in the machine: a table beside `machine.TRANSITIONS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """
    What holds for the tasks of one strategy.

    Attributes:
        fenced: sessions have the task's transactional id. So a record lands right behind the one before it (P6a), and
            the group's offsets are those of the newest record (R5). Else a record is written behind its outputs (W5).
        snapshots: deaths in user code are counted, so a snapshot stands before the calls that S1 and S2 name.
        ahead: the shell may call user code while the last commit is under way (P7).
        takes: the positions go past a batch before it is called, and the next transaction has its outcomes (W1).
    """

    fenced: bool
    snapshots: bool
    ahead: bool
    takes: bool = False


EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"

STRATEGIES: dict[str, Strategy] = {
    EXACTLY_ONCE: Strategy(fenced=True, snapshots=True, ahead=True),
    AT_LEAST_ONCE: Strategy(fenced=False, snapshots=False, ahead=True),
    AT_MOST_ONCE: Strategy(fenced=True, snapshots=False, ahead=False, takes=True),
}
"""The strategies that the machine knows, by the name that records carry."""

TOOL = Strategy(fenced=True, snapshots=False, ahead=False)
"""What holds for a tool that moves a task, whatever the task's strategy: it owns the task by the lock (X2, W7)."""
