"""What `db.execute` gives: the rows of a statement, and no way to the driver's connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, Self


class Result:
    """
    The result of one statement: iterate over it, or call `fetchone`, `fetchmany` or `fetchall`.

    The driver's cursor has more: `execute`, `connection`, `executescript`. With them a function could end the
    transaction that its rows and its place in the input share, so they are not here.
    """

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    @property
    def description(self) -> Any:
        """The columns, as the DB-API has them; None: the statement gives no rows."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """How many rows the statement gave or changed; -1: the driver does not know."""
        return int(self._cursor.rowcount)

    @property
    def lastrowid(self) -> Any:
        """The number of the row that was inserted, in SQLite, MariaDB and MySQL; None elsewhere: write `RETURNING`."""
        return getattr(self._cursor, "lastrowid", None)

    def fetchone(self) -> Any:
        """The next row; None: there are no more."""
        return self._cursor.fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """The next rows, at most `size`."""
        return list(self._cursor.fetchmany(size))

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(self._cursor.fetchall())

    def close(self) -> None:
        """Forget the rows that are left."""
        self._cursor.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor.fetchone, None)

    def __next__(self) -> Any:
        row = self._cursor.fetchone()
        if row is None:
            raise StopIteration
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the result of a statement has no {name!r}: it gives rows, and not the driver's cursor or connection, "
            "which could end the transaction. Run each statement by `db.execute`",
            name=name,
            obj=self,
        )
