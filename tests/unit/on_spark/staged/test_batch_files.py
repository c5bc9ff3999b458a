"""Batches whose rows go to files (E5), with the driver's own code on the reference broker, without Spark.

A driver dies before or behind each thing that it does in the store or in Kafka. Its successor runs the same batch
again, with other rows, as Spark would.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
import pytest

from cues_kafka import Blobs, CodecError, RecoveryError, files
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.records import Attempt, Extent, Snapshot, Staged
from cues_kafka.on_spark.query.outcome import SlotsStopped
from cues_kafka.on_spark.staged import file_rows
from cues_kafka.on_spark.staged import files as staged_files
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.file_rows import FilesInto
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.on_spark.staged.publish import newest_batch
from cues_kafka.on_spark.staged.row_files import FileWriter, fitting
from cues_kafka.on_spark.staged.run import StagedRun
from cues_kafka.on_spark.staged.target import OutputTopics
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.sinks.blobs import fit
from cues_kafka.sinks.blobs.marker import make_store, name_tables
from cues_kafka.sinks.blobs.store import LocalStore
from cues_kafka.task.calling.carried import Carried
from cues_kafka.task.calling.outputs import Output
from tests.unit.on_spark.staged.drivers import ROWS, Died, Frame, Life, Turns, errors_of, mortal_work
from tests.unit.on_spark.staged.world import World, into_graph

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("attempt", pa.string()), ("n", pa.int64())])


class MortalStore(LocalStore):
    """The store as one driver and its Spark tasks see it."""

    def __init__(self, root: Path, life: Life) -> None:
        super().__init__(root)
        self._life = life

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`."""
        return bool(self._life.through("create", lambda: LocalStore.create(self, path, data, after=after)))

    def put(self, path: str, data: bytes | Path) -> None:
        """See `BlobStore`."""
        self._life.through("put", lambda: LocalStore.put(self, path, data))

    def delete(self, path: str) -> None:
        """See `BlobStore`."""
        self._life.through("delete", lambda: LocalStore.delete(self, path))


class Lake:
    """A world, its store, and its drivers one after the other."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.url = f"file://{root / 'lake'}"
        self.world = World(into_graph(Blobs("file:///lake").parquet("t")))
        self._extents: dict[int, tuple[Extent, ...]] = {}
        self._lives: dict[int, Life] = {}
        monkeypatch.setattr(file_rows, "store_of", self._store)
        monkeypatch.setattr(staged_files, "local", lambda *_: root / "checkpoint" / "stage")

    def driver(self, life: Life | None = None, kind: type[StagedBatch] = StagedBatch) -> StagedBatch:
        """A driver that begins, in a process of its own."""
        life = life or Life()
        table = Blobs(self.url).parquet("t")
        work = mortal_work(FilesInto(table, SCHEMA, "g.frames"), self.world, life)
        make_store(LocalStore(self.root / "lake"))
        name_tables(LocalStore(self.root / "lake"), ["t"])
        self._lives[threading.get_ident()] = life
        return kind(work, lambda *_: (), str(self.root / "checkpoint"))

    def _store(self, _: Blobs) -> MortalStore:
        """The store as Spark's tasks of the driver in this thread see it."""
        return MortalStore(self.root / "lake", self._lives[threading.get_ident()])

    def mine(self, number: int) -> Staged:
        """A new attempt at a batch, of all that the inputs hold by now."""
        made = self.world.driver().prepared(number)
        if number not in self._extents:  # as Spark's log of offsets keeps them
            starts = {one.source: one.end for one in self._extents.get(number - 1, made.extents)}
            self._extents[number] = tuple(
                one._replace(start=starts[one.source] if number else one.start) for one in made.extents
            )
            self.world.send(1)
        return replace(made, extents=self._extents[number], parts=1, attempt=uuid4().hex)

    def batches(self) -> list[tuple[int, set[str], int]]:
        """What readers see: publication, attempts of its rows, and how many rows."""
        found: dict[int, list[str]] = {}
        for one in files(self.url, "t"):
            rows = pyarrow.parquet.read_table(one.url.removeprefix("file://")).to_pylist()
            assert len(rows) == one.rows
            found.setdefault(one.step, []).extend(row["attempt"] for row in rows)
        return [(step, set(attempts), len(attempts)) for step, attempts in found.items()]

    def check(self, count: int) -> None:
        """This number of batches is there, each of them once, in the store as in Kafka."""
        records = self.world.records(0)
        published = [r.staged.number for r in records if isinstance(r, Attempt) and r.staged]
        assert len(published) == count
        seen = self.batches()
        assert [(step, rows) for step, _, rows in seen] == [(number, ROWS) for number in published]
        assert all(len(attempts) == 1 for _, attempts, _ in seen), "rows of two computations in one batch"
        assert len(set().union(*[attempts for _, attempts, _ in seen])) == count
        announced = {r.staged.number: r.staged.attempt for r in records if isinstance(r, Snapshot) and r.staged}
        for one in files(self.url):
            assert f"/{announced[one.step]}/" in one.url
        assert len(errors_of(self.world)) == count
        totals = records[-1].totals
        assert (totals.nils, totals.errors, totals.messages) == (count * ROWS, count, 0)

    def orphans(self) -> set[str]:
        """Files of rows that no reader is told of."""
        listed = {one.url.removeprefix("file://") for one in files(self.url)}
        return {str(path) for path in (self.root / "lake" / "t").rglob("*.parquet")} - listed


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty one."""
    return Lake(tmp_path, monkeypatch)


def test_a_driver_does_what_the_crashes_are_about(lake: Lake) -> None:
    """The places of the next test, by name: a batch uploads, announces, commits, publishes."""
    life = Life()
    driver = lake.driver(life)
    for number in range(2):
        driver.write(Frame(), lake.mine(number))
    batch = ["put", "Commit Announce", "create", "Commit Publish"]
    assert life.seen == batch * 2
    lake.check(2)
    assert not lake.orphans()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_batch_is_in_files_once_wherever_its_driver_dies(lake: Lake, moment: str, nth: int) -> None:
    """The successor runs the batch again, with other rows; then the next. Nothing is lost, doubled, mixed or left."""
    driver = lake.driver(Life((moment, nth)))
    done = 0
    with suppress(Died):
        while True:
            driver.write(Frame(), lake.mine(done))
            done += 1
    assert done in (0, 1)
    seen = len(lake.batches())
    assert seen in (done, done + 1)
    successor = lake.driver()
    for number in range(done, 3):
        successor.write(Frame(), lake.mine(number))
    lake.check(3)
    assert not lake.orphans()


def test_two_drivers_that_die_one_after_the_other_leave_one_attempt(lake: Lake) -> None:
    """The first one behind its announcement, the second one behind the entry; the third one publishes its parts."""
    for nth, last in ((2, "Commit Announce"), (3, "create")):  # the second one deletes its own file in between
        with pytest.raises(Died, match=last):
            lake.driver(Life(("after", nth))).write(Frame(), lake.mine(0))
    assert len(lake.batches()) == 1
    assert errors_of(lake.world) == []
    lake.driver().write(Frame(), lake.mine(0))
    lake.check(1)


class Slow(StagedBatch):
    """A driver that is frozen at a place, while others go on."""

    before_entry: Callable[[], None] = staticmethod(lambda: None)
    before_parts: Callable[[], None] = staticmethod(lambda: None)

    def _commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        self.before_entry()
        super()._commit(announced, manifest, staged_here=staged_here)
        self.before_parts()


@pytest.mark.parametrize("asleep", ["before_entry", "before_parts"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_driver_that_slept_while_another_went_on_changes_nothing(lake: Lake, asleep: str, batches: int) -> None:
    """It has announced the batch, and sleeps before its entry or behind it. Where others have gone past, it stops."""
    zombie: Any = lake.driver(kind=Slow)

    def others() -> None:
        successor = lake.driver()
        for number in range(batches):
            successor.write(Frame(), lake.mine(number))

    setattr(zombie, asleep, others)
    mine = lake.mine(0)
    if batches == 1:  # what it does is done already
        zombie.write(Frame(), mine)
    else:
        with pytest.raises((RecoveryError, SlotsStopped), match="stop the older driver of the two"):
            zombie.write(Frame(), mine)
    lake.check(batches)
    assert not lake.orphans()


class Unanswered(StagedBatch):
    """A driver whose announcement is committed, and that never hears of it; others go on meanwhile."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def _announce(self, mine: Staged) -> Staged:
        super()._announce(mine)
        self.meanwhile()
        self._undecided(mine)
        raise SlotsStopped("no answer")


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_driver_that_returns_keeps_its_attempt_that_another_one_published(lake: Lake, batches: int) -> None:
    """Its announcement has won, and the newest record may be of a later batch by now. Losers of its batch go."""
    undecided: list[Staged] = []
    returning: Any = lake.driver(kind=Unanswered)
    returning._undecided = undecided.append

    def others() -> None:
        successor = lake.driver()
        for number in range(batches):
            successor.write(Frame(), lake.mine(number))

    returning.meanwhile = others
    with pytest.raises(SlotsStopped):
        returning.write(Frame(), lake.mine(0))
    [mine] = undecided
    undecided.append(loser := replace(mine, attempt="loser"))
    left = lake.root / "lake" / returning._work.into.directory(loser) / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"lost")

    settings = SimpleNamespace(session=Frame.sparkSession, checkpoint=str(lake.root / "checkpoint"))
    run: Any = SimpleNamespace(_settings=settings, _undecided=undecided)
    StagedRun._drop_losers(run, newest_batch(returning._work, lake.world.broker), returning)
    assert undecided == []
    assert left.exists() is (batches == 2)  # nothing says by then that it lost: see `BatchLog.clean`

    next_ = max(batches - 1, 0)
    driver = lake.driver()
    for number in (next_, next_ + 1):
        driver.write(Frame(), lake.mine(number))
    lake.check(next_ + 2)
    assert all(Path(one.url.removeprefix("file://")).exists() for one in files(lake.url))


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 150))])
def test_drivers_side_by_side_commit_each_batch_once(lake: Lake, seed: int) -> None:
    """Two at once, in a random order of their steps; sometimes one dies, and a third one comes. The last one heals."""
    chance = random.Random(seed)
    turns = Turns(2)

    def drive(who: int, life: Life) -> None:
        try:
            life.gate = lambda: turns.gate(who)
            life.gate()
            driver = lake.driver(life)
            for number in range(3):
                driver.write(Frame(), lake.mine(number))
        except (Died, RecoveryError, SlotsStopped) as ended:
            endings.append(str(ended))
        finally:
            turns.over(who)

    endings: list[str] = []
    lives = [Life((chance.choice(["before", "after"]), chance.randrange(1, 20))) for _ in range(2)]
    threads = [threading.Thread(target=drive, args=one, daemon=True) for one in enumerate(lives)]
    for one in threads:
        one.start()
    while turns.running:
        turns.grant(chance.choice)
    for one in threads:
        one.join(60)
    newest = next((r.staged.batch for r in reversed(lake.world.records(0)) if r.staged), 0)
    last = lake.driver()
    for number in range(newest, 4):
        last.write(Frame(), lake.mine(number))
    lake.check(4)


def test_rows_of_a_frozen_driver_are_swept_an_hour_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark task of the dead driver uploads after the batch was committed by its successor, and cleaned."""
    with pytest.raises(Died):
        lake.driver(Life(("after", 1))).write(Frame(), lake.mine(0))
    driver = lake.driver()
    for number in range(3):
        driver.write(Frame(), lake.mine(number))
    assert not lake.orphans()
    late = lake.root / "lake" / "t" / "g.frames" / "first" / "0" / "dead" / "part-0.parquet"
    late.parent.mkdir(parents=True)
    late.write_bytes(b"late")
    lake.driver().write(Frame(), lake.mine(3))
    assert late.exists()
    monkeypatch.setattr("time.time", lambda: 4e9)
    lake.driver().write(Frame(), lake.mine(4))
    assert not late.exists()
    lake.check(5)


def test_files_that_an_announced_batch_needs_are_asked_for(lake: Lake) -> None:
    """A file that is gone, or a store that is another one, is named before the entry is put."""
    with pytest.raises(Died):
        lake.driver(Life(("after", 2))).write(Frame(), lake.mine(0))
    [file] = (lake.root / "lake" / "t").rglob("*.parquet")
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(
        RecoveryError, match=rf"{file.name} is not in the store as it was written: batch 0 was announced with it"
    ):
        lake.driver().write(Frame(), lake.mine(0))
    assert lake.batches() == []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(kept)
    lake.driver().write(Frame(), lake.mine(0))
    lake.check(1)


@pytest.mark.parametrize(("kept", "where"), [(2, "ends at publication"), (0, "is gone")], ids=["newest", "all"])
def test_entries_that_were_lost_before_an_announced_batch_are_told(lake: Lake, kept: int, where: str) -> None:
    """The driver died before the entry, so Kafka does not say that the log was there: the announced manifest does."""
    driver = lake.driver()
    for number in range(3):
        driver.write(Frame(), lake.mine(number))
    with pytest.raises(Died, match="Commit Announce"):
        lake.driver(Life(("after", 2))).write(Frame(), lake.mine(3))
    entries = sorted((lake.root / "lake" / "_cues" / "g.frames" / "0").glob("0*.json"))
    lost = {path: path.read_bytes() for path in entries[kept:]}
    assert lost
    for path in lost:
        path.unlink()
    with pytest.raises(RecoveryError, match=rf"log of commits of g.frames {where}.*restored or emptied"):
        lake.driver().write(Frame(), lake.mine(3))
    for path, data in lost.items():
        path.write_bytes(data)
    successor = lake.driver()
    for number in (3, 4):
        successor.write(Frame(), lake.mine(number))
    lake.check(5)


def test_a_processor_that_lost_its_into_names_the_batch_that_needs_it(lake: Lake) -> None:
    """Its rows would be counted as published, and no reader would see them."""
    with pytest.raises(Died):
        lake.driver(Life(("after", 2))).write(Frame(), lake.mine(0))
    driver = lake.driver()
    driver._commits = OutputTopics().open()
    announced = next(r.staged for r in lake.world.records(0) if r.staged)
    [manifest] = (lake.root / "checkpoint" / "stage" / "0").glob("*/manifest.json")
    assert announced.attempt == manifest.parent.name
    with pytest.raises(RecoveryError, match="announced for files of table 't'"):
        driver._publish_once(staged_files.Staging(None, str(lake.root / "checkpoint" / "stage")), announced, None)


# ---- rows


def test_files_have_a_limited_size_and_their_rows_in_order(tmp_path: Path) -> None:
    """Counted before compression."""
    batch = pa.RecordBatch.from_pydict({"attempt": ["a" * 92] * 5, "n": list(range(5))}, schema=SCHEMA)
    with FileWriter(LocalStore(tmp_path).put, "t/part-00000", "t", SCHEMA, 1_000) as writer:
        found = [*[one for _ in range(5) for one in writer.write(batch)], *writer.finish()]
    assert [one.rows for one in found] == [10, 10, 5]
    tables = [pyarrow.parquet.read_table(tmp_path / one.path) for one in found]
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(5)) * 5
    assert [one.bytes for one in found] == [(tmp_path / one.path).stat().st_size for one in found]
    assert not list(tmp_path.glob("cues-kafka-files-*"))


def test_a_spark_task_that_runs_twice_writes_two_files(tmp_path: Path) -> None:
    """As with speculation, where the manifest names one of them: the other one may not replace it."""
    batch = pa.RecordBatch.from_pydict({"attempt": ["a"], "n": [1]}, schema=SCHEMA)
    made = set()
    for _ in range(2):
        with FileWriter(LocalStore(tmp_path).put, "t/part-00000", "t", SCHEMA, 1_000) as writer:
            assert not list(writer.write(batch))
            made |= {one.path for one in writer.finish()}
    assert len(made) == 2
    assert set(LocalStore(tmp_path).below("t")) == made


@pytest.mark.parametrize(
    ("values", "kind", "bad"),
    [
        (["1", "x", None], pa.int64(), {1}),
        ([1.0, 1.5, 2.0], pa.int64(), {1}),
        ([1, 2**31, -(2**31)], pa.int32(), {1}),
        (["2026-01-02", "tomorrow"], pa.date32(), {1}),
        ([1, 2], pa.string(), set()),
        ([MIDNIGHT.replace(tzinfo=None), None, MIDNIGHT.replace(tzinfo=None, hour=13)], pa.date32(), {2}),
        ([MIDNIGHT, MIDNIGHT.replace(hour=13)], pa.date32(), {1}),
        ([MIDNIGHT], pa.time32("s"), {0}),
        ([0.1, 1e300, math.inf, math.nan, None], pa.float32(), {1}),
        (["0.1", "1e400", "-Inf"], pa.float64(), {1}),
        ([70.99, 0.305, math.nan, None], pa.decimal128(10, 2), {1, 2}),
        ([Decimal("0.1000000000000000000"), Decimal("0.1234567890123456789")], pa.float64(), {1}),
        ([Decimal(10**37), Decimal(10**37 + 1), None], pa.int64(), {0, 1}),
        ([Decimal(5), Decimal("5.5")], pa.int64(), {1}),
        ([1.0, 0.5, 0.0], pa.bool_(), {1}),
        ([1, 3, 0], pa.bool_(), {1}),
        ([{"a": 1, "b": None}, {"a": 1, "b": 2}], pa.struct([("a", pa.int64())]), {1}),
        ([1.5, None], pa.string(), set()),
        (["a"], pa.large_string(), set()),
        ([date(2026, 1, 1)], pa.timestamp("us"), set()),
    ],
)
def test_a_value_fits_if_nothing_of_it_is_lost(values: list[Any], kind: pa.DataType, bad: set[int]) -> None:
    """The others keep their order, and null is a value."""
    batch = pa.RecordBatch.from_pydict({"left": list(range(len(values))), "n": values})
    good, refused = fitting(batch, pa.schema([("n", kind)]))
    assert {at for at, _, _ in refused} == bad
    assert len(good) == len(values) - len(bad)
    assert all(f"no {kind}" in why and b'"left"' in data for _, data, why in refused)


def test_decimal_becomes_the_binary_number_that_is_written_alike() -> None:
    """Pyarrow alone makes the number beside it."""
    given = pa.array([Decimal("0.1000000000000000000"), None])
    assert fit.cast(given, pa.float64()).to_pylist() == [0.1, None]
    assert fit.cast(pa.array([0.1]), pa.decimal128(38, 19)).to_pylist() == [Decimal("0.1")]


def test_a_row_that_does_not_fit_shows_no_field_that_is_redacted() -> None:
    """Neither in its payload nor in the reason."""
    batch = pa.RecordBatch.from_pydict({"card": ["4711"], "n": ["hidden"]})
    _, [(_, data, why)] = fitting(batch, SCHEMA.remove(0))
    target = StagedTarget((), Output("g.errors", 2, 1_000_000))
    refusing = Refusing("g", "p", "q", 7, (), target, carried=Carried(redact=("card", "n")))
    made = refusing.messages([(3, data, why)], "t")
    error = error_messages().decode(made.column("value")[0].as_py())
    assert error.payload == b'{"card":"(redacted)","n":"(redacted)"}'
    assert (error.text, error.context["row"]) == ("field 'n' is no int64", "3")
    with pytest.raises(CodecError, match=r"a row does not fit 't': field 'n' is no int64\. Declare an errors topic"):
        replace(refusing, target=StagedTarget(())).messages([(3, data, why)], "t")


def test_the_text_of_a_manifest_without_files_is_as_it_was() -> None:
    """Checksums of announced batches hold over an update."""
    plain = Manifest(7, "a1", (), (), ("lines",), "errors")
    assert plain.text == (
        '{"version":1,"batch":7,"attempt":"a1","files":[],"chunks":[],"outputs":["lines"],"errors":"errors"}'
    )
    assert [one.name for one in fields(Manifest)][-2:] == ["data", "log_at"]
