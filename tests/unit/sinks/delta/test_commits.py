"""E6: what two processes and Delta's own commands do to the commits of a task."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import deltalake
import pytest

from cues_kafka import Delta, OutputError, RetriableError
from cues_kafka.errors import RecoveryError
from cues_kafka.graph.targets import TargetMoved, TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.delta import commit_turns
from cues_kafka.sinks.delta.commit_turns import turn_at
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.sinks.delta.table import BESIDE, OpenedTable, TableFile
from cues_kafka.sinks.delta.transactions import DeltaTransactions, mark_of, transactions_of
from cues_kafka.sinks.kept import Kept
from cues_kafka.sinks.lookup import open_target
from tests.delta_reading import values

TASK = TaskName("shop", "lake", 0)


@pytest.fixture
def target(tmp_path: Path) -> DeltaTarget:
    """A table with one column."""
    made = Delta(f"file://{tmp_path}/a b+ä").table("numbers", columns={"n": "long"})
    made.make(first=True)
    return made


def opened(target: DeltaTarget, partition: int = 0) -> Any:
    """The target of a task, as another process opens it."""
    return open_target({"into": target}, TASK.graph, TASK.processor, partition)


def attempt(sink: Any, owner: int, step: int, *numbers: int) -> None:
    """One batch with a step for each number."""
    sink.begin_batch(owner, step)
    for number in numbers:
        sink.mark()
        sink.values["into"].write({"n": number})
        sink.rest()
    sink.commit(HeldAttempt(step, step + len(numbers), owner, ""), [])


def directory(target: DeltaTarget) -> Path:
    """The directory of a table. Its name has characters that addresses encode."""
    return Path(target.url().removeprefix("file://"))


def kept(step: int, owner: int = 1) -> bytes:
    """Bytes for a step; no two are equal."""
    return Kept.of(HeldAttempt(0, step, owner, "")).data


def begun(target: DeltaTarget) -> tuple[DeltaTransactions, bytes]:
    """Transactions, and what they are made over."""
    made, first = transactions_of(target, TASK), kept(0)
    made.fence(first, None)
    return made, first


def row(target: DeltaTarget, n: int) -> Any:
    """What a function writes."""
    found = Collected()
    target.value(found).write({"n": n})
    return found.items[0]


class Collected:
    """A `Write` that keeps what it takes."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def __call__(self, item: Any) -> None:
        self.items.append(item)


def beside(target: DeltaTarget) -> list[str]:
    """The objects of the task."""
    place = directory(target) / BESIDE / "shop.lake.0"
    return sorted(one.name for one in place.iterdir())


# Two processes


@pytest.mark.parametrize("over", ["the same bytes", "bytes of another process"])
def test_of_two_commits_over_one_version_one_counts(
    target: DeltaTarget, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    """Another process commits between the comparison and the commit: Delta refuses the second."""
    former, first = begun(target)
    other, mine = transactions_of(target, TASK), kept(1)
    append = OpenedTable.append

    def beaten(self: OpenedTable, rows: Sequence[Any], apps: Mapping[str, int]) -> None:
        monkeypatch.setattr(OpenedTable, "append", append)
        if over == "the same bytes":
            other.begin()
            other.write(row(target, 2))
        other._commit(kept(1, owner=2), first)
        append(self, rows, apps)

    monkeypatch.setattr(commit_turns, "HELD_S", 0.0)
    monkeypatch.setattr(OpenedTable, "append", beaten)
    former.begin()
    former.write(row(target, 1))
    with pytest.raises(TargetMoved):
        former.commit(mine, first)
    assert values(str(directory(target)), "n") == ([2] if over == "the same bytes" else [])


def test_former_owner_that_reads_the_newest_version_is_refused(target: DeltaTarget) -> None:
    """Delta would take its commit: it was made over the newest version. The comparison refuses it."""
    former, first = begun(target)
    heir = transactions_of(target, TASK)
    heir.fence(kept(0, owner=2), first)
    former.begin()
    former.write(row(target, 1))
    with pytest.raises(TargetMoved, match="another mark"):
        former.commit(kept(1), first)
    assert values(str(directory(target)), "n") == []


def test_comparison_is_what_refuses_it(target: DeltaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the former owner commits, and rows are there twice: the rule is needed."""
    former, first = begun(target)
    transactions_of(target, TASK).fence(kept(0, owner=2), first)
    monkeypatch.setattr(DeltaTransactions, "_compare", lambda *_: None)
    former.begin()
    former.write(row(target, 1))
    former.commit(kept(1), first)
    assert values(str(directory(target)), "n") == [1]


def test_tasks_do_not_disturb_each_other(target: DeltaTarget) -> None:
    """Each has its own application; many commit at once, over versions that others have taken meanwhile."""
    failed: list[BaseException] = []

    def work(partition: int) -> None:
        try:
            sink = opened(target, partition)
            sink.ask(1, 0)
            for step in range(4):
                attempt(sink, 1, step, 10 * partition + step)
            sink.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert sorted(values(str(directory(target)), "n")) == [10 * p + step for p in range(4) for step in range(4)]
    table = deltalake.DeltaTable(directory(target))
    assert [table.transaction_version(f"shop.lake.{partition}") for partition in range(4)] == [4] * 4


def test_task_that_hangs_loses_its_turn(target: DeltaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others commit past it, and its own commit counts when it goes on."""
    monkeypatch.setattr(commit_turns, "HELD_S", 0.2)
    sink = opened(target)
    sink.ask(1, 0)
    with turn_at(target.url()):
        began = monotonic()
        attempt(sink, 1, 0, 1)
        assert monotonic() - began > 0.1
    attempt(sink, 1, 1, 2)
    assert sorted(values(str(directory(target)), "n")) == [1, 2]


# What is kept


def test_one_object_is_left_of_a_task(target: DeltaTarget) -> None:
    """Its name is the version of the second application transaction; those of void batches go with the next owner."""
    sink = opened(target)
    sink.ask(1, 0)
    for step in range(3):
        attempt(sink, 1, step, step)
    [name] = beside(target)
    assert int(name, 16) == deltalake.DeltaTable(directory(target)).transaction_version("shop.lake.0.mark")
    former = transactions_of(target, TASK)
    former._table.renew()
    former._table.put(f"{BESIDE}/shop.lake.0/{mark_of(b'void'):016x}", b"void")
    assert len(beside(target)) == 2
    assert opened(target).ask(2, 3) == HeldAttempt(2, 3, 1, "")
    assert len(beside(target)) == 1


@pytest.mark.parametrize(("what", "says"), [("deleted", "is missing"), ("changed", "was changed")])
def test_lost_bytes_stop_the_task(target: DeltaTarget, what: str, says: str) -> None:
    """It does not begin again."""
    sink = opened(target)
    sink.ask(1, 0)
    attempt(sink, 1, 0, 1)
    [name] = beside(target)
    place = directory(target) / BESIDE / "shop.lake.0" / name
    place.unlink() if what == "deleted" else place.write_bytes(kept(7))
    with pytest.raises(RetriableError, match=says) as raised:
        opened(target).ask(2, 1)
    assert "from a backup" in raised.value.remedy


def test_reader_that_looks_while_a_task_commits_looks_again(
    target: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes whose number it has read were deleted by the next commit."""
    sink, tool = opened(target), transactions_of(target, TASK)
    sink.ask(1, 0)
    attempt(sink, 1, 0, 1)
    read = OpenedTable.read

    def late(self: OpenedTable, path: str) -> bytes | None:
        monkeypatch.setattr(OpenedTable, "read", read)
        attempt(sink, 1, 1, 2)
        return read(self, path)

    monkeypatch.setattr(OpenedTable, "read", late)
    found = tool.ask()
    assert found is not None
    assert Kept.read(found).held.step == 2


# Delta's own commands


def test_optimize_and_vacuum_beside_the_writer_lose_nothing(target: DeltaTarget) -> None:
    """They run between the comparison and the commit, too; the place and its bytes stay."""
    sink = opened(target)
    sink.ask(1, 0)
    for step in range(4):
        attempt(sink, 1, step, step)
    with interleaved(target):
        for step in range(4, 8):
            attempt(sink, 1, step, step)
    table = deltalake.DeltaTable(directory(target))
    table.create_checkpoint()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert sorted(values(str(directory(target)), "n")) == list(range(8))
    assert opened(target).ask(2, 8) == HeldAttempt(7, 8, 1, "")


class interleaved:  # noqa: N801 - a context manager
    """While it is entered, each commit meets `optimize` and `vacuum` behind its comparison."""

    def __init__(self, target: DeltaTarget) -> None:
        self._url, self._append = target.url(), OpenedTable.append

    def __enter__(self) -> None:
        append, url = self._append, self._url

        def beside(
            self: OpenedTable, rows: Sequence[Any], apps: Mapping[str, int], files: Iterable[TableFile] = ()
        ) -> None:
            table = deltalake.DeltaTable(url.removeprefix("file://"))
            table.optimize.compact()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            append(self, rows, apps, files)

        OpenedTable.append = beside  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        OpenedTable.append = self._append  # type: ignore[method-assign]


def test_optimize_keeps_what_tasks_append_meanwhile(target: DeltaTarget) -> None:
    """Both run at once, on threads."""
    sink = opened(target)
    sink.ask(1, 0)
    attempt(sink, 1, 0, 0)
    ended = threading.Event()

    def optimize() -> None:
        while not ended.is_set():
            deltalake.DeltaTable(directory(target)).optimize.compact()

    beside = threading.Thread(target=optimize)
    beside.start()
    step, done = 1, 1
    try:
        while done < 8:
            try:
                attempt(sink, 1, step, step)
            except RetriableError:  # as a task does: it asks, and goes on from the answer
                held = sink.ask(1, step)
                step = held.step if held else 0
            else:
                step += 1
            done = step
    finally:
        ended.set()
        beside.join()
    assert sorted(values(str(directory(target)), "n")) == list(range(8))


def test_table_that_is_gone_is_an_outage(target: DeltaTarget) -> None:
    """The directory of a mount is empty: no table is made there, and the task goes on when it is back."""
    lake = directory(target).parent
    sink = opened(target)
    sink.ask(1, 0)
    attempt(sink, 1, 0, 1)
    (lake / "numbers").rename(lake / "away")
    (lake / "numbers").mkdir()
    sink.begin_batch(1, 1)
    with pytest.raises(RetriableError, match="no table") as raised:
        sink.commit(HeldAttempt(1, 2, 1, ""), [])
    assert raised.value.code == "TARGET"
    with pytest.raises(RetriableError):
        target.make(first=False)
    assert not (lake / "numbers" / "_delta_log").exists()
    sink.close()
    for left in sorted((lake / "numbers").rglob("*"), reverse=True):
        left.rmdir() if left.is_dir() else left.unlink()
    (lake / "numbers").rmdir()
    (lake / "away").rename(lake / "numbers")
    assert opened(target).ask(2, 1) == HeldAttempt(0, 1, 1, "")


# Rows


@pytest.fixture
def wide(tmp_path: Path) -> DeltaTarget:
    """A table with a column of each type."""
    made = Delta(f"file://{tmp_path}").table(
        "wide",
        columns={
            "s": "string",
            "l": "long",
            "i": "integer",
            "h": "short",
            "b": "byte",
            "d": "double",
            "f": "float",
            "o": "boolean",
            "y": "binary",
            "a": "date",
            "t": "timestamp",
            "z": "timestamp_ntz",
            "m": "decimal(12,2)",
        },
        partition_by=["s"],
    )
    made.make(first=True)
    return made


def test_each_type_comes_back_as_it_was(wide: DeltaTarget) -> None:
    """Also null, and a value that a path must escape."""
    from datetime import UTC, date, datetime
    from decimal import Decimal

    full = {
        "s": "a/b =%ä",
        "l": 2**62,
        "i": -(2**31),
        "h": 2**15 - 1,
        "b": -128,
        "d": 0.1,
        "f": 0.5,
        "o": True,
        "y": b"\x00\xff",
        "a": date(2024, 2, 29),
        "t": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        "z": datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001 - the type has no zone
        "m": Decimal("123.45"),
    }
    sink = opened(wide)
    sink.ask(1, 0)
    sink.begin_batch(1, 0)
    sink.mark()
    sink.values["into"].write_all([full, dict.fromkeys(full)])
    sink.rest()
    sink.commit(HeldAttempt(0, 1, 1, ""), [])
    found = deltalake.DeltaTable(wide.url()).to_pyarrow_table().sort_by("l").to_pylist()
    assert found == [full, dict.fromkeys(full)]


@pytest.mark.parametrize(
    ("column", "value"),
    [("l", 2**63), ("l", 1.5), ("i", 2**31), ("s", 1), ("a", "2024"), ("m", 0.001), ("t", "now"), ("o", "yes")],
)
def test_value_that_does_not_fit_is_refused(wide: DeltaTarget, column: str, value: object) -> None:
    """It names the table, and nothing of the call is written."""
    written = Collected()
    rows = wide.value(written)
    full = dict.fromkeys(wide.columns)
    with pytest.raises(OutputError, match="'wide'"):
        rows.write_all([full, full | {column: value}])
    with pytest.raises(OutputError, match="lacks the field"):
        rows.write({"s": "a"})
    with pytest.raises(OutputError, match="tombstone"):
        rows.write(None)
    assert written.items == []


def test_running_task_leaves_new_columns_null(target: DeltaTarget) -> None:
    """A newer version of the program has added one; a column that is gone stops the task."""
    sink = opened(target)
    sink.ask(1, 0)
    attempt(sink, 1, 0, 1)
    Delta(target.delta.url).table("numbers", columns={"n": "long", "note": "string"}).make(first=False)
    attempt(sink, 1, 1, 2)
    assert values(str(directory(target)), "note") == [None, None]
    other = transactions_of(Delta(target.delta.url).table("numbers", columns={"n": "long", "x": "long"}), TASK)
    with pytest.raises(RecoveryError, match="lacks columns: 'x'"):
        other.ask()
