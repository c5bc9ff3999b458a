"""Outputs of a function with columns that belong to all messages of a call, such as a sum, and to no single one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.core.task import Task
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.outputs import Payload
from cues_kafka.task.parts.participant import Participant


class Undivided(Participant):
    """
    Keeps them until the batch is sealed: their provenance says how many the attempt has in all (O8).

    Those of a call belong to its place in the batch: where its steps are taken back, they are forgotten.
    """

    def __init__(self) -> None:
        self._made: list[tuple[int, Payload]] = []  # with the number of steps that had ended behind their call

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """What was called before, and is not committed, is void."""
        self._made, batch.more = [], True

    def add(self, payloads: Sequence[Payload], batch: Batch, steps: int) -> None:
        """
        A call has ended with these.

        Args:
            payloads: they fit their topics.
            batch: all steps of the call are in it.
            steps: how many these are.
        """
        before = batch.deliveries - steps
        self._made = [one for one in self._made if one[0] <= before]
        self._made += [(batch.deliveries, payload) for payload in payloads]

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """Add them with the batch, before a target commits it."""
        caller.adding.add_drained([payload for ended, payload in self._made if ended <= batch.deliveries], batch)
