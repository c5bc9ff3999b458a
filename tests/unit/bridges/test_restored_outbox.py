"""Outboxes in SQLite whose database was restored from a backup: no undelivered row is deleted or skipped."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Feed, Graph, Json, RecoveryError, SqlOutbox, Topic
from cues_kafka.bridges.outbox.sqlite import SqliteOutbox
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.testing.tester import Crash, Tester

TABLE = "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT NOT NULL)"


class Shop:
    """A database file with an outbox, and one backup of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.run(TABLE)

    def run(self, query: str, *given: Any) -> list[Any]:
        """Run one statement and commit it."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(query, given).fetchall()

    def write(self, *values: Any) -> None:
        """Insert rows."""
        for value in values:
            self.run("INSERT INTO outbox (value) VALUES (?)", json.dumps(value))

    @property
    def numbers(self) -> list[int]:
        """Of the rows that are there."""
        return [number for (number,) in self.run("SELECT id FROM outbox ORDER BY id")]

    def back_up(self) -> None:
        """Copy the file."""
        shutil.copy(self.path, f"{self.path}.bak")

    def restore(self) -> None:
        """Put the copy back."""
        shutil.copy(f"{self.path}.bak", self.path)

    def tester(self, **options: Any) -> Tester:
        """A graph of one feed."""
        feed = Feed(SqlOutbox(f"sqlite:///{self.path}", **options), into="orders")
        return Tester(Graph("shop", feed, defaults=Topic(value=Json())), policy=CommitPolicy(max_messages=3))

    def source(self, **options: Any) -> SqliteOutbox:
        """What a process reads from."""
        opened = SqlOutbox(f"sqlite:///{self.path}", **options).open()
        assert isinstance(opened, SqliteOutbox)
        return opened


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """With an empty outbox."""
    return Shop(tmp_path)


def restored(shop: Shop, *, keep: bool) -> Tester:
    """Rows 1 to 10 are delivered, and a backup with rows 1 to 5 is restored."""
    tester = shop.tester(keep=keep)
    shop.write(*range(1, 6))
    shop.back_up()
    shop.write(*range(6, 11))
    tester.run().run()
    assert tester.values("orders") == list(range(1, 11))
    tester.stop()
    shop.restore()
    return tester


@pytest.mark.parametrize("keep", [True, False])
def test_a_restored_outbox_is_refused_and_keeps_its_rows(shop: Shop, keep: bool) -> None:
    """The rows that the application wrote after the restore are still there when the feed has refused."""
    tester = restored(shop, keep=keep)
    shop.write("new6", "new7", "new8")

    with pytest.raises(RecoveryError, match="has numbered 8 rows, and row 10 was delivered"):
        tester.restart().run()
    assert shop.numbers == list(range(1, 9))


@pytest.mark.parametrize("keep", [True, False])
def test_the_refusal_stays_when_the_application_goes_on(shop: Shop, keep: bool) -> None:
    """Numbers that pass the place do not make the feed skip rows, or delete them."""
    tester = restored(shop, keep=keep)
    shop.write(*(f"new{n}" for n in range(6, 13)))

    for _ in range(2):
        with pytest.raises(RecoveryError, match="row 10 of 'outbox' was delivered, and is another one") as refused:
            tester.restart().run()
    assert "restore a newer backup" in refused.value.remedy
    assert shop.numbers == list(range(1, 13))
    assert tester.values("orders") == list(range(1, 11))


@pytest.mark.parametrize(
    ("change", "now"),
    [
        ("DELETE FROM outbox WHERE id = 3", "is gone"),
        ("UPDATE outbox SET value = '9' WHERE id = 3", "is another one"),
        ("UPDATE outbox SET key = 'k' WHERE id = 3", "is another one"),
    ],
)
def test_the_newest_delivered_row_must_stay_as_it_was(shop: Shop, change: str, now: str) -> None:
    """It is gone, or has another value or key; when it is put back, the feed goes on."""
    shop.write(1, 2, 3)
    tester = shop.tester()
    tester.run()
    shop.run(change)
    shop.write(4)

    with pytest.raises(RecoveryError, match=f"row 3 of 'outbox' was delivered, and {now}"):
        tester.restart().run()
    shop.run("INSERT OR REPLACE INTO outbox (id, value) VALUES (3, '3')")
    assert tester.restart().run().values("orders") == [1, 2, 3, 4]


def test_an_application_may_delete_older_delivered_rows(shop: Shop) -> None:
    """Only the newest delivered row shows that the table is the same."""
    shop.write(1, 2, 3)
    tester = shop.tester()
    tester.run()
    shop.run("DELETE FROM outbox WHERE id < 3")
    shop.write(4)
    assert tester.restart().run().values("orders") == [1, 2, 3, 4]


def test_rows_that_are_not_kept_go_except_the_newest(shop: Shop) -> None:
    """Also over restarts, and a death between Kafka's commit and the deletion."""
    tester = shop.tester(keep=False)
    shop.write(*range(1, 8))
    tester.run(crash=Crash("after", "Commit", 2))
    tester.run().run()
    assert shop.numbers == [7]
    shop.write(8)
    tester.restart().run().run()
    assert shop.numbers == [8]
    assert tester.values("orders") == list(range(1, 9))


def test_a_place_of_an_older_release_is_accepted_and_deletes_nothing(shop: Shop) -> None:
    """It has no mark of its row, so it cannot show that the table is the same."""
    shop.write(1, 2, 3)
    source = shop.source(keep=False)
    source.committed(0, "2")
    assert shop.numbers == [1, 2, 3]
    [(_, place)] = source.read(0, "2", 10)
    source.committed(0, place)
    assert shop.numbers == [3]
    source.close()


def test_a_feed_may_name_other_columns(shop: Shop) -> None:
    """The mark of other columns says nothing; the row must be there all the same."""
    shop.write(1, 2)
    before, now = shop.source(), shop.source(key=None)
    place = [at for _, at in before.read(0, None, 10)][-1]
    assert list(now.read(0, place, 10)) == []
    shop.run("DELETE FROM outbox WHERE id = 2")
    with pytest.raises(RecoveryError, match="is gone"):
        list(now.read(0, place, 10))
    before.close()
    now.close()


def test_a_place_names_its_row_for_people() -> None:
    """Marks are not shown, in the places of any database."""
    shows: Callable[[str], str] = SqlOutbox("sqlite:///shop.db").show
    assert {shows(p) for p in ("7", "7#ab-1", "12:7", "12:7#ab", "1-3,5-7", "1-3#ab;5,6-7#cd")} == {"row 7 of 'outbox'"}
