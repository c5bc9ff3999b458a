"""A part of a batch of Spark in a database: its rows, what was refused, and its number, in one transaction (E7).

The row of the part in `cues_task` has the publication number plus one as its step (E1): numbers begin at 0, and a row
without a commit has step 0. The rows of an announced batch never change, so every process that commits a number commits
the same rows. What the database refuses becomes records of the outbox: a process that finds the number there publishes
exactly these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from cues_kafka.errors import OutputError, RecoveryError
from cues_kafka.graph.effects import SqlTable, Upsert
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.log import Coordinates
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.rows import RowsTable, TablesTarget, UpsertTable
from cues_kafka.sinks.sql import SqlTarget

INTO = "into"

RESET = "reset"
"""Stands in the place of an attempt where an operator has reset the processor."""

AT_ONCE = 2000
"""Rows that are written behind one savepoint. Of rows of which the database refuses one, each half is written again."""

Numbered: TypeAlias = tuple[int, Mapping[str, Any]]
"""A row, and its number in the batch."""


class RefusedRow(NamedTuple):
    """A row that the database does not take, and why."""

    number: int
    row: Mapping[str, Any]
    why: str


class DueRows(NamedTuple):
    """
    What is to be committed.

    Attributes:
        number: publication number of the batch.
        attempt: the announced attempt at it.
        above: the database had this number when the batch was prepared; -1: it had none, or that is not known.
    """

    number: int
    attempt: str
    above: int


class BatchPart:
    """One part of the batches of a processor. It connects for each commit, and holds nothing in between."""

    def __init__(self, declared: SqlTable | Upsert, part: TaskName) -> None:
        self._declared, self._part = declared, part
        self._talk = dialect(declared.sql)

    def commit(
        self,
        due: DueRows,
        rows: Iterable[Sequence[Numbered]],
        errors_of: Callable[[Sequence[RefusedRow]], Iterable[tuple[Any, ...]]],
    ) -> list[tuple[Any, ...]]:
        """
        Commit the rows of a part, unless they are committed.

        Args:
            due: which batch.
            rows: of the part, some at a time.
            errors_of: makes the records of rows that the database refuses; it raises where there is no errors topic.

        Returns:
            The records of refused rows, as they are committed.

        Raises:
            RecoveryError: the database has a later number, or has lost one.
            RetriableError: it does not answer.
        """
        with closing(TablesTarget(self._talk, self._part, {INTO: self._declared})) as target:
            held, step = target.newest(), due.number + 1
            self._check(due, held)
            if held is not None and held.step == step:
                return list(target.outbox())
            if held is None:
                target.ask(step, 0)  # it makes the row
            base = held.step if held else 0
            target.begin_batch(step, base)
            table = target.values[INTO]
            if isinstance(table, UpsertTable):
                table.places = [_place(self._part, due.number)]
            try:
                refused = [one for some in rows for one in _written(target, table, some)]
                records = list(errors_of(refused)) if refused else []
            finally:
                target.rest()
            target.commit(HeldAttempt(base, step, step, due.attempt), records)
            return records

    def _check(self, due: DueRows, held: HeldAttempt | None) -> None:
        stands = held.step - 1 if held else -1
        where = f"the database has part {self._part.partition} of {self._part.processor!r}"
        if held is not None and stands == due.number and held.attempt != due.attempt:
            raise RecoveryError(
                f"{where} at publication {stands} of another attempt: another cluster writes to this database, or the "
                "backing topic was restored. Give the processor another name, or another database"
            )
        if stands > due.number:
            raise RecoveryError(
                f"{where} at publication {stands}, and {due.number} was to be committed: stop the older driver of the "
                "two"
            )
        if stands < due.above:
            raise lost(self._part.processor, f"had publication {due.above} when the batch was prepared")


def lost(processor: str, had: str) -> RecoveryError:
    """The error for a database that lacks what it had."""
    return RecoveryError(
        f"the database has lost rows of {processor!r}: it {had}, and does not have it now. Restore a newer backup; or "
        f"`cues-kafka reset MODULE:GRAPH {processor}` begins again, after which rows repeat"
    )


class PartNumbers(SqlTarget):
    """Which publication each part of a processor has in a database."""

    def by_part(self) -> dict[int, int]:
        """
        The publication numbers of the parts that have a row; -1: the part has committed nothing.

        Raises:
            RetriableError: the database does not answer.
        """
        with self._connected() as connection:
            statement = self._row.statements(connection).steps
            rows = self._dialect.execute(connection, statement, self._task[:2]).fetchall()
        return {part: step - 1 for part, step in rows}


def reset_to(talk: Dialect, part: TaskName, number: int) -> bool:
    """
    Have a part count no batch that was announced before a reset; False: another process changed its row meanwhile.

    Raises:
        RetriableError: the database does not answer.
    """
    with closing(SqlTarget(talk, part)) as target:
        held = target.newest()
        step = number + 1
        return held is None or held.step >= step or target.settle(HeldAttempt(step, step, step, RESET), held)


def _written(target: TablesTarget, table: RowsTable | UpsertTable, rows: Sequence[Numbered]) -> list[RefusedRow]:
    """Write rows; of those that the database refuses as a whole, each half by itself."""
    refused: list[RefusedRow] = []
    waiting = [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)][::-1]
    while waiting:
        some = waiting.pop()
        why = _refused(target, table, some)
        if why and len(some) == 1:
            refused.append(RefusedRow(*some[0], why))
        elif why:
            half = len(some) // 2
            waiting += [some[half:], some[:half]]
    return refused


def _refused(target: TablesTarget, table: RowsTable | UpsertTable, rows: Sequence[Numbered]) -> str:
    """Why the database does not take these rows together; then none of them is written. Empty: it takes them."""
    put = table.put if isinstance(table, UpsertTable) else table.insert
    target.mark()
    try:
        for _, row in rows:
            put(row)
        why = target.check()
    except OutputError as error:
        why = str(error)
    if why:
        target.back()
    return why


def _place(part: TaskName, number: int) -> Coordinates:
    """The place of rows that come of no single message: processor and publication number."""
    name = blake2b(f"{part.graph}.{part.processor}".encode(), digest_size=16).digest()
    return Coordinates(INTO, name, 0, number)
