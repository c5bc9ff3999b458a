"""A store of a task in a world: its changelog, and what a process holds of it (R4b).

The store has one entry, whose value is the list of steps that changed it, in order; a step that fails changes nothing.
So the committed value shows a change that is lost, doubled, out of order, or of a failed step.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from cues_kafka.core.records import Record

Value: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
"""The steps that changed the store, see `states.Step`."""

STORE: Final = "steps"
KEEPS: Final = frozenset("ofn")
"""How a step ends that changes the store."""


class Change(NamedTuple):
    """
    What a transaction writes into the changelog.

    Attributes:
        mark: the step number of its record.
        value: of the entry.
        committed: whether readers see it.
    """

    mark: int
    value: Value
    committed: bool = False


Changelog: TypeAlias = tuple[Change | None, ...]
"""By offset; None: a marker, or what was aborted or compacted away."""


class Held(NamedTuple):
    """
    What a process holds of the store.

    Attributes:
        offset: up to which it read the changelog.
        mark: the one there; None: there is none.
        value: of the entry.
    """

    offset: int = 0
    mark: int | None = None
    value: Value = ()


NOTHING_HELD: Final = Held()


def written(changes: Changelog, mark: int, value: Value) -> Changelog:
    """The changelog when a transaction has written there."""
    return (*changes, Change(mark, value))


def marked(changes: Changelog, *, won: bool) -> Changelog:
    """The changelog behind the marker of a transaction; the cleaner takes all but the newest change."""
    if not any(one is not None and not one.committed for one in changes):
        return changes
    ended = [one if one is None or one.committed or won else None for one in changes]
    ended = [None if one is None else one._replace(committed=True) for one in ended]
    newest = max((i for i, one in enumerate(ended) if one is not None), default=0)
    return (*(None for _ in ended[:newest]), *ended[newest:], None)


def read(changes: Changelog, held: Held, high: int) -> Held | None:
    """Bring what is held up to an end of the changelog; None: an open transaction hides something below it."""
    start = held if held.offset <= high else NOTHING_HELD
    came = [one for one in changes[start.offset : high] if one is not None]
    if not all(one.committed for one in came):
        return None
    newest = came[-1] if came else Change(-1, start.value)
    return Held(high, newest.mark if came else start.mark, newest.value)


def stale_end(changes: Changelog) -> int:
    """An end that a former leader may give; 0: it gives none."""
    return next((i for i in range(len(changes) - 1, 0, -1) if changes[i] is not None), 0)


def judged(changes: Changelog, record: Record, delivered: dict[tuple[tuple[int, int], ...], str]) -> str:
    """
    What is wrong with a store beside the newest record; empty: nothing.

    Args:
        changes: the changelog.
        record: the newest one.
        delivered: steps with outcomes, in order, and what became of them.
    """
    newest = next((one for one in reversed(changes) if one is not None and one.committed), None)
    mark, value = (None, ()) if newest is None else newest[:2]
    if dict(record.stores).get(STORE) != mark:
        return f"I2, R4b: the changelog ends with step {mark}, the record says {record.stores}"
    if len(set(value)) < len(value):
        return f"I1: a step changed the store twice: {value}"
    if [step for step in value if step in delivered] != [step for step, kind in delivered.items() if kind in KEEPS]:
        return f"I2: the store says {value}, the outcomes {tuple(delivered.items())}"
    if len(value) != record.totals.outputs + record.totals.nils:
        return f"I2: {len(value)} steps changed the store, the record counts {record.totals}"
    return ""
