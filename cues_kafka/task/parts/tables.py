"""The tables that a task looks things up in: read to their end before its first call, and followed from there."""

from __future__ import annotations

from collections.abc import Callable

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.awaited import Awaited
from cues_kafka.ports.log import Positions
from cues_kafka.sinks.calls import Surroundings
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.following import Tables
from cues_kafka.task.parts.participant import Participant


class Following(Participant):
    """Has the tables of a processor follow their topics for one task."""

    def __init__(self, tables: Tables, spec: Spec) -> None:
        self._tables, self._spec = tables, spec

    @property
    def tables(self) -> Tables:
        """Those of the processor, which its tasks in this process share."""
        return self._tables

    def connect(self, around: Surroundings) -> None:
        self._around = around

    def restore(self, record: Record | None, positions: Positions) -> None:
        """Read the tables up to their ends of now."""
        spec, around = self._spec, self._around
        self._tables.bring_up(
            *(spec.partition, around.broker, around.clock),
            group=spec.group,
            task=spec.name,
            given_up=around.given_up,
        )

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """Take what has come."""
        self._tables.refresh(self._spec.partition)

    def close(self, *, orderly: bool = True) -> None:
        """Other tasks of the process share them; a process that is killed leaves none."""
        if orderly:
            self._tables.leave(self._spec.partition)


class Awaiting(Participant):
    """Has each chunk of calls wait for what they may not begin without."""

    def __init__(self, awaited: Awaited) -> None:
        self._awaited = awaited

    @property
    def missed(self) -> int:
        """How often it was not there in time."""
        return self._awaited.missed

    def before_chunk(self, batch: Batch, task: Task, given_up: Callable[[], bool]) -> None:
        """Wait; the messages of the chunk are fetched by now."""
        self._awaited.wait(given_up)
