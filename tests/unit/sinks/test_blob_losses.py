"""E3: what is lost in a store of files, a whole directory or one entry, is told to the task and to readers."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import Blobs, CommitPolicy, ConfigError, Graph, RecoveryError, RetriableError, Sink, Source, files
from cues_kafka.cli.main import app
from cues_kafka.errors import TaskStopped
from cues_kafka.graph.targets import TaskName
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.blobs import checks, entries
from cues_kafka.sinks.blobs.batches import BatchFiles, BatchLog
from cues_kafka.sinks.blobs.entries import CommitLog, FileEntry, LogEntry, LogGap
from cues_kafka.sinks.blobs.marker import MARKER, KnownStore, make_store, store_id
from cues_kafka.sinks.blobs.store import BlobStore, LocalStore, ObjectGone, open_store
from cues_kafka.sinks.blobs.target import BlobTarget
from cues_kafka.sinks.standing import StandsAt
from cues_kafka.task.making.prepare import make_stores, plan_start
from cues_kafka.testing.tester import Tester
from tests.unit.samples import backup_of

run = CliRunner().invoke


class Lake:
    """A graph that writes each message into a file of its own, and its directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.url, self.sent = root, f"file://{root}", 0
        sink = Sink("raw", inputs="orders", into=Blobs(self.url).json_lines("raw"), start="earliest")
        self.graph = Graph("lake", Source("orders"), sink, errors="errors")
        self.tester = Tester(self.graph, policy=CommitPolicy(max_messages=1))

    def send(self, messages: int = 1) -> None:
        """Send messages without running."""
        for _ in range(messages):
            self.tester.send("orders", {"id": self.sent}, key="a")
            self.sent += 1

    @property
    def rows(self) -> int:
        """How many rows readers see."""
        return sum(one.rows or 0 for one in files(self.url, "raw"))

    def entry(self, number: int) -> Path:
        """The file of an entry."""
        return self.root / CommitLog(LocalStore(self.root), "lake.raw/0").place(number)

    def go_on(self) -> None:
        """A stopped task is started again."""
        self.tester.restart().run()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with four rows: entry 0 is a claim."""
    made = Lake(tmp_path / "lake")
    made.send(4)
    made.tester.run()
    assert made.rows == 4
    return made


@pytest.mark.parametrize("left", ["nothing", "empty"])
def test_directory_that_goes_away_is_an_outage_and_is_not_made_again(lake: Lake, left: str) -> None:
    """A mount that is gone leaves its mount point. No row is lost once the directory is back."""
    away = lake.root.with_name("away")
    lake.root.rename(away)
    if left != "nothing":
        lake.root.mkdir()
    lake.send(2)
    with pytest.raises(TaskStopped, match=r"_cues/store\.json is missing\. Remedy: mount the directory"):
        lake.tester.run()
    assert lake.tester.errors() == []
    assert [one for one in lake.root.rglob("*") if one.is_file()] == []
    with pytest.raises(ConfigError, match="there is no store of files at"):
        list(files(lake.url))

    shutil.rmtree(lake.root, ignore_errors=True)
    away.rename(lake.root)
    lake.go_on()
    assert lake.rows == 6


def test_start_does_not_make_a_store_that_its_processors_had(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `plan --apply` does, and then the task refuses: it has steps, and the store has none."""
    monkeypatch.setattr(checks, "asking", lambda *_: lambda ask, *given: ask(*given))  # once
    shutil.rmtree(lake.root)
    broker = lake.tester.broker
    lake.tester.stop()
    with pytest.raises(RetriableError, match=r"there is no store at its address") as caught:
        Tester(lake.graph, broker=broker)
    assert "cues-kafka plan MODULE:GRAPH --apply" in caught.value.remedy
    [warning] = [one for one in plan_start(lake.graph, broker, Terms()).warnings if "store" in one]
    assert "its processors have begun" in warning
    assert not lake.root.exists()

    make_stores(lake.graph, None, created=None)
    with pytest.raises(TaskStopped, match="has no row of it, although it has taken 4 steps"):
        Tester(lake.graph, broker=broker).run()


def test_first_plan_says_that_the_store_will_be_made(tmp_path: Path) -> None:
    """And makes nothing."""
    graph = Lake(tmp_path / "other").graph
    broker = Tester(Graph("none", Source("a"))).broker
    shutil.rmtree(tmp_path / "other")
    [change] = plan_start(graph, broker, Terms()).changes
    assert "the first start make it" in change
    assert not (tmp_path / "other").exists()


def test_plan_warns_of_a_store_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a database: a start asks again."""

    def silent(_: BlobStore) -> bool:
        raise RetriableError("the store does not read a: no route", code="TARGET")

    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr(checks, "is_store", silent)
    assert any(
        "into" in one and "no route" in one for one in plan_start(lake.graph, lake.tester.broker, Terms()).warnings
    )


def test_another_store_in_the_place_is_an_outage_until_a_restart(lake: Lake) -> None:
    """The worker remembers the id, also between commits, and says what it found."""
    store = LocalStore(lake.root)
    known = KnownStore()
    known.check(store)
    mine = store_id(store)
    (lake.root / MARKER).unlink()
    with pytest.raises(RetriableError, match="there is no store"):
        known.glance(store)
    make_store(store)
    with pytest.raises(RetriableError, match=f"had {mine}"):
        known.glance(store)
    lake.send()
    with pytest.raises(TaskStopped, match=r"another store is at its address.*restart the worker"):
        lake.tester.run()
    lake.go_on()
    assert lake.rows == 5


def test_store_of_an_older_release_gets_its_marker(lake: Lake) -> None:
    """It has logs, so it is no empty directory."""
    (lake.root / MARKER).unlink()
    lake.send()
    broker = lake.tester.broker
    lake.tester.stop()
    Tester(lake.graph, broker=broker).run()
    assert store_id(LocalStore(lake.root))
    assert lake.rows == 5


@pytest.mark.parametrize("lost", [0, 2])
def test_lost_entry_is_told_to_readers_and_to_the_task(lake: Lake, lost: int) -> None:
    """By its address, and with what to do; once it is back all goes on."""
    kept = lake.entry(lost).read_bytes()
    lake.entry(lost).unlink()
    with pytest.raises(RecoveryError, match=rf"{lost:020d}\.json was lost\. Remedy: put it back") as caught:
        list(files(lake.url))
    assert "cues-kafka reset MODULE:GRAPH raw --to database" in str(caught.value)
    ended = run(app, ["files", lake.url])
    assert (ended.exit_code, f"entry {lost} of the log" in ended.stderr) == (1, True)

    lake.send()
    with pytest.raises(TaskStopped, match=rf"entry {lost} of the log .* lake\.raw/0 is missing.*put it back"):
        lake.go_on()
    lake.entry(lost).write_bytes(kept)
    lake.go_on()
    assert lake.rows == 5


def test_lost_newest_entry_stops_the_running_task(lake: Lake) -> None:
    """The next commit asks for the entry before it."""
    lake.entry(4).unlink()
    lake.send()
    with pytest.raises(TaskStopped, match="restored from a backup, or lost commits"):
        lake.tester.run()


@pytest.mark.parametrize(("lost", "to"), [(2, "database"), (0, "here"), (5, "database")])
def test_operator_gives_up_what_is_behind_a_gap(lake: Lake, lost: int, to: str) -> None:
    """It is delivered again into new files; what is read is each row once, also if the entry comes back later."""
    lake.go_on()
    lake.send()
    lake.tester.run()  # entries: claim, 4 rows, claim, row
    kept = lake.entry(lost).read_bytes()
    lake.entry(lost).unlink()
    lake.tester.stop()
    moves = Maintenance(lake.graph, lake.tester.broker, "raw", who="test")
    moves.carry_out(reset(moves, to=to))
    if to == "here":
        assert lake.rows == 0  # its rows are given up
        moves.carry_out(reset(moves, to="earliest"))
    lake.send(2)
    lake.tester.restart().run()
    assert lake.rows == 7
    lake.entry(lost).write_bytes(kept)
    assert lake.rows == 7
    assert len({one.url for one in files(lake.url)}) == 7


@pytest.mark.parametrize("starts", [1, 6, 40])
def test_reset_behind_lost_records_of_kafka_keeps_all_files(tmp_path: Path, starts: int) -> None:
    """Kafka's steps begin again where the store has files already; no sweep takes these, and the task goes on."""
    lake = Lake(tmp_path)
    lake.send(3)
    lake.tester.run()
    lake.tester.stop()
    restore = backup_of(lake.tester.broker, "lake.raw.backing", "lake.raw")
    for _ in range(starts):
        lake.send(2)
        lake.tester.restart().run()
        lake.tester.stop()
    restore()

    moves = Maintenance(lake.graph, lake.tester.broker, "raw", who="test")
    moves.carry_out(reset(moves, to="database"))
    for _ in range(4):
        lake.send()
        lake.tester.restart().run()
        lake.tester.stop()
    assert lake.rows == lake.sent
    assert lake.tester.errors() == []
    assert all(Path(one.url.removeprefix("file://")).exists() for one in files(lake.url))


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """An empty store of each kind."""
    made = open_store(f"file://{tmp_path}/s" if request.param == "file" else f"memory://{secrets.token_hex(8)}")
    make_store(made)
    return made


def filled(store: BlobStore, count: int) -> CommitLog:
    """A log of attempts."""
    log = CommitLog(store, "g.p/0")
    for number in range(count):
        assert log.append(number, LogEntry("attempt", number, number + 1, 1, files=(FileEntry(f"{number}"),)))
    return log


def test_entry_is_put_only_behind_the_one_before_it(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, or in its segment."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 5)
    log.tend(4)
    store.delete(log.place(4))
    with pytest.raises(ObjectGone, match="no longer exists"):
        log.append(5, LogEntry("attempt", 5, 6, 1))
    assert log.entry(5) is None
    assert log.append(4, LogEntry("attempt", 4, 5, 1))


@pytest.mark.parametrize("lost", [1, 5, 6])
def test_gap_is_seen_among_folded_and_single_entries(
    store: BlobStore, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was folded and deleted is no gap; a lost segment is one."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 8)
    log.tend(7)
    assert len(log.after(0)) == 8
    log.append(8, LogEntry("attempt", 8, 9, 1))
    store.delete(log.segment_place(0) if lost < 4 else log.place(lost))
    for ask in (log.newest, lambda: log.after(0)):
        with pytest.raises(LogGap) as caught:
            ask()
        assert caught.value.number == (0 if lost < 4 else lost)
    found = log.standing()
    assert found.top is not None
    assert found.top[0] == 8
    assert (found.newest[0] if found.newest else -1) == (-1 if lost < 4 else lost - 1)


def test_void_entries_are_folded_as_such(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of a gap that an operator has given up becomes a segment like others."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 4)
    store.delete(log.place(1))
    for number in range(4, 10):
        log.append(number, LogEntry("attempt", number, number + 1, 1, voids=((1, 3),)))
    log.tend(9)
    assert not store.exists(log.place(7))
    assert [one.step for one in log.after(0)] == [1, 5, 6, 7, 8, 9, 10]
    found = log.newest()
    assert found is not None
    assert found[0] == 9


def test_driver_refuses_a_gap_and_goes_on_behind_a_reset(store: BlobStore) -> None:
    """Rows behind the gap do not count then; they come again."""
    log = BatchLog(store, "g.p")
    for number in (2, 4, 6):
        log.commit(BatchFiles(number, f"a{number}", f"d{number}", (FileEntry(f"d{number}/x", "t"),)))
    plain = CommitLog(store, "g.p/0")
    store.delete(plain.place(1))
    with pytest.raises(RecoveryError, match=r"entry 1 of the log .* begins again, after which rows repeat"):
        BatchLog(store, "g.p").compare(lambda: StandsAt(6, published=True, reset=False))
    again = BatchLog(store, "g.p")
    again.compare(lambda: StandsAt(7, published=True, reset=True))
    again.commit(BatchFiles(8, "a8", "d8", (FileEntry("d8/x", "t"),)))
    assert [one.step for one in plain.after(0)] == [2, 7, 8]


def test_frozen_writer_commits_nothing_behind_an_operator(tmp_path: Path) -> None:
    """The entry that gives up a gap stands behind the newest one, which is where the writer goes on."""
    store = LocalStore(tmp_path)
    make_store(store)

    def opened() -> BlobTarget:
        return BlobTarget(lambda: store, TaskName("g", "p", 0), {"blobs": Blobs(f"file://{tmp_path}")})

    frozen = opened()
    frozen.ask(1, 0)
    for step in (1, 2, 3):
        frozen.begin_batch(1, step - 1)
        if step < 3:
            frozen.commit(HeldAttempt(step - 1, step, 1, ""), [])
    store.delete(CommitLog(store, "g.p/0").place(1))
    tool = opened()
    assert tool.newest() == HeldAttempt(0, 0, 1, "")
    assert tool.settle(HeldAttempt(0, 0, 2, ""), tool.newest())
    with pytest.raises(RetriableError, match="no longer the owner"):
        frozen.commit(HeldAttempt(2, 3, 1, ""), [])
    assert opened().ask(3, 0) == HeldAttempt(0, 0, 2, "")


def test_second_test_on_one_store_is_told_what_it_needs(lake: Lake) -> None:
    """A new Tester has no record of what the store holds."""
    with pytest.raises(TaskStopped, match="a test whose Tester begins with an empty Kafka, give each of them a graph"):
        Tester(lake.graph).run()


def test_store_that_is_half_made_is_made_by_the_next_start(tmp_path: Path) -> None:
    """A start that dies behind the directory or the marker has created no topic, so the next one is the first."""
    (tmp_path / "lake").mkdir()
    store = LocalStore(tmp_path / "lake")
    Lake(tmp_path / "lake")
    made = store_id(store)
    assert made
    Lake(tmp_path / "lake")
    assert store_id(store) == made


def test_marker_is_looked_at_before_a_batch_and_before_its_commit(tmp_path: Path) -> None:
    """So nothing is put into a mount point, and what was put there meanwhile does not count."""
    root = tmp_path / "s"
    make_store(LocalStore(root))
    target = BlobTarget(lambda: LocalStore(root), TaskName("g", "p", 0), {"blobs": Blobs(f"file://{root}")})
    target.ask(1, 0)
    target.begin_batch(1, 0)
    root.rename(tmp_path / "away")
    root.mkdir()
    with pytest.raises(RetriableError, match=r"store\.json is missing"):
        target.commit(HeldAttempt(0, 1, 1, ""), [])
    target.close()
    root.rmdir()
    (tmp_path / "away").rename(root)
    again = BlobTarget(lambda: LocalStore(root), TaskName("g", "p", 0), {"blobs": Blobs(f"file://{root}")})
    again.ask(2, 0)
    root.rename(tmp_path / "away")
    with pytest.raises(RetriableError, match=r"store\.json is missing"):
        again.begin_batch(2, 0)


def test_target_without_its_store_writes_nothing(tmp_path: Path) -> None:
    """Also where the mount went away between two batches, and came back as another one."""
    store = LocalStore(tmp_path / "s")
    with pytest.raises(RetriableError, match="the directory of the store is not there"):
        store.put("a/b", b"1")
    assert not (tmp_path / "s").exists()


def test_table_that_is_not_there_is_told_from_an_empty_one(tmp_path: Path) -> None:
    """A start writes down which tables there are; the command exits with 2."""
    lake = Lake(tmp_path / "lake")
    assert list(files(lake.url, "raw")) == []
    assert run(app, ["files", lake.url, "raw"]).exit_code == 0
    with pytest.raises(ConfigError, match=r"no table 'rwa' \(did you mean 'raw'\?\)\. Its tables: 'raw'"):
        list(files(lake.url, "rwa"))
    for arguments, why in (([lake.url, "rwa"], "no table"), ([f"file://{tmp_path}/none"], "there is no store")):
        ended = run(app, ["files", *arguments])
        assert (ended.exit_code, why in ended.stderr) == (2, True)


def test_check_names_committed_files_that_are_missing(lake: Lake) -> None:
    """And exits with 1."""
    ended = run(app, ["files", lake.url, "--check"])
    assert (ended.exit_code, ended.stdout) == (0, "")
    lost = next(files(lake.url)).url
    Path(lost.removeprefix("file://")).unlink()
    ended = run(app, ["files", lake.url, "raw", "--check"])
    assert (ended.exit_code, ended.stdout.split()) == (1, [lost])
    assert "1 committed file missing or cut" in ended.stderr


def test_check_names_committed_files_that_are_cut(lake: Lake) -> None:
    """As a full disk or a broken copy leaves them."""
    cut = next(files(lake.url)).url
    Path(cut.removeprefix("file://")).write_bytes(b"")
    ended = run(app, ["files", lake.url, "--check"])
    assert (ended.exit_code, ended.stdout.split()) == (1, [cut])


def test_store_tells_the_sizes_of_its_objects(store: BlobStore) -> None:
    """In directories and in buckets."""
    store.put("a/b", b"12345")
    store.put("a/c/d", b"")
    assert [store.size(path) for path in ("a/b", "a/c/d", "a/e")] == [5, 0, None]
    assert store.sizes("a") == {"a/b": 5, "a/c/d": 0}
    assert store.sizes("x") == {}


def test_batch_lacks_files_that_are_cut(store: BlobStore) -> None:
    """So a driver announces and commits none of them."""
    store.put("t/q/0/a/one", b"12345")
    store.put("t/q/0/a/two", b"123")
    named = tuple(FileEntry(f"t/q/0/a/{name}", "t", 1, 5) for name in ("one", "two"))
    assert BatchLog(store, "g.p").missing(BatchFiles(0, "a", "t/q/0/a", named)) == ["t/q/0/a/two"]


def test_settled_attempt_of_an_empty_log_stays_at_its_place(store: BlobStore) -> None:
    """A field that a former release did not write is absent in what it wrote."""
    log = filled(store, 1)
    assert b"voids" not in (store.read(log.place(0)) or b"")
    assert log.after(0)[0].held == HeldAttempt(0, 1, 1, "")
