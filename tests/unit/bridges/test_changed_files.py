"""Files whose identity is more than a name and a size, and names that are not UTF-8."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from cues_kafka import Directory, Files, RecoveryError, Sql
from cues_kafka.sinks.lookup import dialect


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("at", [1, 5000])
def test_a_delivered_file_with_other_bytes_of_the_same_size_is_refused(inplace: bool, at: int, tmp_path: Path) -> None:
    """Its number in the file system may be the same, and the change may be far behind its beginning."""
    file = tmp_path / "a.xml"
    file.write_bytes(b"a" * 6000)
    reader = Directory(f"{tmp_path}/*.xml").open()
    [(_, place)] = reader.read(0, None, 100)
    assert list(reader.read(0, place, 100)) == []
    if not inplace:
        file.unlink()
    file.write_bytes(b"a" * at + b"b" + b"a" * (5999 - at))

    for one in (reader, Directory(f"{tmp_path}/*.xml").open()):
        with pytest.raises(RecoveryError, match="changed or replaced"):
            list(one.read(0, place, 100))


def test_a_delivered_file_that_was_away_is_not_delivered_again(tmp_path: Path) -> None:
    """It is known by all of its bytes."""
    (file := tmp_path / "a.xml").write_bytes(b"a" * 6000)
    reader = Directory(f"{tmp_path}/*.xml").open()
    [(_, place)] = reader.read(0, None, 100)
    file.rename(away := tmp_path / "a.away")
    assert list(reader.read(0, place, 100)) == []
    away.rename(file)
    assert list(reader.read(0, place, 100)) == []


def test_a_name_that_is_not_utf8_stops_no_task(tmp_path: Path) -> None:
    """It belongs to one of the tasks, and its header shows its bytes."""
    (tmp_path / os.fsdecode(b"bad\xff.log")).write_bytes(b"one\n")
    found = []
    for part in range(2):
        found += [
            m.headers for m, _ in Files(f"{tmp_path}/*.log", tasks=2, name_header="file").open().read(part, None, 9)
        ]
    assert [dict(one)["file"] for one in found] == ["bad\\xff.log"]


def test_sqlite_keeps_a_decimal_digit_by_digit(tmp_path: Path) -> None:
    """A column of type TEXT gives each digit back."""
    exact = Decimal("12345678901234567890.1234567890")
    connection = dialect(Sql(f"sqlite:///{tmp_path / 'x.db'}")).connect()
    connection.execute("CREATE TABLE t (x TEXT)")
    connection.execute("INSERT INTO t VALUES (?)", (exact,))
    [(text,)] = connection.execute("SELECT x FROM t")
    assert Decimal(text) == exact
    connection.close()
