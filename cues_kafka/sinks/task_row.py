"""The row of one task in its database: which statements reach it, its lock, and which connection holds that (E1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.graph.targets import TaskName
from cues_kafka.observe.log import get_logger
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.own_statements import Statements, statements_on

log = get_logger("cues_kafka.sinks")


class TaskRow:
    """Asks by a connection that it is given."""

    def __init__(self, dialect: Dialect, task: TaskName) -> None:
        self._dialect, self._task = dialect, task

    def statements(self, connection: Any) -> Statements:
        """Those on our tables."""
        return statements_on(self._dialect.places(connection))

    def locked(self, connection: Any, on: Statements, owner: int | None = None) -> Sequence[Any] | None:
        """Begin a transaction, and lock and read the task's row; end a connection that holds it for too long."""
        dialect = self._dialect
        for last in (False, True):
            try:
                found: Sequence[Any] | None = dialect.begin(connection, f"{on.select}{dialect.lock}", self._task)
                return found
            except dialect.errors as error:
                dialect.rollback(connection)
                if last or not dialect.locked_out(error) or not self._end_holder(connection, on, owner):
                    raise
        return None

    def _end_holder(self, connection: Any, on: Statements, owner: int | None) -> bool:
        """
        End the connection that the row names: that of a former owner, or of a batch of this one that is void.

        Whether it has committed is seen in the row: if it has, the row is ahead, and is published. A former owner that
        wakes up does not end the connection of a later one.
        """
        row = self._dialect.execute(connection, on.select, self._task).fetchone()
        if row is None or not row[4] or (owner is not None and row[2] > owner):
            return False
        ended = self._dialect.end(connection, row[4])
        if ended:
            log.warning("ended a connection", task=str(self._task), waited_s=self._dialect.lock_s, connection=row[4])
        return ended

    def claim(self, connection: Any, on: Statements, owner: int, name: str) -> None:
        """Name the owner and its connection, in a transaction of its own, so that a successor can end it."""
        dialect = self._dialect
        dialect.brief(connection, on=True)
        self.locked(connection, on, owner)
        dialect.execute(connection, on.claim, (owner, name, *self._task, owner))
        dialect.commit(connection)
        dialect.brief(connection, on=False)
