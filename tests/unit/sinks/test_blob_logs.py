"""E3: the log of commits in a store of files, which decides between writers and is what readers read."""

from __future__ import annotations

import json
import os
import secrets
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import CodecError, ConfigError, RetriableError
from cues_kafka.cli.main import app
from cues_kafka.sinks.blobs import entries
from cues_kafka.sinks.blobs.entries import (
    ATTEMPT,
    CLAIM,
    CommitLog,
    FileEntry,
    LogEntry,
    Sweep,
    decode_entry,
    encode_entry,
)
from cues_kafka.sinks.blobs.marker import make_store
from cues_kafka.sinks.blobs.reading import files, read_files
from cues_kafka.sinks.blobs.store import ASIDE, BlobStore, FsspecStore, LocalStore, open_store

NAME = "shop.archive/3"


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each kind."""
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{secrets.token_hex(8)}"


@pytest.fixture
def store(url: str) -> BlobStore:
    """An empty store."""
    made = open_store(url)
    make_store(made)
    return made


MALFORMED = [f'{{"version": 1, "log": "{NAME}", {rest}}}'.encode() for rest in ('"kind": "claim"', '"more": 1')]


def entry(step: int, owner: int = 1, **more: object) -> LogEntry:
    """An attempt of one step."""
    return replace(LogEntry(ATTEMPT, step - 1, step, owner, attempt='{"version": 1}'), **more)  # type: ignore[arg-type]


def file(path: str, table: str = "flights") -> FileEntry:
    """A file of a table."""
    return FileEntry(path, table, rows=2, bytes=10, topic="flights", partition=3, first=0, last=1)


def filled(store: BlobStore, count: int) -> CommitLog:
    """A log of claims and attempts, each with a file."""
    log = CommitLog(store, NAME)
    for number in range(count):
        assert log.append(number, entry(number + 1, files=(file(f"shop.archive/3/{number}.parquet"),)))
    return log


def test_store_creates_an_object_once(store: BlobStore) -> None:
    """Who comes second changes nothing."""
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    store.put("a/b", b"third")
    assert store.read("a/b") == b"third"
    assert store.names("a") == ["b"]
    assert store.below("a") == ["a/b"]
    store.delete("a/b")
    store.delete("a/b")
    assert store.read("a/b") is None
    assert store.names("a") == store.below("a") == []


def test_many_threads_create_one_object(store: BlobStore) -> None:
    """One of them has put it."""
    won: list[int] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if store.create("one", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert [store.read("one")] == [b"%d" % number for number in won]


def test_store_takes_a_file_of_this_machine(store: BlobStore, tmp_path: Path) -> None:
    """It is copied, and stays."""
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    store.put("copied", tmp_path / "large")
    assert store.read("copied") == b"x" * 3_000_000


def test_unfinished_file_of_a_dead_process_is_in_no_list(tmp_path: Path) -> None:
    """It is removed an hour later, or together with its directory."""
    store = LocalStore(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"{ASIDE}1").write_bytes(b"half")
    assert store.names("a") == []
    assert store.below("a") == [f"a/{ASIDE}1"]
    store.tidy("a")
    assert store.below("a") != []
    os.utime(tmp_path / "a" / f"{ASIDE}1", (0, 0))
    store.tidy("a")
    assert store.below("a") == []


def test_entry_is_read_as_it_was_written() -> None:
    """With all that it can say."""
    full = entry(
        *(7, 3), directory="d", files=(file("a"), FileEntry("b", bytes=3)), outbox="o", sweeps=(Sweep("s", "k", 1.5),)
    )
    for one in (full, LogEntry(CLAIM, 0, 0, 1)):
        assert decode_entry(encode_entry(one, NAME), NAME) == one
    for bad in (b"", b"[]", *MALFORMED):
        with pytest.raises(CodecError, match="no entry"):
            decode_entry(bad, NAME)
    with pytest.raises(CodecError, match="version 2"):
        decode_entry(b'{"version": 2}', NAME)


@pytest.mark.parametrize("other", ["shop.archive/4", "shop.other/3", "other.archive/3"])
@pytest.mark.parametrize("count", [3, 7])
def test_log_that_was_copied_from_another_task_is_refused_by_name(
    store: BlobStore, other: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries would be taken for commits of this one: by the task, and by readers, who would get rows twice."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    log = filled(store, count)
    if count > 4:
        log.tend(count - 1)
        for number in range(4):
            store.delete(log.place(number))
    copy = CommitLog(store, other)
    for name in store.below(log.directory):
        if (data := store.read(name)) is not None:
            store.put(name.replace(log.directory, copy.directory), data)
    says = rf"log of commits of {other} has an entry of {NAME}: it was copied.*Put back what was there"
    with pytest.raises(CodecError, match=says):
        copy.newest()
    with pytest.raises(CodecError, match=says):
        copy.after(0)
    with pytest.raises(CodecError, match=says):
        list(read_files(store))
    assert len(log.after(0)) == count


def test_one_of_two_writers_appends(store: BlobStore) -> None:
    """The other one is told; whose own entry it meets has won."""
    log = CommitLog(store, NAME)
    mine, theirs = entry(1, 1), entry(1, 2)
    assert log.newest() is None
    assert log.append(0, mine)
    assert not log.append(0, theirs)
    assert log.append(0, mine)  # a library that asks again meets what it has put
    assert log.newest() == (0, mine)


@pytest.mark.parametrize("hint", [None, b"?", b'{"newest": 3}', b'{"newest": 99, "cleaned": 7}'])
def test_newest_entry_is_found_whatever_the_hint_says(store: BlobStore, hint: bytes | None) -> None:
    """A frozen process may put an old one."""
    log = filled(store, 40)
    if hint:
        store.put(f"{log.directory}/hint.json", hint)
    found = log.newest()
    assert found is not None
    assert (found[0], found[1].step) == (39, 40)


def test_folded_log_reads_as_before(store: BlobStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether single entries are still there, are being deleted, or are gone."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    log = filled(store, 10)
    expected = [one.url for one in files(url, "flights")]
    assert len(expected) == 10
    log.tend(9)
    assert log.segment(1) is not None
    assert log.segment(2) is None
    assert [one.url for one in files(url, "flights")] == expected
    assert store.exists(log.place(0))  # it is not an hour old
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log.tend(9)
    assert not store.exists(log.place(7))
    assert log.hint() == {"newest": 9, "cleaned": 2}
    assert [one.url for one in files(url, "flights")] == expected
    for text in (None, b'{"newest": 2}', b'{"newest": 8}'):
        store.delete(f"{log.directory}/hint.json")
        if text:
            store.put(f"{log.directory}/hint.json", text)
        found = log.newest()
        assert found is not None
        assert found[0] == 9


@pytest.mark.parametrize("number", [0, 2, 4])
def test_frozen_writer_is_refused_where_the_log_is_folded(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The number was taken, although the single entry is deleted; and who has put that entry is told so."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 10)
    first = log.entry(number)
    assert first is not None
    log.tend(9)
    assert not store.exists(log.place(number))
    assert not log.append(number, entry(number + 1, files=(file("late"),)))
    assert not store.exists(log.place(number))
    assert log.append(number, first)
    assert log.append(10, entry(11))


def test_newest_entry_is_found_where_all_are_folded(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late put of a process that slept for over an hour may stand in a gap; it is below the newest one."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 9)
    log.tend(8)
    store.delete(f"{log.directory}/hint.json")
    store.create(log.place(2), encode_entry(entry(3, 1, files=(file("late"),)), NAME))
    found = log.newest()
    assert found is not None
    assert found[0] == 8
    assert "late" not in [one.path for each in log.after(0) for one in each.files]
    store.delete(log.place(8))
    found = log.newest()
    assert found is not None
    assert (found[0], found[1].held.attempt) == (7, '{"version": 1}')  # the last one of a segment is whole


def test_reader_reads_while_the_log_is_folded(store: BlobStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are deleted behind its back are in a segment by then."""
    monkeypatch.setattr(entries, "FOLDED", 4)
    monkeypatch.setattr(entries, "KEPT_S", -1.0)
    log = filled(store, 6)
    reading = CommitLog(store, NAME)
    usual: Callable[[int], LogEntry | None] = reading.entry

    def folding(number: int) -> LogEntry | None:
        if number == 2:
            log.tend(5)
        return usual(number)

    monkeypatch.setattr(reading, "entry", folding)
    assert [one.step for one in reading.after(0)] == [1, 2, 3, 4, 5, 6]
    assert [one.step for one in reading.after(5)] == [6]
    assert len(list(files(url))) == 6


def test_files_are_those_of_the_table(store: BlobStore, url: str) -> None:
    """What functions have put has no table."""
    log = filled(store, 1)
    log.append(1, entry(2, files=(FileEntry("shop.archive/3/x.pdf", bytes=4),)))
    [found] = files(url, "flights")
    assert (found.url, found.rows, found.first, found.step) == (f"{store.url('')}shop.archive/3/0.parquet", 2, 0, 1)
    [put] = files(url, "")
    assert (put.bytes, put.rows, put.step) == (4, None, 2)
    assert len(list(files(url))) == 2


def test_command_prints_what_is_committed(tmp_path: Path) -> None:
    """Addresses, or everything as JSON."""
    url = f"file://{tmp_path}"
    make_store(open_store(url))
    filled(open_store(url), 2)
    run = CliRunner().invoke
    assert run(app, ["files", url, "flights"]).stdout.splitlines() == [one.url for one in files(url)]
    found = json.loads(run(app, ["files", url, "--json"]).stdout.splitlines()[1])
    assert (found["rows"], found["step"], found["table"]) == (2, 2, "flights")
    assert run(app, ["files", "ftp://x"]).exit_code != 0


def test_store_that_fails_says_what_and_hides_the_options() -> None:
    """A password in a text of a library is not repeated."""
    store = FsspecStore("memory://x", {})
    store._secrets = ["hunter22"]

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no login for hunter22")

    store._files = type("F", (), {"cat_file": refuse, "_strip_protocol": lambda *_: ""})()
    with pytest.raises(RetriableError, match=r"does not read a/b: RuntimeError: no login for \*\*\*$") as raised:
        store.read("a/b")
    assert "hunter22" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(ConfigError, match="nonsense"):
        open_store("nonsense://x")


def test_options_that_a_library_refuses_are_told_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the text, and in the traceback of a program that does not catch it."""

    def refuse(_: str, **given: str) -> None:
        raise ValueError(f"Invalid endpoint: {given['endpoint_url']}")

    options = {"endpoint_url": "http://me:hunter22@internal"}
    monkeypatch.setattr("fsspec.filesystem", refuse)
    with pytest.raises(ConfigError, match=r"Invalid endpoint: \*\*\*\. Correct the address or options=") as raised:
        FsspecStore("memory://x", options)
    assert "hunter22" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("size", ["x", -5, "9" * 5_000, float("inf"), [1], object()])
def test_answer_with_a_size_that_is_none_is_an_outage(size: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes come from headers of the store's answers."""
    store = FsspecStore("memory://odd-sizes", {})
    monkeypatch.setattr(store._files, "info", lambda *_, **__: {"size": size})
    monkeypatch.setattr(store._files, "find", lambda *_, **__: {"/odd-sizes/a": {"size": size}})
    with pytest.raises(RetriableError):
        store.size("a")
    with pytest.raises(RetriableError):
        store.sizes("a")
