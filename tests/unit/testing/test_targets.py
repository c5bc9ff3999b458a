"""E1: the contract suite of targets. Right targets pass it, and a target that lacks one rule does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cues_kafka import Blobs, OutputError, RetriableError, Sql, TaskStopped, files
from cues_kafka.graph.effects import Effect
from cues_kafka.sinks.blobs.marker import make_store
from cues_kafka.sinks.lookup import store_of
from cues_kafka.sinks.sqlite import Sqlite
from cues_kafka.sinks.tables import make_tables
from cues_kafka.targets import TargetMoved, TaskName, TransactionalTarget, Transactions
from cues_kafka.testing.target_bench import Case
from cues_kafka.testing.target_cases import CASES
from cues_kafka.testing.targets import TargetContract
from tests.unit.testing.shelves import Shelves


@dataclass(frozen=True)
class Shelf(TransactionalTarget):
    """The target of a server in memory."""

    server: Shelves = field(default_factory=Shelves, compare=False)

    def open(self, task: TaskName) -> Transactions:
        return OnShelf(self.server, task.key)


class OnShelf(Transactions):
    """One task's transactions there. Each rule of the contract is a line."""

    def __init__(self, server: Shelves, key: str) -> None:
        self.server = server
        self.key = key
        self.items: list[int] = []

    def ask(self) -> bytes | None:
        return self.server.kept.get(self.key)

    def begin(self) -> None:
        self.items = []

    def write(self, item: Any) -> None:
        if not isinstance(item, int):
            raise OutputError("no number")
        self.items.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        if not self.server.swap(self.key, kept, over, self.items):
            raise TargetMoved("another process was here")

    def close(self) -> None:
        self.items = []


class OfShelves(TargetContract):
    """The contract, for a target in memory."""

    made: ClassVar[type[Shelf]] = Shelf

    @pytest.fixture
    def target(self) -> Effect:
        return self.made()

    def read(self, target: Shelf) -> Iterable[int]:
        return target.server.stored

    def write_refused(self, into: Any) -> bool:
        into.write("three")
        return True


class TestShelf(OfShelves):
    """The smallest target that passes."""


class TestSqlite(TargetContract):
    """Our database target."""

    @pytest.fixture
    def target(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Effect:
        monkeypatch.setattr(Sqlite, "lock_s", 0.2)
        found = Sql(f"sqlite:///{tmp_path / 'contract.db'}")
        make_tables(found, "the contract", create=True)
        with sqlite3.connect(tmp_path / "contract.db") as made:
            made.execute("CREATE TABLE numbers (number INTEGER CHECK (typeof(number) = 'integer'))")
        return found

    def write(self, into: Any, number: int) -> None:
        into.execute("INSERT INTO numbers VALUES (?)", (number,))

    def write_refused(self, into: Any) -> bool:
        into.execute("INSERT INTO numbers VALUES ('three')")
        return True

    def read(self, target: Sql) -> Iterable[int]:
        with sqlite3.connect(target.url.removeprefix("sqlite:///")) as opened:
            return [row[0] for row in opened.execute("SELECT number FROM numbers")]


@pytest.mark.full
class TestFiles(TargetContract):
    """Our target of files."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Effect:
        found = Blobs(f"file://{tmp_path}/store")
        make_store(store_of(found))
        return found

    def write(self, into: Any, number: int) -> None:
        into.put("number", str(number).encode())

    def write_refused(self, into: Any) -> bool:
        into.put("../outside", b"")
        return True

    def read(self, target: Blobs) -> Iterator[int]:
        for one in files(target.url, ""):
            yield int(Path(one.url.removeprefix("file://")).read_text())


# One rule taken out


class NoComparison(OnShelf):
    """Its commit does not look at what is kept."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        super().commit(kept, self.server.kept.get(self.key))


class NoFence(OnShelf):
    """Its fence keeps nothing, and its commit looks at the step alone, as a user may write it."""

    def fence(self, kept: bytes, over: bytes | None) -> None:
        pass

    def commit(self, kept: bytes, over: bytes | None) -> None:
        super().commit(kept, self.server.kept.get(self.key))


class KeepsNothing(OnShelf):
    """Its commit does not keep the attempt."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        if self.items:
            self.server.store(self.items)
        else:
            super().commit(kept, over)


class KeepsBefore(OnShelf):
    """It keeps the attempt first, and stores the writes in a second transaction."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        items, self.items = self.items, []
        super().commit(kept, over)
        self.server.store(items)


class StoresBefore(OnShelf):
    """It stores the writes first, and keeps the attempt in a second transaction."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        if self.server.kept.get(self.key) != over:
            raise TargetMoved("another process was here")
        self.server.store(self.items)
        self.items = []
        super().commit(kept, over)


class WritesAtOnce(OnShelf):
    """Its writes do not wait for the commit."""

    def write(self, item: Any) -> None:
        super().write(item)
        self.server.store([self.items.pop()])


class ComparesFirst(OnShelf):
    """It compares when the transaction begins, and not in its commit."""

    def begin(self) -> None:
        super().begin()
        self.seen = self.server.kept.get(self.key)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        if self.seen != over:
            raise TargetMoved("another process was here")
        super().commit(kept, self.server.kept.get(self.key))


class CutsOff(OnShelf):
    """It keeps the first line only, as a column that is too short."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        super().commit(kept.partition(b"\n")[0] + b"\n", over)


class OneForAll(OnShelf):
    """It keeps one attempt for all tasks of a processor."""

    def __init__(self, server: Shelves, key: str) -> None:
        super().__init__(server, key.rpartition("/")[0])


class Caches(OnShelf):
    """It answers with what it saw first."""

    def ask(self) -> bytes | None:
        return self.server.first.setdefault(self.key, super().ask())


class Again(OnShelf):
    """It repeats a commit without an answer, with whatever is kept by then."""

    def commit(self, kept: bytes, over: bytes | None) -> None:
        try:
            super().commit(kept, over)
        except TargetMoved:
            super().commit(kept, self.server.kept.get(self.key))


class Swallows(OnShelf):
    """It takes what it cannot store."""

    def write(self, item: Any) -> None:
        if isinstance(item, int):
            self.items.append(item)


class OpensBroken(Shelf):
    """Opens the transactions that lack a rule."""

    transactions: ClassVar[type[OnShelf]]

    def open(self, task: TaskName) -> Transactions:
        return self.transactions(self.server, task.key)


@pytest.mark.parametrize(
    ("transactions", "shown_by"),
    [
        (NoComparison, "a former owner wakes up between its batches"),
        (NoFence, "a former owner wakes up between its batches"),
        (KeepsNothing, "a restart"),
        (KeepsBefore, "killed at each line of the transactions"),
        (StoresBefore, "killed at each line of the transactions"),
        (WritesAtOnce, "killed at each line of the transactions"),
        (CutsOff, "a successor publishes what it finds"),
        (OneForAll, "tasks are apart"),
        (Caches, "a restart"),
        (Again, "two owners with one number"),
        (Swallows, "the target refuses a write"),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_target_that_lacks_a_rule_fails_the_suite(transactions: type[OnShelf], shown_by: str) -> None:
    """A case that is about the rule shows it; that the same case passes otherwise is `TestShelf`."""
    made = type("Broken", (OpensBroken,), {"transactions": transactions})
    [case] = [one for one in CASES if one.name == shown_by]
    with pytest.raises((AssertionError, TaskStopped, RetriableError, pytest.fail.Exception)):
        case.check(OfShelves(), made())


def test_every_case_has_a_name_of_its_own() -> None:
    """It is the id of its test."""
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert all(isinstance(case, Case) for case in CASES)
