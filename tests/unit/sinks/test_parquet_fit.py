"""Values of Python in the columns of Parquet files: each one is kept as it is, or refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from cues_kafka import Blobs, Graph, OutputError, Sink, Source, files
from cues_kafka.sinks.blobs.tables import Parquet
from cues_kafka.testing.tester import Tester

NOON = datetime(2026, 1, 1, 12, 0, 0, 5, UTC).replace(tzinfo=None)
MIDNIGHT = NOON.replace(hour=0, microsecond=0)


def kept(kind: str, *values: Any) -> list[Any]:
    """What a column of this type has of the values."""
    batch, _ = Parquet(Blobs("file:///lake").parquet("t", schema={"x": kind})).made([{"x": one} for one in values])
    found: list[Any] = batch.column("x").to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int64", 70.99),
        ("uint8", 3.5),
        ("int64", Decimal("1.5")),
        ("float", 1e300),
        ("float16", 100_000),
        ("date32", NOON),
        ("date32", MIDNIGHT.replace(hour=5, tzinfo=UTC)),
        ("date64", NOON),
        ("timestamp[s]", NOON),
        ("timestamp[ms]", NOON.replace(tzinfo=UTC)),
        ("time32[s]", time(1, 2, 3, 5)),
        ("duration[s]", timedelta(microseconds=5)),
    ],
)
def test_value_that_a_column_would_change_is_refused(kind: str, value: Any) -> None:
    """Pyarrow cuts it without a word."""
    with pytest.raises(OutputError, match=r"does not fit the schema: a part of field 'x' would be lost as "):
        kept(kind, value)
    with pytest.raises(OutputError, match="does not fit the schema"):
        kept(kind, None, value)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int64", [2.0, 2**53 + 1, None], [2, 2**53 + 1, None]),
        ("int64", [Decimal("5.00")], [5]),
        ("uint64", [2**64 - 1], [2**64 - 1]),
        ("float", [0.5, math.inf, 3], [0.5, math.inf, 3.0]),
        ("double", [0.1, 3], [0.1, 3.0]),
        ("date32", [MIDNIGHT, date(2026, 1, 2)], [date(2026, 1, 1), date(2026, 1, 2)]),
        ("timestamp[s]", [NOON.replace(microsecond=0)], [NOON.replace(microsecond=0)]),
        ("timestamp[us]", [NOON.replace(tzinfo=UTC)], [NOON]),
        ("time64[us]", [time(1, 2, 3, 5)], [time(1, 2, 3, 5)]),
        ("string", ["a", None], ["a", None]),
    ],
)
def test_value_that_can_be_read_back_fits(kind: str, values: list[Any], expected: list[Any]) -> None:
    """Also beside values of another class."""
    assert kept(kind, *values) == expected


def test_column_of_short_floats_keeps_the_nearest_number() -> None:
    """As the docs say: who declares `float` takes seven digits."""
    [found, nan] = kept("float", 0.1, math.nan)
    assert found == pytest.approx(0.1, rel=1e-7)
    assert math.isnan(nan)


def test_date_in_front_does_not_hide_a_time_of_day() -> None:
    """Pyarrow takes the class of the first value for that of all."""
    with pytest.raises(OutputError, match="a part of field 'x' would be lost"):
        kept("date32", date(2026, 1, 1), NOON)


def test_value_that_would_be_cut_becomes_an_error_message_and_the_others_keep_their_rows(tmp_path: Path) -> None:
    """In one batch."""
    into = Blobs(f"file://{tmp_path}").parquet("t", schema={"id": "int64", "total": "int64"})
    tester = Tester(Graph("lake", Source("o"), Sink("a", inputs="o", into=into), errors="e"))
    totals = [70, 70.99, 71.0]
    tester.send_many("o", [{"id": at, "total": total} for at, total in enumerate(totals)])
    tester.run()
    rows = [
        row
        for one in files(f"file://{tmp_path}", "t")
        for row in pyarrow.parquet.read_table(one.url.removeprefix("file://")).to_pylist()
    ]
    assert rows == [{"id": 0, "total": 70}, {"id": 2, "total": 71}]
    [error] = tester.errors()
    assert "a part of field 'total' would be lost as int64" in error.text
