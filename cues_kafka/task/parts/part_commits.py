"""When a target commits a part of a batch, before Kafka's transaction of all of it (E1).

A transaction of Kafka takes milliseconds of waiting, whatever it covers. A target has the whole attempt in its row, so
one transaction of Kafka may come behind several of the target: a recovery that finds the row ahead publishes all of
them.
"""

from __future__ import annotations

from cues_kafka.core.task import Task
from cues_kafka.task.calling.batch import Batch

MOST = 8
"""Transactions of a target before one of Kafka. Of 1,000 rows by COPY, one took 7 ms with a transaction of Kafka behind
each, and 4 ms with one behind eight."""

WITHIN_S = 0.2
"""The last part of a batch begins within this time, for the group's offsets and `verify` lag behind the target."""


def is_part(task: Task, batch: Batch, *, limit: int, now_s: float) -> bool:
    """
    Whether a target commits now what was called, and more is called before Kafka's transaction.

    Records stand in the outbox of the whole attempt, so each later part would write those of the parts before again.

    Args:
        task: the task, which waits for messages.
        batch: what was called.
        limit: steps in one transaction of the target.
        now_s: monotonic time.
    """
    if not task.pipelined or batch.halt or batch.closed or len(batch.records) or batch.more:
        return False
    full = batch.deliveries - batch.kept >= limit
    return full and batch.parts + 1 < MOST and now_s - batch.began_s < WITHIN_S
