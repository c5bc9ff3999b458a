"""E5: the log of a staged processor, compared with Kafka, and between drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cues_kafka import RecoveryError, RetriableError
from cues_kafka.sinks.blobs.batches import BatchFiles, BatchLog, attempt_directory
from cues_kafka.sinks.blobs.entries import ATTEMPT, CLAIM, FOLDED, CommitLog, FileEntry, LogEntry
from cues_kafka.sinks.blobs.marker import MARKER, make_store
from cues_kafka.sinks.blobs.reading import files
from cues_kafka.sinks.blobs.store import LocalStore
from cues_kafka.sinks.standing import StandsAt

NAME = "shop.sums"


def opened(root: Path, store: LocalStore | None = None) -> BatchLog:
    """The log, as each driver opens it."""
    made = store or LocalStore(root)
    make_store(made)
    return BatchLog(made, NAME)


def batch(number: int, attempt: str = "a", *, written: Path | None = None) -> BatchFiles:
    """A batch with one file; its number in the query is half of its publication number."""
    directory = attempt_directory("sums", NAME, "q", number // 2, f"{attempt}{number}")
    path = f"{directory}/part-00000.parquet"
    if written is not None:
        LocalStore(written).put(path, b"rows")
    return BatchFiles(number, f"{attempt}{number}", directory, (FileEntry(path, "sums", 1, 4),))


def steps(root: Path) -> list[int]:
    """The publications that readers see."""
    return [one.step for one in files(f"file://{root}")]


def entries(root: Path) -> list[tuple[str, int, int]]:
    """Kind, base and step of each entry."""
    return [(one.kind, one.base, one.step) for one in CommitLog(LocalStore(root), f"{NAME}/0").after(0)]


def test_entries_have_no_gaps_though_publications_have(tmp_path: Path) -> None:
    """Each names the publication before it; a second commit of the newest one changes nothing."""
    log = opened(tmp_path)
    log.compare(lambda: None)
    for number in (0, 2, 7, 7):
        log.commit(batch(number))
    opened(tmp_path).commit(batch(7))
    assert entries(tmp_path) == [(ATTEMPT, 0, 0), (ATTEMPT, 0, 2), (ATTEMPT, 2, 7)]
    assert steps(tmp_path) == [0, 2, 7]


@pytest.mark.parametrize(
    ("late", "why"),
    [(batch(2), "stop the older driver of the two"), (batch(4, "other"), "attempt a4 in the store, and other4 in")],
)
def test_a_driver_that_others_have_passed_commits_nothing(tmp_path: Path, late: BatchFiles, why: str) -> None:
    """Whether it knows where the log ended before, or asks only now."""
    zombie, driver = opened(tmp_path), opened(tmp_path)
    zombie.compare(lambda: None)
    for number in (2, 4):
        driver.commit(batch(number))
    for log in (zombie, opened(tmp_path)):
        with pytest.raises(RecoveryError, match=why):
            log.commit(late)
    assert steps(tmp_path) == [2, 4]


@pytest.mark.parametrize(
    ("top", "kafka", "why"),
    [
        (4, StandsAt(4, published=True, reset=False), ""),
        (4, StandsAt(4, published=False, reset=False), ""),
        (2, StandsAt(4, published=False, reset=False), ""),
        (4, StandsAt(9, published=True, reset=True), ""),
        (None, None, ""),
        (None, StandsAt(0, published=False, reset=False), ""),
        (2, StandsAt(4, published=True, reset=False), "ends at publication 2, and publication 4 is in Kafka"),
        (None, StandsAt(4, published=True, reset=False), "the store has no log of commits .* wrote to topics before"),
        (4, StandsAt(2, published=True, reset=False), "Restore the topic"),
        (4, StandsAt(2, published=True, reset=True), "Restore the topic"),
        (4, None, "ends at publication 4, and its newest record in Kafka is at -1"),
    ],
)
def test_a_driver_begins_where_store_and_kafka_agree(
    tmp_path: Path, top: int | None, kafka: StandsAt | None, why: str
) -> None:
    """Else one of the two was restored or lost, and the text names both and what to do."""
    if top is not None:
        opened(tmp_path).commit(batch(top))
    log = opened(tmp_path)
    if why:
        with pytest.raises(RecoveryError, match=why):
            log.compare(lambda: kafka)
        return
    log.compare(lambda: kafka)
    log.commit(batch(10))
    assert steps(tmp_path)[-1] == 10


def test_a_driver_that_goes_on_meanwhile_is_no_mismatch(tmp_path: Path) -> None:
    """Kafka is asked again, and the log too."""
    opened(tmp_path).commit(batch(2))
    said = iter([StandsAt(0, published=True, reset=False), *[StandsAt(2, published=True, reset=False)] * 2])
    opened(tmp_path).compare(lambda: next(said))


def test_a_batch_from_before_a_reset_is_refused_once_a_driver_began_behind_it(tmp_path: Path) -> None:
    """The claim stands for the reset; it commits no file."""
    zombie = opened(tmp_path)
    zombie.commit(batch(2))
    for _ in range(2):
        opened(tmp_path).compare(lambda: StandsAt(6, published=True, reset=True))
    with pytest.raises(RecoveryError, match="6 is there already"):
        zombie.commit(batch(4))
    assert entries(tmp_path) == [(ATTEMPT, 0, 2), (CLAIM, 2, 6)]
    assert steps(tmp_path) == [2]


class Lossy(LocalStore):
    """A store whose next `create` is done, or comes later, and is not answered."""

    lost: tuple[str, bytes] | None = None
    fails = ""

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`."""
        if self.fails and path != MARKER:
            self.lost = (path, data)
            if self.fails == "done":
                assert super().create(path, data, after=after)
            self.fails = ""
            raise RetriableError("no answer", code="TARGET")
        return super().create(path, data, after=after)


@pytest.mark.parametrize("fate", ["done", "late", "too late"])
def test_an_entry_without_an_answer_is_there_once(tmp_path: Path, fate: str) -> None:
    """The batch comes again, and finds it, or puts it; a request that arrives then is refused by the store."""
    store = Lossy(tmp_path)
    store.fails = "done" if fate == "done" else "later"
    with pytest.raises(RetriableError, match=r"the files of shop\.sums: no answer"):
        opened(tmp_path, store).commit(batch(2))
    assert store.lost is not None
    if fate == "late":
        assert store.create(*store.lost)
    successor = opened(tmp_path, store)
    successor.compare(lambda: StandsAt(2, published=False, reset=False))
    successor.commit(batch(2))
    assert not store.create(*store.lost)
    successor.commit(batch(4))
    assert steps(tmp_path) == [2, 4]


def test_what_lies_beside_the_files_of_two_batches_is_deleted(tmp_path: Path) -> None:
    """And nothing else: not an attempt at the next batch, which may be announced already."""
    log = opened(tmp_path)
    log.commit(batch(2, written=tmp_path))
    losers = [batch(2, "x", written=tmp_path), batch(4, "x", written=tmp_path)]
    log.commit(batch(4, written=tmp_path))
    later = batch(6, "y", written=tmp_path)
    tried_twice = f"{batch(4).directory}/part-00000-again.parquet"
    LocalStore(tmp_path).put(tried_twice, b"rows")
    log.clean()
    there = set(LocalStore(tmp_path).below("sums"))
    assert there == {one.files[0].path for one in (batch(2), batch(4), later)}
    assert not there & {one.files[0].path for one in losers}
    log.drop(later.directory)
    assert later.files[0].path not in LocalStore(tmp_path).below("sums")


def test_a_driver_that_finds_its_entry_cleans_behind_its_predecessor(tmp_path: Path) -> None:
    """It died between the entry and the parts."""
    for number in (2, 4):
        opened(tmp_path).commit(batch(number, written=tmp_path))
    losers = [batch(number, "x", written=tmp_path).files[0].path for number in (2, 4)]
    log = opened(tmp_path)
    log.compare(lambda: StandsAt(4, published=False, reset=False))
    log.commit(batch(4))
    log.clean()
    assert not set(losers) & set(LocalStore(tmp_path).below("sums"))
    assert steps(tmp_path) == [2, 4]


class NoDelete(LocalStore):
    """A store that does not delete."""

    def delete(self, path: str) -> None:
        """See `BlobStore`."""
        raise RetriableError(f"the store does not delete {path}", code="TARGET")


def test_what_cannot_be_deleted_stops_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged; a directory that is due stays in the list."""
    store = NoDelete(tmp_path)
    log = opened(tmp_path, store)
    log.commit(batch(2, written=tmp_path))
    batch(2, "x", written=tmp_path)
    log.clean()
    log.drop(batch(2, "x").directory)
    monkeypatch.setattr("time.time", lambda: 4e9)
    log.commit(batch(4, written=tmp_path))
    newest = CommitLog(store, f"{NAME}/0").newest()
    assert newest is not None
    assert [one.due < 4e9 for one in newest[1].sweeps] == [True, False]
    assert steps(tmp_path) == [2, 4]


def test_a_log_of_many_batches_is_folded_and_goes_on(tmp_path: Path) -> None:
    """A new driver finds its end, and readers see each batch once."""
    plain = CommitLog(LocalStore(tmp_path), f"{NAME}/0")
    for number in range(FOLDED + 30):
        one = batch(2 * number)
        assert plain.append(number, LogEntry(ATTEMPT, 0, one.number, 0, one.attempt, one.directory, one.files))
    log = opened(tmp_path)
    for number in range(FOLDED + 30, FOLDED + 40):
        log.commit(batch(2 * number))
        log.clean()
    assert plain.segment(0) is not None
    assert plain.hint()["newest"] == FOLDED + 31
    opened(tmp_path).commit(batch(2 * (FOLDED + 40)))
    assert steps(tmp_path) == [2 * number for number in range(FOLDED + 41)]
