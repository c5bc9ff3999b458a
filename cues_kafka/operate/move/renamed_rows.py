"""The row of a renamed task in its database: the new name begins where the old one stands (X5, E1)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from cues_kafka.core.records import Record, TargetRow
from cues_kafka.core.recover import Refuse
from cues_kafka.core.spec import Spec
from cues_kafka.core.target import compare
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.move.settle import stands_at
from cues_kafka.ports.target import HeldAttempt, TransactionalSink
from cues_kafka.records.held import row_of
from cues_kafka.sinks.lookup import open_target
from cues_kafka.words import count


class RenamedRows:
    """The rows of a processor under two names, in the database that it acts on."""

    def __init__(self, declared: Processor, graph: str, old: str, new: str) -> None:
        self._declared, self._graph, self._old, self._new = declared, graph, old, new
        self._seen: dict[int, HeldAttempt | None] = {}  # rows under the new name

    def leaving(self, partition: int) -> TransactionalSink:
        """The target of a task under its old name."""
        return open_target(self._declared.targets, self._graph, self._old, partition)

    def _arriving(self, partition: int) -> TransactionalSink:
        return open_target(self._declared.targets, self._graph, self._new, partition)

    def refuse_unlike(self, spec: Spec, record: Record) -> None:
        """
        Refuse a task whose database does not stand where its newest record does.

        Raises:
            RecoveryError: the database is ahead, or does not fit.
        """
        with closing(self.leaving(spec.partition)) as target:
            held = target.newest()
        match compare(spec, record, None if held is None else row_of(held)):
            case Refuse(halt):
                raise RecoveryError(f"{halt.text}. While the processor has its old name: {halt.remedy}")
            case TargetRow() as row:
                ahead = count(row.step - record.step, "step")
                raise RecoveryError(
                    f"{spec.name}: its database is {ahead} ahead of its newest record. Start the processor as "
                    f"{self._old!r}, which completes them; shut it down gracefully, and run the command again."
                )

    def owner(self, partition: int) -> int:
        """
        The greatest owner that the database knows of a task, under either name; -1: none.

        `settle` replaces only the row that was seen here, so ask before you read that the task has yet to arrive.
        """
        with closing(self.leaving(partition)) as target:
            left = target.newest()
        with closing(self._arriving(partition)) as target:
            self._seen[partition] = target.newest()
        return max(-1 if held is None else held.owner for held in (left, self._seen[partition]))

    def settle(self, partition: int, last: Record, owner: int) -> None:
        """
        Have the new name stand in the database where the old one does. It has no record yet, so no worker runs it.

        Another run may have brought the task there while this one was held up, and a worker may have moved the row on
        since: it is replaced only if it is the one that `owner` saw.

        Args:
            partition: of the task.
            last: its last record under the old name.
            owner: see `owner`.

        Raises:
            RecoveryError: another tool has changed the row at the same time.
        """
        wanted = stands_at(replace(last, sequence=max(owner, 0)))
        with closing(self._arriving(partition)) as target:
            was = self._seen[partition]
            if was != wanted and not target.settle(wanted, was):
                raise RecoveryError(f"{self._new}/{partition}: its target has changed since. Run the command again")
