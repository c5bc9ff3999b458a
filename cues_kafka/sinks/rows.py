"""Tables of a database as what a function acts on: rows for values, and the newest row of each key.

A function hands over values. Their rows are collected during the call and written when the call has ended, many at
once, in the transaction of E1. So a row and the outcome of its message are committed together, once. That alone keeps a
restart from writing an older row over a newer one.

After `reset` messages are delivered again on purpose, and then only the guard of `Upsert` helps (E2): each row says
which message it is from. It gives way to messages of its partition that do not lie before that one, and to all of
another partition or topic.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from cues_kafka.errors import OutputError, RetriableError
from cues_kafka.graph.effects import DELETED, OFFSET, SOURCE, Effect, SqlTable, Upsert
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.log import Coordinates
from cues_kafka.sinks.column_fit import Fitting
from cues_kafka.sinks.column_kinds import kinds
from cues_kafka.sinks.connection import InTransaction
from cues_kafka.sinks.dialect import Dialect, named
from cues_kafka.sinks.exact_keys import is_exactly, put_or_fail, refusal
from cues_kafka.sinks.sql import SqlTarget


class _Columns:
    """Fits rows to the columns of a table, which each connection asks for once."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._table, self._columns = table, columns
        self._known: tuple[Any, Fitting] | None = None

    def of(self, target: InTransaction) -> Fitting:
        """The fitting for the table as this connection finds it."""
        dialect, connection = target.dialect, target.in_use
        if self._known is None or self._known[0] is not connection:
            found = kinds(dialect, connection, self._table)
            self._known = connection, Fitting(self._table, dialect.name, found, self._columns)
        return self._known[1]


class RowsTable:
    """The parameter of a function for `Sql(...).table(...)`: it inserts rows. Valid only during the call."""

    def __init__(self, target: InTransaction, declared: SqlTable) -> None:
        self._target = target
        self.table = declared.table
        self._columns = tuple(column for column, _ in declared.columns)
        self._row_of = _row_of(declared.table, declared.columns)
        self._fitting = _Columns(declared.table, self._columns)
        self._rows: list[tuple[Any, ...]] = []

    def insert(self, value: Any) -> None:
        """
        Insert the fields of a value as a row.

        Args:
            value: a mapping, or an object with attributes.

        Raises:
            OutputError: it lacks a field, or is None.
            RuntimeError: the call is over.
        """
        self._target.in_use  # noqa: B018  it raises when the call is over
        self._insert(value)

    def _insert(self, value: Any) -> None:
        if value is None:
            raise OutputError(
                f"a message without a value (a tombstone) has no fields for table {self.table!r}. Leave tombstones "
                "out, with filter=, or keep the newest row of each key with Sql(...).upsert(...)"
            )
        self._rows.append(self._row_of(value))

    def write(self, values: Sequence[Any]) -> None:
        """Insert a row for each of these values."""
        for value in values:
            self._insert(value)

    def flush(self) -> None:
        """Write the rows that were collected."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        dialect, connection = self._target.dialect, self._target.in_use
        rows = [*map(self._fitting.of(self._target).row, rows)]
        if dialect.name != "sqlite":
            dialect.insert(connection, self.table, self._columns, rows)
            return
        names, marks = ", ".join(named(dialect, one) for one in self._columns), ", ".join("?" * len(self._columns))
        statement = f"INSERT INTO {named(dialect, self.table)} ({names}) VALUES ({marks})"  # noqa: S608
        dialect.executemany(connection, statement, rows)

    def drop(self) -> None:
        """Forget the rows that were collected."""
        self._rows = []


class _Change(NamedTuple):
    """A row to put, or the key of one to delete, behind the guard."""

    deletes: bool
    row: tuple[Any, ...]


class UpsertTable:
    """The parameter of a function for `Upsert`: it puts and deletes the rows of keys. Valid only during the call."""

    def __init__(self, target: InTransaction, declared: Upsert) -> None:
        self._target = target
        self._declared = declared
        self.table = declared.table
        self._row_of = _row_of(declared.table, declared.columns)
        self._key_of = _row_of(declared.table, declared.columns[: len(declared.key)])
        self._put, self._delete = statements(target.dialect, declared)
        self._fitting = _Columns(declared.table, [column for column, _ in declared.columns])
        self._twice = 2 if target.dialect.name == "mysql" else 1  # is a key among the parameters of `_delete`
        in_delete = [one for one in declared.key for _ in range(self._twice)]
        self._fitting_keys = _Columns(declared.table, ["", "", *in_delete])
        self._changes: list[_Change] = []
        self.places: Sequence[Coordinates] = ()

    def put(self, value: Any, *, index: int | None = None) -> None:
        """
        Make the fields of a value the row of its key, unless the row is from a later message.

        Args:
            value: a mapping, or an object with attributes.
            index: with `batch=True`, which message of the list it is from.

        Raises:
            OutputError: the value lacks a field or is None, a part of its key is None, or `index` is missing.
            RuntimeError: the call is over.
        """
        if value is None:
            raise OutputError(f"None is not a row of table {self.table!r}. To delete one, call delete(key)")
        row = self._row_of(value)
        self._check_key(row[: len(self._declared.key)])
        self._changes.append(_Change(False, (*row, *self._guard(index), False)))

    def delete(self, key: Any, *, index: int | None = None) -> None:
        """
        Mark the row of a key as deleted, unless it is from a later message. The row stays: it is its own guard.

        A key without a row stays without one.

        Args:
            key: the value of the key's column. Of several columns: their values in order, or by name.
            index: see `put`.

        Raises:
            OutputError: it is no such key, or `index` is missing.
            RuntimeError: the call is over.
        """
        source, offset = self._guard(index)
        found = [one for one in self._key(key) for _ in range(self._twice)]
        self._changes.append(_Change(True, (source, offset, *found, source, offset)))

    def write(self, values: Sequence[Any], messages: Sequence[Any]) -> None:
        """Put each of the values of these messages; one that is None deletes the row of its message's key."""
        for index, (value, message) in enumerate(zip(values, messages, strict=True)):
            if value is not None:
                self.put(value, index=index)
            elif message.key is None:
                raise OutputError(
                    "the message has neither a value nor a key, so it does not say what to delete in table "
                    f"{self.table!r}"
                )
            else:
                self.delete(message.key, index=index)

    def flush(self) -> None:
        """Write the changes that were collected, in their order."""
        changes, self._changes = self._changes, []
        if not changes:  # what a step that failed has left is taken back, and its call is over
            return
        dialect, connection = self._target.dialect, self._target.in_use
        for deletes, group in groupby(changes, itemgetter(0)):
            fit = (self._fitting_keys if deletes else self._fitting).of(self._target).row
            rows = [fit(one.row) for one in group]
            try:
                dialect.executemany(connection, self._delete if deletes else self._put, rows)
            except dialect.errors as error:
                if dialect.name == "mysql" and (why := refusal(error, self._declared.key)):
                    raise OutputError(why) from error
                raise

    def drop(self) -> None:
        """Forget the changes that were collected."""
        self._changes = []

    def _key(self, given: Any) -> tuple[Any, ...]:
        names = self._declared.key
        if isinstance(given, tuple | list):
            found = tuple(given)
        elif len(names) > 1 or isinstance(given, Mapping):
            if isinstance(given, str | bytes | int):
                raise OutputError(
                    f"{given!r:.60} lacks columns of the key of table {self.table!r}: "
                    f"{', '.join(names)}. Give them in this order, or by name; the key of a message has them if its "
                    "topic has a key_codec="
                )
            found = self._key_of(given)
        else:
            found = (given,)
        if len(found) != len(names):
            raise OutputError(
                f"{given!r:.60} has {len(found)} parts, the key of table {self.table!r} {len(names)}: "
                f"{', '.join(names)}"
            )
        self._check_key(found)
        return found

    def _check_key(self, key: tuple[Any, ...]) -> None:
        if None in key:
            raise OutputError(
                f"{self._declared.key[key.index(None)]!r}, a part of the key of table {self.table!r}, is None"
            )

    def _guard(self, index: int | None) -> tuple[str, int]:
        self._target.in_use  # noqa: B018  it raises when the call is over
        if index is None:
            if len(self.places) != 1:
                raise OutputError(
                    f"table {self.table!r}: the function was called with {len(self.places)} messages "
                    "(batch=True), so say which one the row is from: put(value, index=0) for the first"
                )
            index = 0
        place = self.places[index]
        return _source(place.topic_id, place.partition), place.offset


@lru_cache(maxsize=1024)
def _source(topic_id: bytes, partition: int) -> str:
    """The text of `cues_source`: the topic's id as Kafka's tools print it, and the partition."""
    return f"{urlsafe_b64encode(topic_id)[:22].decode()}/{partition}"


class TablesTarget(SqlTarget):
    """
    The database of one task, with the tables that its function hands rows to.

    Attributes:
        values: what the function is given, by name.
    """

    def __init__(self, dialect: Dialect, task: TaskName, declared: Mapping[str, Effect]) -> None:
        super().__init__(dialect, task)
        self._tables: list[RowsTable | UpsertTable] = []
        self.values: dict[str, Any] = {name: self._made(one) for name, one in declared.items()}

    def _made(self, declared: Effect) -> Any:
        match declared:
            case SqlTable():
                self._tables.append(RowsTable(self, declared))
            case Upsert():
                self._tables.append(UpsertTable(self, declared))
            case _:
                return self.value
        return self._tables[-1]

    def placed(self, places: Sequence[Coordinates]) -> None:
        """The function is called next with the messages that stand here."""
        for table in self._tables:
            if isinstance(table, UpsertTable):
                table.places = places

    def keys_from(self, declared: Upsert, message: Coordinates) -> list[str]:
        """
        The keys of the rows of a table that are from this message.

        Raises:
            RetriableError: the database does not answer.
        """
        dialect = self._dialect
        columns = ", ".join(named(dialect, one) for one in (*declared.key, DELETED))
        statement = (
            f"SELECT {columns} FROM {named(dialect, declared.table)} "  # noqa: S608
            f"WHERE {SOURCE} = ? AND {OFFSET} = ?"
        )
        source = _source(message.topic_id, message.partition)
        with self._connected() as connection:
            rows = dialect.execute(connection, statement, (source, message.offset)).fetchall()
        return [_shown_key(declared.key, row) for row in rows]

    def mark(self) -> None:
        self._drop_rows()
        super().mark()

    def back(self) -> None:
        self._drop_rows()
        super().back()

    def check(self) -> str:
        """See `ports.target.TransactionalSink`. What the function handed over is written now that it has ended."""
        for table in self._tables:
            try:
                table.flush()
            except Exception as error:  # drivers raise TypeError and their like for a value, too
                if isinstance(error, RetriableError):
                    raise
                if why := self.outage(error):
                    raise RetriableError(why, code="TARGET") from error
                self._drop_rows()
                return f"table {table.table!r} refuses a row: {type(error).__name__}: {' '.join(str(error).split())}"
        return super().check()

    def _drop_rows(self) -> None:
        for table in self._tables:
            table.drop()


def _shown_key(key: Sequence[str], row: Sequence[Any]) -> str:
    """The key of a row, and whether it is marked as deleted."""
    names = ", ".join(f"{name}={value!r}" for name, value in zip(key, row, strict=False))
    return f"{names} (deleted)" if row[-1] else names


def statements(dialect: Dialect, declared: Upsert) -> tuple[str, str]:
    """
    The statements of an upsert.

    Returns:
        The one that puts a row: its parameters are the columns, source, offset and False. And the one that deletes:
        source, offset, the key, source and offset. In MySQL each part of the key is there twice.
    """
    table, columns = named(dialect, declared.table), [column for column, _ in declared.columns]
    names = [named(dialect, one) for one in (*columns, SOURCE, OFFSET, DELETED)]
    # PyMySQL makes one statement of many rows where all values are parameters.
    insert = f"({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    rest = [named(dialect, one) for one in columns if one not in declared.key]
    put = (_on_duplicate if dialect.name == "mysql" else _on_conflict)(dialect, declared, table, insert, rest)
    is_key = is_exactly if dialect.name == "mysql" else _is
    keys = " AND ".join(is_key(named(dialect, one)) for one in declared.key)
    delete = (
        f"UPDATE {table} SET {DELETED} = TRUE, {SOURCE} = ?, {OFFSET} = ? WHERE {keys} AND "  # noqa: S608
        f"({SOURCE} IS NULL OR {SOURCE} <> ? OR {OFFSET} <= ?)"
    )
    return put, delete


def _is(column: str) -> str:
    return f"{column} = ?"


def _on_conflict(dialect: Dialect, declared: Upsert, table: str, insert: str, rest: Sequence[str]) -> str:
    """PostgreSQL and SQLite."""
    changed = ", ".join(f"{one} = excluded.{one}" for one in (*rest, SOURCE, OFFSET, DELETED))
    keys = ", ".join(named(dialect, one) for one in declared.key)
    return (
        f"INSERT INTO {table} AS held {insert} ON CONFLICT ({keys}) DO UPDATE SET {changed} WHERE "
        f"held.{SOURCE} IS NULL OR held.{SOURCE} <> excluded.{SOURCE} OR held.{OFFSET} <= excluded.{OFFSET}"
    )


def _on_duplicate(dialect: Dialect, declared: Upsert, table: str, insert: str, rest: Sequence[str]) -> str:
    """
    MySQL and MariaDB, which assign one column after the other: what comes later sees what came before.

    So the guard comes last. Its offset goes before its source: where the new row wins, it still wins with the new
    offset; where it does not, nothing has changed.
    """
    wins = f"({SOURCE} IS NULL OR {SOURCE} <> VALUES({SOURCE}) OR {OFFSET} <= VALUES({OFFSET}))"
    put = {one: f"IF({wins}, VALUES({one}), {one})" for one in (*rest, DELETED, OFFSET, SOURCE)}
    put[DELETED] = put_or_fail([named(dialect, one) for one in declared.key], put[DELETED])
    changed = ", ".join(f"{one} = {value}" for one, value in put.items())
    return f"INSERT INTO {table} {insert} ON DUPLICATE KEY UPDATE {changed}"


def _row_of(table: str, columns: Sequence[tuple[str, str]]) -> Callable[[Any], tuple[Any, ...]]:
    """Gives a function that takes the fields of a value, in the order of columns."""
    fields = [field for _, field in columns]
    several = len(fields) > 1
    items, attributes = itemgetter(*fields), attrgetter(*fields)

    def row(value: Any) -> tuple[Any, ...]:
        mapping = isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101  the first is four times as fast
        try:
            found = items(value) if mapping else attributes(value)
        except (KeyError, AttributeError):
            lacking = [
                f"{field!r} for column {column!r}"
                for column, field in columns
                if not (field in value if mapping else hasattr(value, field))
            ]
            if not lacking:
                raise
            raise OutputError(f"the value lacks fields of table {table!r}: {', '.join(lacking)}") from None
        return found if several else (found,)

    return row
