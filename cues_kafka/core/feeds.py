"""The place of a feed: what comes from a source that is no topic, and goes into one (G1, G2).

A feed's task reads no topic, so no offset says how far it came. Its records carry the *place*, a text that the source
gives and understands. The task is a partition of its own backing topic: the group assigns it by that topic, and its
offsets say where the log of its records ends. So each of its transactions sends an offset, which the coordinator checks
against the generation (P5), and lag tools show no lag.
"""

from __future__ import annotations

from cues_kafka.core.task import Task
from cues_kafka.ports.log import Position, Positions

BINDING = "feed"
"""The binding of a feed's only input, its own backing topic."""

RECORD_AND_MARKER = 2
"""Offsets that a transaction takes in a feed's backing partition (P6a)."""


def own_end(task: Task) -> Positions:
    """Where the log of a feed's records ends behind the transaction that comes next (G2)."""
    facts = dict(task.inputs)[BINDING]
    return (Position(BINDING, task.spec.backing, facts.topic_id, task.expected + RECORD_AND_MARKER),)
