"""Which inputs of alts the next batch takes, and how many messages of each: no input waits for the end of another one.

Any order is allowed (S2). Without a rule, an input that never runs dry would starve the others (I10).
"""

from __future__ import annotations

from collections.abc import Sequence


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
