"""Values in the columns of a table come out as they went in, or are refused with the column's name."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Json, Sink, Source, Sql, Topic
from cues_kafka.errors import OutputError
from cues_kafka.sinks.column_fit import Fitting, Kind
from cues_kafka.testing.tester import Tester

PLUS_2 = timezone(timedelta(hours=2))
MOMENT = datetime(2026, 11, 25, 12, 0, 0, tzinfo=PLUS_2)


def day(hour: int = 0, micros: int = 0) -> datetime:
    """A time without a zone."""
    return datetime(2026, 11, 25, hour, 0, 0, micros, tzinfo=UTC).replace(tzinfo=None)


FINE = day(10, 123_400)


class Colour(Enum):
    """An enum whose names are not its values."""

    RED = "r"


PG, MY, LITE = "postgresql", "mysql", "sqlite"

KEPT: tuple[tuple[str, str, Any, Any], ...] = (
    (PG, "numeric(6,2)", Decimal("1.50"), Decimal("1.50")),
    (PG, "numeric(6,2)", Decimal("1.5000"), Decimal("1.5000")),
    (PG, "numeric(6,2)", 0.1, Decimal("0.1")),
    (PG, "numeric(6,2)", "1.50", "1.50"),
    (PG, "numeric(6,2)", Decimal("NaN"), Decimal("NaN")),
    (PG, "numeric", 0.30000000000000004, Decimal("0.30000000000000004")),
    (PG, "integer", 5.0, 5),
    (PG, "bigint", "007", "007"),
    (PG, "double precision", 2**53, 2**53),
    (PG, "double precision", Decimal("0.1"), Decimal("0.1")),
    (PG, "real", 16_777_216, 16_777_216),
    (PG, "timestamp without time zone", MOMENT, day(10)),
    (PG, "timestamp without time zone", "2026-11-25T12:00:00+02:00", day(10)),
    (PG, "timestamp without time zone", "2026-11-25T10:00:00Z", day(10)),
    (PG, "timestamp without time zone", "2026-11-25 10:00", "2026-11-25 10:00"),
    (PG, "timestamp(4) without time zone", FINE, FINE),
    (PG, "timestamp with time zone", MOMENT, MOMENT),
    (PG, "time without time zone", time(10), time(10)),
    (PG, "date", date(2026, 11, 25), date(2026, 11, 25)),
    (PG, "date", day(), day()),
    (PG, "character varying(3)", "abc", "abc"),
    (PG, "text", Colour.RED, "r"),
    (PG, "bytea", b"\xff", b"\xff"),
    (PG, "integer[]", [1, 2], [1, 2]),
    (PG, "mood", "sad", "sad"),
    (MY, "decimal(6,2)", Decimal("1.50"), Decimal("1.50")),
    (MY, "datetime(6)", FINE, FINE),
    (MY, "datetime", MOMENT, day(10)),
    (MY, "datetime", "2026-11-25T12:00:00+02:00", day(10)),
    (MY, "int(11) unsigned", 7, 7),
    (MY, "varchar(9)", Colour.RED, "r"),
    (MY, "varchar(9)", "a ", "a "),
    (MY, "text", b"abc", b"abc"),
    (MY, "enum('1','2')", "1", "1"),
    (LITE, "TEXT", Decimal("0.1234567890123456789"), Decimal("0.1234567890123456789")),
    (LITE, "NUMERIC", Decimal("12345678901234.5"), Decimal("12345678901234.5")),
    (LITE, "INTEGER", str(2**62), str(2**62)),
    (LITE, "", [1], [1]),
)  # fmt: skip

REFUSED: tuple[tuple[str, str, Any, str], ...] = (
    (PG, "numeric(6,2)", Decimal("1.005"), "more than 2 digits after the point"),
    (PG, "numeric(6,2)", "1.005", "more than 2 digits after the point"),
    (PG, "numeric(6,2)", 1.005, "more than 2 digits after the point"),
    (PG, "numeric(6,0)", Decimal("0.5"), "has a fraction"),
    (PG, "numeric(6,-3)", Decimal(1500), "has a fraction"),
    (PG, "money", Decimal("1.005"), "more than 2 digits after the point"),
    (PG, "integer", 1.5, "has a fraction"),
    (PG, "bigint", Decimal("70.99"), "has a fraction"),
    (PG, "double precision", 2**53 + 1, "more digits than that"),
    (PG, "double precision", Decimal("0.12345678901234567890"), "more digits than that"),
    (PG, "real", 16_777_217, "more digits than that"),
    (PG, "timestamp(3) without time zone", FINE, "more digits of a second"),
    (PG, "timestamp(3) with time zone", "2026-11-25T10:00:00.1234Z", "more digits of a second"),
    (PG, "time(0) without time zone", time(10, 0, 0, 5), "more digits of a second"),
    (PG, "time without time zone", time(10, tzinfo=UTC), "has a zone"),
    (PG, "time without time zone", FINE, "has a date"),
    (PG, "date", FINE, "has a time"),
    (PG, "date", "2026-11-25T10:00:00", "has a time"),
    (PG, "character varying(3)", "abc  ", "more blanks at its end"),
    (PG, "text", b"abc", "hexadecimal digits"),
    (PG, "text", [1, 2], "takes no list"),
    (PG, "bytea", r"\x41", "is text"),
    (MY, "decimal(6,2)", Decimal("1.005"), "more than 2 digits after the point"),
    (MY, "decimal(6,2) unsigned", 1.005, "more than 2 digits after the point"),
    (MY, "int(11)", 1.5, "has a fraction"),
    (MY, "datetime", FINE, r"more digits of a second.*use DATETIME\(6\)"),
    (MY, "timestamp", "2026-11-25 10:00:00.5", r"more digits of a second.*use TIMESTAMP\(6\)"),
    (MY, "time", timedelta(microseconds=1), "more digits of a second"),
    (MY, "date", MOMENT, "has a time"),
    (MY, "char(9)", "a ", "blanks at its end"),
    (MY, "varchar(9)", ["a"], "takes no list"),
    (MY, "varchar(9)", {"a"}, "takes no set"),
    (MY, "json", [1], "takes no list"),
    (MY, "binary(4)", b"ab", "is shorter"),
    (LITE, "NUMERIC", Decimal("0.1234567890123456789"), "more than the 15 digits"),
    (LITE, "DECIMAL(30,20)", "0.1234567890123456789", "more than the 15 digits"),
    (LITE, "REAL", 2**53 + 1, "more digits than that"),
)  # fmt: skip


def fitted(database: str, kind: str, value: Any) -> Any:
    """The value as a column `x` of this type gets it."""
    [found] = Fitting("t", database, {"x": kind}, ["x"]).row((value,))
    return found


@pytest.mark.parametrize(("database", "kind", "value", "kept"), KEPT, ids=str)
def test_value_that_fits_is_written_as_it_is(database: str, kind: str, value: Any, kept: Any) -> None:
    """Or as the same one in the form that the column keeps."""
    found = fitted(database, kind, value)

    assert repr(found) == repr(kept)


@pytest.mark.parametrize(("database", "kind", "value", "why"), REFUSED, ids=str)
def test_value_that_the_database_would_change_is_refused_with_its_column(
    database: str, kind: str, value: Any, why: str
) -> None:
    """And the value itself is in no text."""
    with pytest.raises(OutputError, match=rf"^column 'x' of table 't' is .*{why}"):
        fitted(database, kind, value)


def test_columns_are_found_by_name_as_the_database_compares_them() -> None:
    """In PostgreSQL the case of letters counts; a column that is not known keeps anything."""
    assert Fitting("t", PG, {"X": "numeric(6,2)"}, ["x"]).row((1.005,)) == (1.005,)
    with pytest.raises(OutputError):
        Fitting("t", MY, {"X": "decimal(6,2)"}, ["x"]).row((1.005,))
    assert Fitting("t", MY, {"a": "decimal(6,2)", "b": "int"}, ["b", "a"]).row((1, None)) == (1, None)


def test_type_is_taken_apart() -> None:
    """The numbers may stand inside."""
    assert Kind.of("TIMESTAMP(3) without time zone") == Kind(
        "timestamp(3) without time zone", "timestamp without time zone", (3,)
    )
    assert Kind.of("decimal(6, 2)").numbers == (6, 2)


@pytest.mark.parametrize("upsert", [False, True])
def test_row_that_sqlite_would_change_is_an_error_message_and_the_others_are_rows(tmp_path: Path, upsert: bool) -> None:
    """A sink asks the database for its columns."""
    path = tmp_path / "x.db"
    guard = "cues_source TEXT, cues_offset INTEGER, cues_deleted BOOLEAN NOT NULL DEFAULT FALSE"
    with sqlite3.connect(path) as made:
        made.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, price NUMERIC, {guard})")
    sql = Sql(f"sqlite:///{path}")
    into = sql.upsert("t", key="id", columns=["price"]) if upsert else sql.table("t", columns=["id", "price"])
    tester = Tester(
        Graph("g", Source("in"), Sink("rows", inputs="in", into=into), errors="e", defaults=Topic(value=Json()))
    )
    tester.send("in", {"id": 1, "price": "1.5"})
    tester.send("in", {"id": 2, "price": "12345678901234567.89"})
    tester.send("in", {"id": 3, "price": "2.5"})
    tester.run()

    [error] = tester.errors()
    assert "column 'price' of table 't' is numeric" in error.text
    with sqlite3.connect(path) as opened:
        assert opened.execute("SELECT id, price FROM t ORDER BY id").fetchall() == [(1, 1.5), (3, 2.5)]
