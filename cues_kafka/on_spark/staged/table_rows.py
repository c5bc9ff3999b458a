"""A table of a database as a `FrameTarget` (E7): each part writes its rows in one transaction with its number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from cues_kafka.core.records import Staged
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.effects import SqlTable, Upsert
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.targets import TaskName
from cues_kafka.on_spark.columns import META
from cues_kafka.on_spark.letter_case import refuse_ambiguous
from cues_kafka.on_spark.staged.chunks import MESSAGES, Packing, first_row, rows_of, sliced, this_task
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.on_spark.staged.target import DuePart, FrameCommits, PartTarget, refuse_files
from cues_kafka.on_spark.staged.topics import ERRORS
from cues_kafka.sinks.batch_part import BatchPart, DueRows, Numbered, PartNumbers, RefusedRow, lost, reset_to
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.standing import StandsAt, compared


def sql_target(frame: Any, table: SqlTable | Upsert, label: str, processor: str) -> tuple[Any, TableInto]:
    """Make the target of a table; see `Maker`."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType  # noqa: PLC0415 - planned without Spark

    names = [name for name in frame.columns if name != META]
    fields = tuple(dict.fromkeys(field for _, field in table.columns))
    if missing := [name for name in fields if name not in names]:
        raise ConfigError(
            f"{label}: the DataFrame has no column {quoted(missing)}, which columns= of table {table.table!r} "
            f"names{hint(missing[0], names)}. Columns: {quoted(names)}"
        )
    if twice := sorted({name for name in fields if names.count(name) > 1}):
        raise ConfigError(f"{label}: the columns {quoted(twice)} are there twice. Give each column a name of its own")
    refuse_ambiguous(frame, label)
    rows = frame.select(*[f"`{name.replace('`', '``')}`" for name in fields])
    if nested := [
        one.name for one in rows.schema if isinstance(one.dataType, ArrayType | MapType | StructType | VariantType)
    ]:
        raise ConfigError(
            f"{label}: the columns {quoted(nested)} have parts, and a column of table {table.table!r} has one value. "
            f"Write them as text, withColumn({nested[0]!r}, to_json({nested[0]!r})), or take their parts"
        )
    graph, _, name = processor.partition(".")
    return rows, TableInto(table, graph, name)


@dataclass(frozen=True)
class TableInto(PartTarget):
    """
    The table that the rows of a processor go to.

    Attributes:
        table: as it is declared.
        graph, processor: their names.
    """

    small: ClassVar[bool] = False

    table: SqlTable | Upsert
    graph: str
    processor: str

    def packing(self, parts: int, refusing: Refusing, mine: Staged) -> Packing:
        del refusing, mine  # only the database knows which rows it takes
        return PackRows(parts)

    def open(self) -> FrameCommits:
        return TableCommits(self)

    def commit_part(self, due: DuePart, rows: Iterable[tuple[int, pa.Table]]) -> Sequence[pa.Table]:
        """See `PartTarget`. Rows that the database refuses are error messages in its outbox."""
        batch, errors = due.batch, due.refusing.target.errors

        def errors_of(refused: Sequence[RefusedRow]) -> Iterator[tuple[Any, ...]]:
            given = [(one.number, json.dumps(one.row, default=str).encode(), one.why) for one in refused]
            made = due.refusing.messages(given, self.table.table, "OutputError")
            assert errors
            for row in made.to_pylist():
                yield errors.topic, None, row["key"], row["value"], None, row["timestamp"]

        part = BatchPart(self.table, TaskName(self.graph, self.processor, batch.part))
        records = part.commit(DueRows(batch.number, batch.attempt, due.above), self._numbered(rows), errors_of)
        return [_messages(records)] if records else []

    def _numbered(self, rows: Iterable[tuple[int, pa.Table]]) -> Iterator[list[Numbered]]:
        """
        The rows of each chunk with their numbers.

        Raises:
            RecoveryError: the batch was announced with other columns.
        """
        for first, table in rows:
            if missing := [field for _, field in self.table.columns if field not in table.column_names]:
                raise RecoveryError(
                    f"the batch was announced with the columns {quoted(table.column_names)}, and table "
                    f"{self.table.table!r} needs {quoted(missing)}. Declare into= as it was until then"
                )
            yield [(first + at, row) for at, row in enumerate(table.to_pylist())]


class TableCommits(FrameCommits):
    """The driver's side: it compares the numbers of all parts, and commits nothing itself."""

    def __init__(self, into: TableInto) -> None:
        self._into = into
        self._talk = dialect(into.table.sql)
        self._top = -1

    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        numbers: dict[int, int] = {}

        def look(kafka: StandsAt | None) -> RecoveryError | None:
            nonlocal numbers
            numbers = PartNumbers(self._talk, self._part(0)).by_part()
            return self._refusal(numbers, kafka)

        kafka, why = compared(asked, asked(), look)
        if why is not None:
            raise why
        if kafka is not None and kafka.reset:
            self._reset(numbers, kafka.number)
        else:
            self._top = min(numbers.values(), default=-1)

    def _refusal(self, numbers: Mapping[int, int], kafka: StandsAt | None) -> RecoveryError | None:
        name, newest = self._into.processor, max(numbers.values(), default=-1)
        number = kafka.number if kafka else -1
        if newest > number:
            return RecoveryError(
                f"the database has publication {newest} of {name!r}, and its newest record in Kafka is at {number}: "
                "the backing topic was restored or recreated, or another cluster writes to this database. Restore the "
                "topic; or give the processor another name, or the table another database"
            )
        if kafka and kafka.published and not kafka.reset and numbers.get(0, -1) < number:
            if 0 not in numbers:
                return RecoveryError(
                    f"the database has no rows of {name!r} in cues_task, and publication {number} is in Kafka: the "
                    "database was restored or emptied, or the processor wrote elsewhere before. Restore the database; "
                    f"or `cues-kafka reset MODULE:GRAPH {name}` begins again, after which rows repeat"
                )
            return lost(name, f"had publication {number}, which is in Kafka")
        return None

    def _reset(self, numbers: Mapping[int, int], number: int) -> None:
        for part in numbers:
            if not reset_to(self._talk, self._part(part), number):
                raise RetriableError(
                    f"another process writes part {part} of {self._into.processor!r} to the database; does another "
                    "driver run?",
                    code="TARGET",
                )

    def _part(self, number: int) -> TaskName:
        return TaskName(self._into.graph, self._into.processor, number)

    @property
    def top(self) -> int:
        return self._top

    def prepared(self, mine: Staged, manifest: Manifest) -> None: ...

    def commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        """Look whether the batch was announced for this table; its parts commit it, and the next batch comes behind."""
        del staged_here
        refuse_files(announced, manifest)
        self._top = announced.number

    def clean(self) -> None: ...

    def drop(self, mine: Staged) -> None: ...


@dataclass(frozen=True)
class PackRows(Packing):
    """Packs rows with the columns of the DataFrame."""

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        row = first_row(task)
        for batch in batches:
            for piece in sliced(batch):
                yield rows_of(task % self.parts, row, piece)
                row += len(piece)


def _messages(records: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Error messages of the outbox, with the columns `MESSAGES`."""
    count = len(records)
    columns = {
        "output": pa.repeat(pa.scalar(ERRORS, pa.int32()), count),
        "key": pa.array([one[2] for one in records], pa.binary()),
        "value": pa.array([one[3] for one in records], pa.binary()),
        "headers": pa.nulls(count, pa.binary()),
        "timestamp": pa.array([one[5] for one in records], pa.int64()),
        "error": pa.repeat(pa.scalar(value=True), count),
    }
    return pa.Table.from_pydict({name: columns[name] for name in MESSAGES})
