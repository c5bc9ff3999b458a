"""Entries in a file: the same as in memory, one process at a time, and wiped when they cannot be trusted (R4b)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import time as now
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cues_kafka.errors import ConfigError, Fenced, RetriableError, StoreBroken
from cues_kafka.state import directory, on_disk
from cues_kafka.state.entries import NOWHERE, EntriesPlace, InMemory
from cues_kafka.state.filed import RAW_BYTES
from cues_kafka.state.on_disk import OnDisk

PLACE = EntriesPlace(b"\x01\x02", 17, 4, 5, 1_700_000_000_000)
LONG = b"l" * RAW_BYTES
KEYS = st.builds(
    bytes.__add__,
    st.sampled_from([b"", b"a", LONG[:-1], LONG, LONG[:-1] + b"m"]),
    st.binary(max_size=2) | st.sampled_from([LONG, LONG + b"z"]),
)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=6)


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    """A directory; what a test leaves open is closed."""
    yield tmp_path / "0"
    with directory._holding:
        directory._held.clear()


def opened(where: Path) -> tuple[OnDisk, EntriesPlace | None]:
    """Entries there, and where they stand."""
    entries = OnDisk(where, 2**20)
    return entries, entries.open()


def written(where: Path, *, orderly: bool = True) -> None:
    """Leave an entry there."""
    entries, _ = opened(where)
    entries.apply([(b"k", b"v")], PLACE)
    entries.close(orderly=orderly)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=st.lists(CHANGES, max_size=4), prefix=KEYS)
def test_entries_are_those_in_memory_in_the_same_order(
    tmp_path: Path, batches: list[list[tuple[bytes, bytes | None]]], prefix: bytes
) -> None:
    """Also an empty key, and keys that are longer than the file takes."""
    entries, _ = opened(tmp_path / str(len([*tmp_path.iterdir()])))
    expected = InMemory()
    for number, changes in enumerate(batches):
        for key, _ in changes[::2]:
            assert entries.get(key) == expected.get(key)  # what was read is kept, and must not become old
        entries.apply(changes, PLACE._replace(offset=number))
        expected.apply(changes, None)
        for key, _ in changes:
            assert entries.get(key) == expected.get(key)
    assert [*entries.scan(prefix)] == [*expected.scan(prefix)]
    assert [*entries.scan(b"")] == [*expected.scan(b"")]
    count_of = len([*entries.scan(b"")])
    assert entries.size - count_of * OnDisk.each == expected.size - count_of * InMemory.each
    entries.close()


@pytest.mark.parametrize("orderly", [True, False])
def test_entries_and_their_place_outlive_the_process(where: Path, orderly: bool) -> None:
    """Also one that is killed."""
    written(where, orderly=orderly)
    entries, place = opened(where)
    assert (place, entries.get(b"k"), entries.size) == (PLACE, b"v", 82)
    assert entries.open() is None
    entries.close()


def test_a_process_that_is_killed_leaves_no_half_of_a_batch_and_no_lock(where: Path) -> None:
    """Nothing unwinds in it, and nothing is forced to the disk."""
    program = f"""
import os, pathlib, signal
from tests.unit.state.test_on_disk import *
entries, _ = opened(pathlib.Path({str(where)!r}))
for number in range(3):
    entries.apply([(b"k", b"%d" % number), (b"n%d" % number, b"")], PLACE._replace(offset=number))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL
    entries, place = opened(where)
    assert place == PLACE._replace(offset=2)
    assert [*entries.scan(b"")] == [(b"k", b"2"), (b"n0", b""), (b"n1", b""), (b"n2", b"")]
    entries.close()


def test_two_never_share_a_file(where: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second one takes another path, and says so; when both have left, the first path is there with its entries."""
    written(where)
    first, _ = opened(where)
    second, place = opened(where)
    assert place == NOWHERE
    assert f"in use directory={where} instead={where}-2" in caplog.text.replace('"', "").replace("'", "")
    second.apply([(b"k", b"other")], PLACE)
    assert first.get(b"k") == b"v"
    second.close()
    first.close()
    assert [one.name for one in where.parent.iterdir()] == ["0"]
    entries, place = opened(where)
    assert (place, entries.get(b"k")) == (PLACE, b"v")
    entries.close()


def test_the_lock_is_that_of_the_process(where: Path) -> None:
    """Another process takes another path; when the first one is killed, its path is free at once."""
    written(where)
    program = f"""
import pathlib, time
from tests.unit.state.test_on_disk import *
entries, place = opened(pathlib.Path({str(where)!r}))
print(place == PLACE, flush=True)
time.sleep(60)
"""
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        entries, place = opened(where)
        assert place == NOWHERE
        entries.close()
        other.kill()
        other.wait()
    entries, place = opened(where)
    assert place == PLACE
    entries.close()


def damage(where: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the file what it must not be."""
    data, marker = where / "entries", where / "state.json"
    if how == "garbage":
        data.write_bytes(os.urandom(data.stat().st_size))
    elif how == "short":
        os.truncate(data, data.stat().st_size // 2)
    elif how == "empty":
        data.write_bytes(b"")
    elif how == "no marker":
        marker.unlink()
    elif how == "bad marker":
        marker.write_text("[")
    elif how == "another machine run":
        marker.write_text(json.dumps({"boot": "another", "deaths": 0, "size": None}))
    elif how == "machine run not known":
        marker.write_text(json.dumps({"boot": "", "deaths": 0, "size": None}))
        monkeypatch.setattr(directory, "BOOT", Path("/none"))


@pytest.mark.parametrize(
    "how", ["garbage", "short", "empty", "no marker", "bad marker", "another machine run", "machine run not known"]
)
def test_a_file_that_cannot_be_trusted_is_wiped_with_a_reason(
    where: Path, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The changelog has everything, so that is no error; the next start finds a good file."""
    written(where)
    damage(where, how, monkeypatch)
    entries, place = opened(where)
    assert (place, entries.get(b"k"), entries.size) == (NOWHERE, None, 0)
    assert caplog.text.count("wiped") == 1
    entries.apply([(b"k", b"v")], PLACE)
    entries.close()
    caplog.clear()
    entries, place = opened(where)
    assert place == PLACE
    assert "wiped" not in caplog.text
    entries.close()


def flip(where: Path, found: bytes) -> None:
    """Flip a bit of these bytes, wherever they stand in the file."""
    data = where / "entries"
    before = data.read_bytes()
    assert found in before
    data.write_bytes(before.replace(found, bytes([found[0] ^ 4]) + found[1:]))


@pytest.mark.parametrize("flipped", [b"the key", b"the value", b"topic_id", LONG + b" key", b"a long value"])
@pytest.mark.parametrize("orderly", [True, False])
def test_a_flipped_bit_is_noticed_when_the_file_is_opened(
    where: Path, flipped: bytes, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In a key, too, which would be missing where it is looked for; in long entries and in the place."""
    entries, _ = opened(where)
    entries.apply([(b"the key", b"the value"), (LONG + b" key", b"a long value")], PLACE)
    entries.close(orderly=orderly)
    flip(where, flipped)
    entries, place = opened(where)
    assert (place, [*entries.scan(b"")], entries.size) == (NOWHERE, [], 0)
    assert caplog.text.count("wiped") == 1
    entries.close()


@pytest.mark.parametrize("read", ["get", "scan", "apply"])
def test_a_flipped_bit_of_a_large_file_is_noticed_when_the_entry_is_read(
    where: Path, read: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To read all of it would take too long at each start."""
    monkeypatch.setattr(on_disk, "MOST_CHECKED", 0)
    written(where)
    entries, place = opened(where)
    assert place == PLACE
    entries.apply([(b"the key", b"the value")], PLACE)
    entries.close()
    flip(where, b"the value")
    entries, place = opened(where)
    assert place == PLACE
    assert entries.get(b"k") == b"v"
    if read == "get":
        with pytest.raises(StoreBroken, match="not as it was written"):
            entries.get(b"the key")
    elif read == "scan":
        with pytest.raises(StoreBroken, match="not as it was written"):
            list(entries.scan(b"the"))
    else:
        with pytest.raises(RetriableError, match="not as it was written"):
            entries.apply([(b"the key", b"another value")], PLACE)
    assert entries.open() == NOWHERE
    assert caplog.text.count("wiped") == 1
    entries.close()


def test_an_entry_that_is_missing_is_noticed(where: Path) -> None:
    """As where a bit of the file's own structure was flipped; also in the index by time."""
    for database in (b"entries", b"times"):
        entries = OnDisk(where, 2**20, width=10)
        entries.open()
        entries.apply([(b"k", bytes(8) + b"v"), (b"l", bytes(8) + b"v")], PLACE)
        with entries._env.begin(write=True, db=entries._env.open_db(database)) as writing:
            writing.delete(next(writing.cursor().iternext(values=False)))
        entries.close()
        entries = OnDisk(where, 2**20, width=10)
        assert entries.open() == NOWHERE
        entries.close()


def test_files_of_tasks_that_are_elsewhere_are_removed_after_a_week(
    where: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not those that a process has open, nor those that were used since, nor what else is there."""
    caplog.set_level("INFO")
    others = {name: where.with_name(name) for name in ("1", "1-2", "2", "3")}
    for path in others.values():
        written(path)
    (where.parent / "notes").mkdir()
    held, _ = opened(others["3"])
    old = now() - directory.UNUSED_S - 10
    for path in (where.parent / "notes", *(one for name in ("1", "1-2", "3") for one in others[name].iterdir())):
        os.utime(path, (old, old))
    entries, _ = opened(where)
    assert sorted(one.name for one in where.parent.iterdir()) == ["0", "2", "3", "notes"]
    assert caplog.text.count("removed") == 2
    assert held.get(b"k") == b"v"
    held.close()
    entries.close()


def test_another_release_and_another_lifetime_are_wiped(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the file has another form then."""
    written(where)
    monkeypatch.setattr(on_disk, "VERSION", on_disk.VERSION + 1)
    entries, place = opened(where)
    assert place == NOWHERE
    entries.apply([(b"k", b"v")], PLACE)
    entries.close()
    timed = OnDisk(where, 2**20, width=10)
    assert timed.open() == NOWHERE
    timed.close()


@pytest.mark.parametrize("part", range(5), ids=["cluster", "graph", "processor", "store", "partition"])
def test_a_file_of_another_task_is_wiped_with_one_line(
    part: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was copied there. Its place in the changelog would be believed, and its entries are others."""
    names = ["cluster", "graph", "processor", "store", "0"]
    mine, other = tmp_path.joinpath(*names), tmp_path.joinpath(*names[:part], "another", *names[part + 1 :])
    written(other)
    shutil.copytree(other, mine)
    copy, place = opened(mine)

    assert (place, copy.get(b"k"), copy.size) == (EntriesPlace(), None, 0)
    copy.close()
    [line] = [one.getMessage() for one in caplog.records if "wiped" in one.getMessage()]
    assert "it is a copy of the file of" in line
    assert "another" in line


def test_processes_that_die_again_and_again_begin_without_the_file(where: Path) -> None:
    """It may be what kills them. One that has committed something ends the row."""
    written(where)
    for deaths in range(1, 3):
        entries, place = opened(where)
        assert place == PLACE, deaths
        entries.close(orderly=False)
    entries, _ = opened(where)
    entries.apply([(b"k", b"w")], PLACE)
    entries.close(orderly=False)
    for _ in range(3):
        entries, place = opened(where)
        assert place == PLACE
        entries.close(orderly=False)
    entries, place = opened(where)
    assert place == NOWHERE
    entries.close()


def test_a_full_disk_is_an_error_and_takes_nothing(where: Path) -> None:
    """The error names the directory and the setting; with room again, everything goes on."""
    program = f"""
import pathlib, resource, signal
from tests.unit.state.test_on_disk import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
entries, _ = opened(pathlib.Path({str(where)!r}))
entries.apply([(b"k", b"v")], PLACE)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, hard))
large = [(b"%d" % number, bytes(1000)) for number in range(1000)]
try:
    entries.apply(large, PLACE._replace(offset=99))
except RetriableError as error:
    assert "state_dir" in str(error) and {str(where)!r} in str(error), error
else:
    raise AssertionError("no error")
assert [*entries.scan(b"")] == [(b"k", b"v")] and entries.get(b"1") is None
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
entries.apply(large, PLACE._replace(offset=99))
assert len([*entries.scan(b"")]) == 1001
entries.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3], timeout=60)
    entries, place = opened(where)
    assert place == PLACE._replace(offset=99)
    entries.close()


def test_a_directory_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    """It may be a volume that is not mounted yet."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RetriableError, match="set state_dir to another disk"):
        OnDisk(tmp_path / "file" / "0", 2**20).open()


def test_a_scan_sees_one_moment_and_ends_with_the_file(where: Path) -> None:
    """A commit of another thread may come between two entries; the task may be taken away."""
    entries, _ = opened(where)
    entries.apply([(b"%05d" % number, b"old") for number in range(2000)], PLACE)
    scan = entries.scan(b"")
    next(scan)
    entries.apply([(b"%05d" % number, b"new") for number in range(2000)], PLACE)
    assert {value for _, value in scan} == {b"old"}
    assert {value for _, value in entries.scan(b"")} == {b"new"}
    scan = entries.scan(b"")
    next(scan)
    entries.close()
    with pytest.raises(Fenced):
        list(scan)
    with pytest.raises(Fenced):
        entries.get(b"00001")
    with pytest.raises(RetriableError, match="closed"):
        entries.apply([(b"k", b"v")], PLACE)


def test_a_file_that_breaks_while_it_is_open_is_wiped_when_it_is_opened_again(where: Path) -> None:
    """A function's own `except Exception` does not catch the error."""

    class Broken:
        def get(self, key: bytes) -> Any:
            raise entries._lmdb.CorruptedError("page 7")

        def abort(self) -> None:
            """Nothing is open."""

    entries, _ = opened(where)
    entries.apply([(b"k", b"v")], PLACE)
    whole, entries._reader = entries._reader, Broken()
    with pytest.raises(StoreBroken, match="page 7"):
        entries.get(b"k")
    entries._reader = whole
    assert entries.open() == NOWHERE
    assert entries.get(b"k") is None
    entries.close()


def test_an_entry_is_filed_once_by_its_time(where: Path) -> None:
    """Else a key that is set again and again would fill the disk."""
    entries = OnDisk(where, 2**20, width=10)
    entries.open()

    def value(time: int) -> bytes:
        return time.to_bytes(8, "big") + b"v"

    for key in (b"k", LONG + b"k"):
        for time in (5, 9, 13, 40, 22):
            entries.apply([(key, value(time))], None)
        assert ([*entries.ended(20)], [*entries.ended(30)]) == ([], [key])
        entries.apply([(key, None)], None)
        assert [*entries.ended(100)] == []
    assert entries.size == 0
    entries.close()


TIMES = st.integers(0, 400) | st.integers(0, 9_000)  # within a quarter of the lifetime of each other, or anywhere
NEAR = st.sampled_from([b"", b"a", b"b", LONG + b"z"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.tuples(NEAR, st.none() | TIMES), max_size=6), TIMES, st.sampled_from(["", "end", "die"])),
        max_size=8,
    )
)
def test_entries_end_by_their_own_time_wherever_they_are_filed(
    tmp_path: Path, batches: list[tuple[list[tuple[bytes, int | None]], int, str]]
) -> None:
    """Also where they are set again and again, with times that jump or go back, and the file is opened again."""
    file = Path(tempfile.mkdtemp(dir=tmp_path)) / "0"  # of this example: deaths in a file are counted
    entries, plain = OnDisk(file, 2**20, width=10), dict[bytes, int]()
    entries.open()
    for changes, before, again in batches:
        entries.apply([(key, None if at is None else at.to_bytes(8, "big") + b"v") for key, at in changes], PLACE)
        for key, at in changes:
            plain.pop(key, None)
            plain |= {} if at is None else {key: at}
        if again:
            # Three deaths in a row before an entry is committed wipe the file:
            # test_processes_that_die_again_and_again_begin_without_the_file.
            entries.close(orderly=again == "end" or not changes)
            entries = OnDisk(file, 2**20, width=10)
            assert entries.open() == PLACE
        end = before - before % 10

        assert sorted(entries.ended(end)) == sorted(key for key, at in plain.items() if at < end)
        assert dict(entries.scan(b"")) == {key: at.to_bytes(8, "big") + b"v" for key, at in plain.items()}
        assert {key: entries.get(key) for key in plain} == dict(entries.scan(b""))
    entries.close()
    _remove(file)


def _remove(file: Path) -> None:
    """So that the next example begins without it."""
    for path in sorted(file.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def test_an_entry_that_is_met_too_early_is_filed_again(where: Path) -> None:
    """Else each sweep would meet it."""
    entries = OnDisk(where, 2**20, width=10)
    entries.open()
    for at in (100, 190):  # the second time is less than a quarter of the lifetime later
        entries.apply([(b"k", at.to_bytes(8, "big") + b"v")], PLACE)
    assert [*entries.ended(150)] == []
    assert entries._late == {b"k"}

    entries.apply([], PLACE)

    assert [*entries.ended(190)] == []
    assert not entries._late
    assert [*entries.ended(200)] == [b"k"]
    entries.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[disk\]'"):
        OnDisk(tmp_path, 2**20)
