"""Values in tables of a real PostgreSQL and a real MariaDB: as they went in, or refused where they would be changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from cues_kafka import Graph, Json, Message, Sink, Source, Sql, Topic
from cues_kafka.errors import OutputError
from cues_kafka.ports.log import Coordinates
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.rows import RowsTable, UpsertTable
from cues_kafka.sinks.table_checks import GUARD
from cues_kafka.testing.tester import Tester

MOMENT = datetime(2026, 11, 25, 12, tzinfo=timezone(timedelta(hours=2)))
LOCAL = datetime(2026, 11, 25, 10, tzinfo=UTC).replace(tzinfo=None)
FINE = LOCAL.replace(microsecond=123_400)

KEPT: dict[str, tuple[tuple[str, Any, Any], ...]] = {
    "postgresql": (
        ("numeric(6,2)", Decimal("1.50"), Decimal("1.50")),
        ("numeric(6,2)", 0.1, Decimal("0.10")),
        ("numeric", 0.30000000000000004, Decimal("0.30000000000000004")),
        ("integer", 5.0, 5),
        ("double precision", Decimal("0.1"), 0.1),
        ("timestamp", MOMENT, LOCAL),
        ("timestamp", "2026-11-25T12:00:00+02:00", LOCAL),
        ("timestamp(4)", FINE, FINE),
        ("timestamptz", MOMENT, MOMENT),
        ("varchar(3)", "a\t\\", "a\t\\"),
        ("bytea", b"\x00\xff", b"\x00\xff"),
        ("integer[]", [1, 2], [1, 2]),
    ),
    "mysql": (
        ("decimal(6,2)", Decimal("1.50"), Decimal("1.50")),
        ("decimal(65,5)", Decimal("1.234567890123456789E+25"), Decimal("12345678901234567890000000.00000")),
        ("decimal(6,2)", 0.1, Decimal("0.10")),
        ("int", 5.0, 5),
        ("double", Decimal("0.1"), 0.1),
        ("datetime", MOMENT, LOCAL),
        ("datetime", "2026-11-25T12:00:00+02:00", LOCAL),
        ("datetime(6)", FINE, FINE),
        ("varchar(3)", "a\t\\", "a\t\\"),
        ("varbinary(9)", b"\x00\xff", b"\x00\xff"),
    ),
}

REFUSED: dict[str, tuple[tuple[str, Any], ...]] = {
    "postgresql": (
        ("numeric(6,2)", Decimal("1.005")),
        ("numeric(6,2)", "1.005"),
        ("double precision", 2**53 + 1),
        ("real", 16_777_217),
        ("timestamp(3)", FINE),
        ("timestamp(3)", "2026-11-25T10:00:00.1234"),
        ("time", time(10, tzinfo=UTC)),
        ("time", FINE),
        ("date", FINE),
        ("date", "2026-11-25T10:00:00"),
        ("varchar(3)", "abc  "),
        ("text", b"abc"),
        ("text", [1, 2]),
        ("bytea", r"\x41"),
    ),
    "mysql": (
        ("decimal(6,2)", Decimal("1.005")),
        ("decimal(6,2)", "1.005"),
        ("int", 1.5),
        ("double", 2**53 + 1),
        ("datetime", FINE),
        ("timestamp", "2026-11-25 10:00:00.1234"),
        ("time", FINE),
        ("date", FINE),
        ("char(9)", "a "),
        ("varchar(9)", ["a"]),
        ("varchar(3)", "abc  "),
        ("binary(4)", b"ab"),
    ),
}
"""Types of columns, and values that the database takes and gives back as others."""


class Opened(NamedTuple):
    """A database in which the test writes."""

    sql: Sql
    dialect: Dialect
    in_use: Any

    def run(self, statement: str) -> Any:
        """Run a statement."""
        return self.dialect.execute(self.in_use, statement)

    def table(self, kind: str) -> RowsTable:
        """A table `t` with a column `x` of this type."""
        self.run("DROP TABLE IF EXISTS t")
        self.run(f"CREATE TABLE t (id BIGINT PRIMARY KEY, x {kind}, {', '.join(GUARD[self.dialect.name])})")
        within: Any = self
        return RowsTable(within, self.sql.table("t", columns=["id", "x"]))

    def only(self) -> Any:
        """The only value in the table."""
        [(found,)] = self.run("SELECT x FROM t").fetchall()
        return found


@pytest.fixture(params=["postgres", "mariadb"])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """An empty database."""
    sql = Sql(request.getfixturevalue(request.param).url)
    talk = dialect(sql)
    connection = talk.connect()
    if (
        talk.name == "postgresql"
    ):  # tables are made again and again, and a statement that is prepared keeps the former one
        connection.prepare_threshold = None
    yield Opened(sql, talk, connection)
    talk.close(connection)


def test_value_that_a_column_keeps_comes_out_as_it_went_in(opened: Opened) -> None:
    """By a table of rows, and by an upsert."""
    for kind, value, kept in KEPT[opened.dialect.name]:
        rows = opened.table(kind)
        rows.write([{"id": 1, "x": value}])
        rows.flush()
        assert opened.only() == kept, kind

        opened.run("DELETE FROM t")
        within: Any = opened
        upsert = UpsertTable(within, opened.sql.upsert("t", key="id", columns=["x"]))
        upsert.places = [Coordinates("input", b"i" * 16, 0, 1)]
        upsert.put({"id": 1, "x": value})
        upsert.flush()
        assert opened.only() == kept, kind


def test_value_that_a_database_takes_and_changes_is_refused(opened: Opened) -> None:
    """The database would have taken each of them: the rows beside them are lost, or say something else."""
    for kind, value in REFUSED[opened.dialect.name]:
        rows = opened.table(kind)
        rows.write([{"id": 1, "x": value}])
        with pytest.raises(OutputError, match="column 'x' of table 't' is "):
            rows.flush()

        opened.dialect.insert(opened.in_use, "t", ["id", "x"], [(1, value)])
        assert opened.only() != value, kind


def test_moment_that_a_function_inserts_keeps_its_zone(opened: Opened) -> None:
    """`db.insert` knows no types, and writes it in UTC as all other ways do."""
    opened.table("timestamp" if opened.dialect.name == "postgresql" else "datetime")

    opened.dialect.insert(opened.in_use, "t", ["id", "x"], [(1, MOMENT)])

    assert opened.only() == LOCAL


@pytest.mark.parametrize("opened", ["mariadb"], indirect=True)
@pytest.mark.parametrize("kind", ["VARCHAR(9)", "VARCHAR(9) CHARACTER SET latin1", "CHAR(9)"])
def test_keys_that_differ_in_case_alone_are_never_one_row(opened: Opened, kind: str) -> None:
    """The second one is an error message, and its tombstone deletes nothing; a tombstone of the first one does."""
    opened.run(f"CREATE TABLE c (k {kind} PRIMARY KEY, {', '.join(GUARD['mysql'])}, n BIGINT)")
    into = opened.sql.upsert("c", key="k", columns=["n"])
    tester = Tester(
        Graph(
            "g", Source("in"), Sink("c", inputs="in", into=into), errors="e", defaults=Topic(value=Json(), partitions=1)
        )
    )
    for n, key in enumerate(("a", "é", "A", "é", "b")):
        tester.send("in", Message({"k": key, "n": n}, key=key))
    tester.send("in", Message(None, key="A"))
    tester.send("in", Message(None, key="é"))
    tester.run()

    [error] = tester.errors()
    assert "takes the key (k) for that of another row" in error.text
    found = opened.run("SELECT k, n, cues_deleted FROM c ORDER BY n").fetchall()
    assert [*found] == [("a", 0, 0), ("é", 3, 1), ("b", 4, 0)]


@pytest.mark.parametrize("opened", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("BIGINT", 5, 5),
        ("BIGINT", 5, "5"),
        ("DECIMAL(9,2)", 5, "5"),
        ("DATE", "2026-11-25", "2026-11-25"),
        ("DATETIME(6)", LOCAL, LOCAL),
        ("VARBINARY(9)", b"a", b"a"),
    ],
)
def test_tombstone_finds_the_row_of_a_key_that_is_no_text(opened: Opened, kind: str, value: Any, key: Any) -> None:
    """Only text has letters of another case."""
    opened.run(f"CREATE TABLE c (k {kind} PRIMARY KEY, {', '.join(GUARD['mysql'])}, n BIGINT)")
    within: Any = opened
    table = UpsertTable(within, opened.sql.upsert("c", key="k", columns=["n"]))
    table.places = [Coordinates("input", b"i" * 16, 0, 1)]
    table.put({"k": value, "n": 1})
    table.put({"k": value, "n": 2})
    table.delete(key)
    table.flush()

    assert [*opened.run("SELECT n, cues_deleted FROM c").fetchall()] == [(2, 1)]
