"""Alts: which inputs a batch takes and how many messages of each, and recorded choices of them.

Any order is allowed (S2). `shares` takes turns, because an input that never runs dry would starve the others (I10). A
recorded choice is run-length coded: `(("a", 3), ("b", 1))` takes three messages of `a`, then one of `b`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cues_kafka.core.records import Choice


def shares(waiting: Sequence[int], limit: int, turn: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """
    Give each input that has messages an equal share of a batch.

    Args:
        waiting: by input: messages that can be taken now.
        limit: messages of the whole batch.
        turn: the input that comes first.

    Returns:
        (input, count) in the order in which they are taken; and the input that comes first in the next batch. It is the
        first that this batch had no room for.
    """
    order = (*range(turn, len(waiting)), *range(turn))
    having = [index for index in order if waiting[index]]
    share = max(1, limit // max(1, len(having)))
    taken: list[tuple[int, int]] = []
    room = limit
    for index in having:
        count = min(share, waiting[index], room)
        if count > 0:
            taken.append((index, count))
            room -= count
    return tuple(taken), having[limit] if len(having) > limit else 0


def take(choice: Choice, steps: int) -> Choice:
    """The first `steps` steps of a choice."""
    taken: list[tuple[str, int]] = []
    for binding, count in choice:
        if steps <= 0:
            break
        taken.append((binding, min(count, steps)))
        steps -= count
    return tuple(taken)


def drop(choice: Choice, steps: int) -> Choice:
    """What remains of a choice after `steps` steps."""
    rest: list[tuple[str, int]] = []
    for binding, count in choice:
        kept = max(0, count - steps)
        steps -= count - kept
        if kept:
            rest.append((binding, kept))
    return tuple(rest)


def joined(first: Choice, then: Choice) -> Choice:
    """One choice followed by another."""
    if first and then and first[-1][0] == then[0][0]:
        return (*first[:-1], (first[-1][0], first[-1][1] + then[0][1]), *then[1:])
    return first + then
