"""Files and directories as sources: whole lines, files that grow, are new, are gone, cut short or replaced."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import Directory, Files, GraphError, RecoveryError
from cues_kafka.bridges.files import HEAD_BYTES, FileReader
from tests.examples import examples


def lines(source: Any, place: str | None = None, limit: int = 1000, part: int = 0) -> tuple[list[bytes], str | None]:
    """What a read gives, and the place behind the last row."""
    rows = list(islice(source.read(part, place, limit), limit))
    return [row[0].value for row in rows], rows[-1][1] if rows else place


def write(path: Path, text: str) -> None:
    """Append."""
    with path.open("a") as opened:
        opened.write(text)


def test_only_whole_lines_are_read_and_files_are_read_as_they_grow(tmp_path: Path) -> None:
    """A line without its end waits; empty lines are none; both kinds of ends."""
    path = tmp_path / "a.log"
    write(path, "one\r\n\ntwo\nthr")
    source = Files(path).open()

    assert lines(source)[0] == [b"one", b"two"]
    got, place = lines(source)
    write(path, "ee\n")
    assert lines(source, place)[0] == [b"three"]
    assert lines(Files(path), place)[0] == [b"three"], "another process too"
    assert Files(path).show(lines(source, place)[1] or "") == "file 'a.log', line 4"
    assert got == [b"one", b"two"]


def test_a_read_goes_on_from_any_place_that_was_given(tmp_path: Path) -> None:
    """After each row, in the reader that gave it and in a new one; also from an earlier place once more."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.log", "".join(f"{name}{n} {'x' * 100}\n" for n in range(5)))
    everything = [row for row, _ in Files(f"{tmp_path}/*.log").read(0, None, 1000)]
    source = Files(f"{tmp_path}/*.log").open()
    places = [place for _, place in source.read(0, None, 1000)]

    for count, place in enumerate(places, 1):
        assert [row for row, _ in source.read(0, place, 1000)] == everything[count:]
        assert [row for row, _ in Files(f"{tmp_path}/*.log").read(0, place, 1000)] == everything[count:]


def test_files_are_read_in_the_order_of_names_and_a_new_one_may_have_any_name(tmp_path: Path) -> None:
    """One that sorts before those that were read is read too."""
    for name in ("b", "d"):
        write(tmp_path / f"{name}.log", f"{name}\n")
    source = Files(f"{tmp_path}/*.log").open()
    got, place = lines(source)
    assert got == [b"b", b"d"]
    for name in ("a", "c", "d"):
        write(tmp_path / f"{name}.log", f"{name} again\n")

    assert lines(source, place)[0] == [b"a again", b"c again", b"d again"]


@pytest.mark.parametrize("grown", [False, True])
def test_a_file_that_was_cut_short_or_replaced_is_refused_by_name(tmp_path: Path, grown: bool) -> None:
    """Also if it is longer by now; and the remedy brings it on."""
    path = tmp_path / "a.log"
    write(path, "one\ntwo\n")
    source = Files(path).open()
    _, place = lines(source)
    path.unlink()
    write(path, "other\n" * (10 if grown else 1))

    for reader in (source, Files(path).open()):
        with pytest.raises(RecoveryError, match=r"a\.log") as refused:
            lines(reader, place)
        assert "name that was not used before" in refused.value.remedy


def test_a_file_whose_number_is_used_again_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """Written over in place, longer than before: the number in the file system is the same."""
    path = tmp_path / "a.log"
    write(path, "one\n")
    _, place = lines(Files(path))
    number = path.stat().st_ino
    path.write_text("eno\nmore\n")
    assert path.stat().st_ino == number

    with pytest.raises(RecoveryError, match="replaced"):
        lines(Files(path), place)


HEAD = "#" * 2 * HEAD_BYTES + "\n"


@pytest.mark.parametrize(
    "now",
    [
        HEAD + "NEW\ntwo\n",
        HEAD + "NEW\n",
        HEAD + "x" * 1_000 + "\n",
        HEAD + "on",
        HEAD + "one\r\n",
        "#" * 600 + "\none\n",
    ],
    ids=["longer", "of the same size", "much longer", "shorter", "another end of the line", "moved by some bytes"],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_was_cut_to_nothing_and_has_grown_is_refused_by_name(
    tmp_path: Path, now: str, restarted: bool
) -> None:
    """As `copytruncate` does it: the number in the file system and the first bytes are the same."""
    path = tmp_path / "a.log"
    write(path, HEAD + "one\n")
    source = Files(path).open()
    _, place = lines(source)
    lines(source, place)
    number = path.stat().st_ino
    path.write_bytes(now.encode())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))  # on a clock that ticks seldom
    assert path.stat().st_ino == number

    with pytest.raises(RecoveryError, match=r"file 'a.log' has .*: it was cut") as refused:
        lines(Files(path) if restarted else source, place)
    assert "name that was not used before" in refused.value.remedy
    path.rename(tmp_path / "b.log")
    found = now.encode().split(b"\n")[:-1]
    assert lines(Files(tmp_path / "b.log"))[0] == [line.removesuffix(b"\r") for line in found]


@examples(100)
@given(
    given_lines=st.lists(st.sampled_from(["", "a", "b\r", "x" * 254, "y" * 255, "z" * 256, "w" * 700]), min_size=1),
    cuts=st.lists(st.integers(0, 40), max_size=3),
)
def test_the_bytes_before_each_place_are_those_of_the_file(given_lines: list[str], cuts: list[int]) -> None:
    """However it grew meanwhile: a reader of another process knows the file at each place that was given."""
    with TemporaryDirectory() as made:
        path, place, number = Path(made) / "a.log", None, 0
        for upto in sorted({min(cut, len(given_lines)) for cut in (*cuts, len(given_lines))}):
            path.write_text("".join(f"{line}\n" for line in given_lines[:upto]), newline="")
            for _, at in Files(path).read(0, place, 100):
                place, number = at, number + 1
                [entry] = json.loads(at)["files"]
                assert entry[5] == f"{crc32(path.read_bytes()[: entry[3]][-256:]):x}"
                next(Files(path).read(0, at, 100), None)
        assert number == sum(1 for line in given_lines if line.strip())


def test_the_first_bytes_are_known_as_far_as_they_were_delivered(tmp_path: Path) -> None:
    """The digest grows with what is read, up to its bound."""
    path = tmp_path / "a.log"
    place = None
    for n in range(20):
        write(path, f"{n:030}\n")
        got, place = lines(Files(path), place)
        assert got == [f"{n:030}".encode()]
    assert path.stat().st_size > HEAD_BYTES


def test_a_file_that_goes_with_bytes_that_were_not_delivered_is_said(tmp_path: Path) -> None:
    """One that was delivered whole may go; its name may come again."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.log", f"{name}\n")
    source = Files(f"{tmp_path}/*.log").open()
    _, place = lines(source)
    (tmp_path / "a.log").unlink()
    write(tmp_path / "b.log", "more\nhalf")
    got, place = lines(source, place)
    assert got == [b"more"]
    write(tmp_path / "a.log", "new\n")
    got, place = lines(source, place)
    assert got == [b"new"]
    (tmp_path / "b.log").unlink()

    with pytest.raises(RecoveryError, match=r"b\.log.*4 bytes"):
        lines(source, place)
    assert lines(Files(f"{tmp_path}/*.log"), place)[0] == [], "another process cannot know"


def test_a_file_that_goes_while_it_is_read_is_said(tmp_path: Path) -> None:
    """Also one of which nothing is delivered yet; empty lines at its end are nothing."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.log", f"{name}1\n{name}2\n\n\n")
    source = Files(f"{tmp_path}/*.log").open()
    rows = source.read(0, None, 1000)
    place = [next(rows)[1] for _ in range(3)][-1]
    (tmp_path / "a.log").unlink()
    got, after = lines(source, place)
    assert got == [b"b2"]
    (tmp_path / "b.log").unlink()
    assert lines(source, after)[0] == []

    write(tmp_path / "c.log", "c1\nc2\n")
    place = next(iter(source.read(0, after, 1)))[1]
    (tmp_path / "c.log").unlink()
    with pytest.raises(RecoveryError, match=r"c\.log.*3 bytes after line 1"):
        lines(source, place)


@pytest.mark.parametrize("pattern", ["*.log", "a.log"])
@pytest.mark.parametrize("mounted", [True, False])
def test_files_that_were_away_for_a_moment_do_not_come_again(tmp_path: Path, pattern: str, mounted: bool) -> None:
    """A directory that was renamed, or whose file system was gone, gave all of its files from their beginning."""
    shared, away = tmp_path / "shared", tmp_path / "away"
    shared.mkdir()
    write(shared / "a.log", "one\n")
    source = Files(shared / pattern).open()
    _, place = lines(source)
    shared.rename(away)
    if not mounted:
        shared.mkdir()  # the empty mount point

    if mounted or pattern == "a.log":
        with pytest.raises(FileNotFoundError):
            lines(source, place)
    else:
        assert lines(source, place)[0] == []
    if not mounted:
        shared.rmdir()
    away.rename(shared)
    write(shared / "a.log", "two\n")

    assert lines(source, place)[0] == [b"two"]


def test_a_directory_that_was_away_does_not_give_its_files_again(tmp_path: Path) -> None:
    """As with lines."""
    shared, away = tmp_path / "shared", tmp_path / "away"
    shared.mkdir()
    write(shared / "a.xml", "<a/>")
    source = Directory(shared / "*.xml").open()
    _, place = lines(source)
    shared.rename(away)
    with pytest.raises(FileNotFoundError):
        lines(source, place)
    away.rename(shared)

    assert lines(source, place)[0] == []


def test_what_is_not_there_is_an_outage(tmp_path: Path) -> None:
    """A file, or the directory of a pattern; a pattern that matches nothing yet is none."""
    with pytest.raises(FileNotFoundError, match=r"later\.log"):
        lines(Files(tmp_path / "later.log"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lines(Files(f"{tmp_path}/nowhere/*.log"))
    assert lines(Files(f"{tmp_path}/*.log")) == ([], None)


def test_tasks_share_files_by_their_names(tmp_path: Path) -> None:
    """Each file belongs to one task, whatever others are there."""
    for n in range(20):
        write(tmp_path / f"{n}.log", f"{n}\n")
    source = Files(f"{tmp_path}/*.log", tasks=3)
    shares = [lines(source, part=part)[0] for part in range(source.parts())]

    assert sorted(row for share in shares for row in share) == sorted(f"{n}".encode() for n in range(20))
    assert all(shares)


def test_more_files_than_a_place_has_room_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do."""
    monkeypatch.setattr("cues_kafka.bridges.files.PLACE_BYTES", 200)
    for n in range(9):
        write(tmp_path / f"{n}.log", f"{n}\n")
    with pytest.raises(RecoveryError, match="more than a place has room for") as refused:
        lines(Files(f"{tmp_path}/*.log"))
    assert "move files away" in refused.value.remedy


def test_a_line_without_an_end_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of other bytes is named."""
    monkeypatch.setattr("cues_kafka.bridges.files.LONGEST_BYTES", 1000)
    write(tmp_path / "a.log", "x" * 2000)
    with pytest.raises(RecoveryError, match="without the end of a line"):
        lines(Files(f"{tmp_path}/*.log"))


def test_a_place_of_another_source_is_refused(tmp_path: Path) -> None:
    """It does not begin again in silence."""
    write(tmp_path / "a.log", "one\n")
    with pytest.raises(RecoveryError, match="not a position in files"):
        lines(Files(tmp_path / "a.log"), "17")


def test_a_file_that_did_not_change_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle feed looks at sizes only."""
    for n in range(3):
        write(tmp_path / f"{n}.log", f"{n}\n")
    source = FileReader(Files(f"{tmp_path}/*.log"))
    _, place = lines(source)
    lines(source, place)
    opened: list[Any] = []
    monkeypatch.setattr(Path, "open", lambda self, *_: opened.append(self))

    assert lines(source, place) == ([], place)
    assert opened == []


def test_a_directory_gives_whole_files_once(tmp_path: Path) -> None:
    """With their names; one that changes after it was delivered is refused."""
    (tmp_path / "b.xml").write_bytes(b"<b/>\n")
    source = Directory(tmp_path).open()
    [(message, place)] = source.read(0, None, 10)
    assert (message.value, message.headers) == (b"<b/>\n", {"file": "b.xml"})
    (tmp_path / "a.xml").write_bytes(b"<a/>")

    [(message, place)] = Directory(tmp_path).read(0, place, 10)
    assert message.value == b"<a/>"
    assert list(source.read(0, place, 10)) == []
    assert Directory(tmp_path).show(place) == "file 'a.xml'"
    (tmp_path / "b.xml").write_bytes(b"<changed/>")
    with pytest.raises(RecoveryError, match=r"b\.xml"):
        list(source.read(0, place, 10))
    (tmp_path / "b.xml").unlink()
    assert list(source.read(0, place, 10)) == []


@pytest.mark.parametrize("given", [{"pattern": ""}, {"pattern": 3}, {"pattern": "a", "tasks": 0}])
def test_wrong_settings_are_refused(given: Any) -> None:
    """Where they are declared."""
    with pytest.raises(GraphError):
        Files(**given)
