"""Batches whose rows go to a table of Delta Lake (E6), with the driver's own code, the reference broker and no Spark.

A driver dies before or behind each thing that it does with the table or in Kafka. Its successor runs the same batch
again, with other rows, as Spark would.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from cues_kafka import ConfigError, Delta, Graph, RecoveryError, RetriableError
from cues_kafka.core.records import Attempt, Extent, Snapshot, Staged
from cues_kafka.on_spark.query.outcome import SlotsStopped
from cues_kafka.on_spark.staged import delta_rows
from cues_kafka.on_spark.staged import files as staged_files
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.delta_rows import DeltaInto, DividedWriter
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.on_spark.staged.row_files import fitting
from cues_kafka.sinks.delta import batches, checks
from cues_kafka.sinks.delta.batches import BatchCommits, DeltaBatch
from cues_kafka.sinks.delta.column_types import SCALARS
from cues_kafka.sinks.delta.columns import delta_type, schema_of
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.sinks.delta.table import OpenedTable, TableFile
from cues_kafka.sinks.standing import StandsAt
from tests.unit.on_spark.staged.drivers import ROWS, Died, Frame, Life, Turns, errors_of, mortal_work
from tests.unit.on_spark.staged.world import World, into_graph

COLUMNS = {"attempt": "string", "n": "long"}
NAME = "g.frames"


class MortalTable(OpenedTable):
    """The table as one driver and its Spark tasks see it."""

    life = Life()

    def append(self, rows: Sequence[Any], apps: Mapping[str, int], files: Iterable[TableFile] = ()) -> None:
        """A commit."""
        self.life.through("commit", lambda: OpenedTable.append(self, rows, apps, files))

    def put_file(self, path: str, local: Path) -> None:
        """An upload."""
        self.life.through("put", lambda: OpenedTable.put_file(self, path, local))


class Lake:
    """A world, its table, and its drivers one after the other."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.declared = Delta(f"file://{root / 'lake'}").table("t", columns=COLUMNS)
        self.world = World(into_graph(self.declared))
        self._extents: dict[int, tuple[Extent, ...]] = {}
        self._lives: dict[int, Life] = {}
        monkeypatch.setattr(checks, "probe", lambda _: "")
        monkeypatch.setattr(delta_rows, "OpenedTable", self._table)
        monkeypatch.setattr(batches, "OpenedTable", self._table)
        monkeypatch.setattr(staged_files, "local", lambda *_: root / "checkpoint" / "stage")

    @property
    def url(self) -> str:
        """Of the table."""
        return str(self.root / "lake" / "t")

    def _table(self, url: str, options: Mapping[str, str]) -> MortalTable:
        """The table as the driver in this thread and its Spark tasks see it."""
        made = MortalTable(url, options)
        made.life = self._lives.get(threading.get_ident(), Life())
        return made

    def driver(
        self, life: Life | None = None, kind: type[StagedBatch] = StagedBatch, table: DeltaTarget | None = None
    ) -> StagedBatch:
        """A driver that begins, in a process of its own."""
        life = self._lives[threading.get_ident()] = life or Life()
        work = mortal_work(DeltaInto(table or self.declared, NAME), self.world, life)
        return kind(work, lambda *_: (), str(self.root / "checkpoint"))

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

    def attempts(self) -> Counter[str]:
        """What readers see: how many rows of each attempt."""
        if not (self.root / "lake" / "t" / "_delta_log").exists():
            return Counter()
        return Counter(pl.read_delta(self.url)["attempt"].to_list())

    def check(self, count: int) -> None:
        """This number of batches is there, each of them once, in the table as in Kafka."""
        records = self.world.records(0)
        published = [r.staged.number for r in records if isinstance(r, Attempt) and r.staged]
        assert len(published) == count
        made = self.attempts()
        assert sorted(made.values()) == [ROWS] * count, "rows of two computations in one batch, or none"
        files = deltalake.DeltaTable(self.url).file_uris()
        announced = [r.staged.attempt for r in records if isinstance(r, Snapshot) and r.staged]
        assert all(any(attempt in file for attempt in announced) for file in files)
        assert len(files) == count
        assert deltalake.DeltaTable(self.url).transaction_version(NAME) == published[-1]
        assert len(errors_of(self.world)) == count
        totals = records[-1].totals
        assert (totals.nils, totals.errors, totals.messages) == (count * ROWS, count, 0)


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
    assert life.seen == ["put", "Commit Announce", "commit", "Commit Publish"] * 2
    lake.check(2)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_batch_is_in_the_table_once_wherever_its_driver_dies(lake: Lake, moment: str, nth: int) -> None:
    """The successor runs the batch again, with other rows; then the next. Nothing is lost, doubled or mixed."""
    driver = lake.driver(Life((moment, nth)))
    done = 0
    with suppress(Died):
        while True:
            driver.write(Frame(), lake.mine(done))
            done += 1
    assert done in (0, 1)
    assert len(lake.attempts()) in (done, done + 1)
    successor = lake.driver()
    for number in range(done, 3):
        successor.write(Frame(), lake.mine(number))
    lake.check(3)


class Slow(StagedBatch):
    """A driver that is frozen at a place, while others go on."""

    before_commit: Callable[[], None] = staticmethod(lambda: None)
    before_parts: Callable[[], None] = staticmethod(lambda: None)

    def _commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        self.before_commit()
        super()._commit(announced, manifest, staged_here=staged_here)
        self.before_parts()


@pytest.mark.parametrize("asleep", ["before_commit", "before_parts"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_driver_that_slept_while_another_went_on_commits_nothing(lake: Lake, asleep: str, count: int) -> None:
    """It has announced the batch, and sleeps before its commit or behind it. Where others have gone past, it stops."""
    zombie: Any = lake.driver(kind=Slow)

    def others() -> None:
        successor = lake.driver()
        for number in range(count):
            successor.write(Frame(), lake.mine(number))

    setattr(zombie, asleep, others)
    mine = lake.mine(0)
    if count == 1:  # what it does is done already
        zombie.write(Frame(), mine)
    else:
        with pytest.raises((RecoveryError, SlotsStopped), match="stop the older driver of the two"):
            zombie.write(Frame(), mine)
    lake.check(count)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 80))])
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
        except (Died, RecoveryError, SlotsStopped):
            pass
        finally:
            turns.over(who)

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


def test_optimize_and_vacuum_beside_a_batch_that_is_announced_change_nothing(lake: Lake) -> None:
    """`optimize` joins files that are committed; `vacuum` keeps those that are as young as this batch."""
    driver: Any = lake.driver(kind=Slow)
    for number in range(3):
        driver.write(Frame(), lake.mine(number))

    def look_after() -> None:
        table = deltalake.DeltaTable(lake.url)
        assert table.optimize.compact()["numFilesRemoved"] == 3
        table.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False, full=True)

    driver.before_commit = look_after
    driver.write(Frame(), lake.mine(3))
    assert sorted(lake.attempts().values()) == [ROWS] * 4
    assert len(deltalake.DeltaTable(lake.url).file_uris()) == 2


def test_a_commit_of_another_driver_in_between_is_seen(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have compared the same version; Delta refuses the second, which then finds the batch committed."""
    driver = lake.driver()
    driver.write(Frame(), lake.mine(0))
    [first, second] = [BatchCommits(lake.declared, NAME) for _ in range(2)]
    look = BatchCommits._look
    raced: list[int] = []

    def late(self: BatchCommits) -> None:
        look(self)
        if self is second and not raced:
            raced.append(1)
            first.commit(DeltaBatch(9, 1, "a"), look=False)

    monkeypatch.setattr(BatchCommits, "_look", late)
    second.commit(DeltaBatch(9, 1, "a"), look=False)
    assert raced
    assert second.top == 9
    with pytest.raises(RecoveryError, match="is another attempt in the table than in Kafka"):
        second.commit(DeltaBatch(9, 1, "b"), look=False)
    with pytest.raises(RecoveryError, match="stop the older driver of the two"):
        second.commit(DeltaBatch(8, 1, "b"), look=False)


def stands(number: int, *, published: bool = True, reset: bool = False) -> StandsAt:
    """Where Kafka is."""
    return StandsAt(number, published, reset)


@pytest.mark.parametrize(
    ("top", "kafka", "why"),
    [
        (4, stands(4), ""),
        (4, stands(4, published=False), ""),
        (2, stands(4, published=False), ""),
        (4, stands(9, reset=True), ""),
        (None, None, ""),
        (2, stands(4), "is publication 2, and publication 4 is in Kafka: the table was restored"),
        (None, stands(4), "the table has no commit of g.frames, and publication 4 is in Kafka"),
        (4, stands(2), "the backing topic was restored or recreated"),
        (4, stands(2, reset=True), "the backing topic was restored or recreated"),
        (4, None, "the backing topic was restored or recreated"),
    ],
)
def test_table_and_kafka_are_compared_at_the_start(
    lake: Lake, top: int | None, kafka: StandsAt | None, why: str
) -> None:
    """Behind a reset a batch that was announced before it is not committed."""
    lake.declared.make(first=True)
    commits = BatchCommits(lake.declared, NAME)
    if top is not None:
        commits.commit(DeltaBatch(top, 0, "a"), look=False)
    if why:
        with pytest.raises(RecoveryError, match=why):
            commits.compare(lambda: kafka)
        return
    commits.compare(lambda: kafka)
    if kafka and kafka.reset:
        with pytest.raises(RecoveryError, match="stop the older driver of the two"):
            commits.commit(DeltaBatch(kafka.number - 1, 0, "late"), look=False)


def test_files_and_commits_that_an_announced_batch_needs_are_asked_for(lake: Lake) -> None:
    """A file that is gone, a table that is another one, or has lost commits, is named before the commit."""
    driver = lake.driver()
    driver.write(Frame(), lake.mine(0))
    with pytest.raises(Died):
        lake.driver(Life(("after", 2))).write(Frame(), lake.mine(1))
    [announced] = [r.staged.attempt for r in lake.world.records(0)[-1:] if r.staged]
    [file] = (lake.root / "lake" / "t").glob(f"*{announced}*")
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(RecoveryError, match=rf"{file.name} is not in the directory of the table"):
        lake.driver().write(Frame(), lake.mine(1))
    file.write_bytes(kept)
    other = replace(lake.declared, name="other")
    other.make(first=True)
    with pytest.raises(RecoveryError, match="was announced for files of table 't'"):
        lake.driver(table=other).write(Frame(), lake.mine(1))
    with pytest.raises(RecoveryError, match="ends at publication 0, and had publication 3 when"):
        BatchCommits(lake.declared, NAME).commit(DeltaBatch(4, 1, announced, (), 3), look=False)
    lake.driver().write(Frame(), lake.mine(1))
    lake.check(2)


def test_table_that_is_gone_is_waited_for_and_never_made_again(lake: Lake) -> None:
    """A mount that is away looks like an empty directory."""
    driver = lake.driver()
    driver.write(Frame(), lake.mine(0))
    table, away = lake.root / "lake" / "t", lake.root / "away"
    table.rename(away)
    table.mkdir()
    for one in (driver, lake.driver()):
        with pytest.raises(RetriableError, match="there is no table"):
            one.write(Frame(), lake.mine(1))
    assert not list(table.iterdir())
    table.rmdir()
    away.rename(table)
    lake.driver().write(Frame(), lake.mine(1))
    lake.check(2)


def test_table_is_made_behind_a_reset(lake: Lake) -> None:
    """A processor that wrote elsewhere before, such as into files, begins again with a table."""
    commits = BatchCommits(replace(lake.declared, name="new"), NAME)

    with pytest.raises(RetriableError, match="there is no table"):
        commits.compare(lambda: stands(4))
    commits.compare(lambda: stands(5, reset=True))
    assert commits.top == 5


def test_attempt_that_failed_leaves_no_file(lake: Lake) -> None:
    """Those that the driver knows are deleted by it; those of a Spark task that fails by the task."""
    lake.driver().write(Frame(), lake.mine(0))
    with pytest.raises(Died):
        lake.driver(Life(("after", 3))).write(Frame(), lake.mine(1))  # announced and committed, not published
    successor = lake.driver()
    successor.write(Frame(), lake.mine(1))  # its own attempt has lost
    assert len([*(lake.root / "lake" / "t").glob("*.parquet")]) == 2
    lake.check(2)


def test_graph_with_a_table_can_be_written_down() -> None:
    """With the environment variable that holds the address."""
    graph = into_graph(Delta(env="LAKE").table("t", columns=COLUMNS, partition_by="attempt"))
    assert Graph.from_dict(graph.to_dict()) == graph


# ---- columns


def test_added_column_is_added_to_the_table_and_other_changes_are_refused(lake: Lake) -> None:
    """At the start, before a batch is prepared."""
    lake.driver().write(Frame(), lake.mine(0))
    fewer = replace(lake.declared, columns={"n": "long"})
    with pytest.raises(ConfigError, match=r"columns that are not declared: 'attempt'.*leave="):
        lake.driver(table=fewer).write(Frame(), lake.mine(1))
    more = replace(lake.declared, columns={**COLUMNS, "note": "string"})
    commits = BatchCommits(more, NAME)
    commits.compare(lambda: stands(0))
    assert pl.read_delta(lake.url)["note"].to_list() == [None] * ROWS


def test_table_with_constraints_is_refused(lake: Lake) -> None:
    """Nothing here compares rows with them."""
    driver = lake.driver()
    driver.write(Frame(), lake.mine(0))
    deltalake.DeltaTable(lake.url).alter.add_constraint({"small": "n < 100"})
    with pytest.raises(RecoveryError, match=r"constraints, which rows from Spark are not compared with: '.*small'"):
        driver.write(Frame(), lake.mine(1))


@pytest.mark.parametrize("kind", [*SCALARS, "decimal(12,2)"])
def test_types_of_columns_are_found_by_those_of_a_frame(kind: str) -> None:
    """So a table that takes its columns from a DataFrame has types of its own."""
    assert delta_type(schema_of({"c": kind}).field("c").type) == kind


def test_rows_are_divided_and_read_as_they_were(tmp_path: Path) -> None:
    """With texts that addresses encode, and null; readers see the values, and statistics are those of the file."""
    kinds = {"id": "long", "s": "string", "d": "date", "at": "timestamp", "x": "double"}
    table = Delta(f"file://{tmp_path}").table("t", columns=kinds, partition_by=["s", "d"])
    table.make(first=True)
    at, day = datetime(2026, 1, 2, 3, 4, 5, 678, UTC), date(2026, 1, 2)
    rows = [
        {"id": n, "s": s, "d": d, "at": at if n else None, "x": 0.5}
        for n, (s, d) in enumerate([("x y/ü%=1", day), (None, day), ("a", None), ("x y/ü%=1", day), ("a", None)])
    ]
    with DividedWriter(table, schema_of(kinds), "part-0") as writer:
        batch = pa.RecordBatch.from_pylist(rows, schema=schema_of(kinds))
        found = [*writer.write(batch), *writer.finish()]
    assert sorted(one.rows for one in found) == [1, 2, 2]
    files = [TableFile(one.path, one.rows, one.bytes, *json.loads(one.more)) for one in found]
    OpenedTable(table.url(), {}).renew()
    BatchCommits(table, NAME).commit(DeltaBatch(0, 0, "a", tuple(files)), look=True)
    url = str(tmp_path / "t")
    assert pl.read_delta(url).sort("id").to_dicts() == rows
    assert deltalake.DeltaTable(url).to_pyarrow_table().sort_by("id").to_pylist() == rows
    assert pl.scan_delta(url).filter(pl.col("at") >= at, pl.col("id") > 2).collect()["id"].sum() == 7
    told = {one.path: json.loads(one.statistics) for one in files}
    [mixed] = [one for path, one in told.items() if path.startswith("s=x")]
    assert (mixed["numRecords"], mixed["nullCount"]["at"]) == (2, 1)
    assert (mixed["minValues"]["id"], mixed["maxValues"]["id"]) == (0, 3)
    assert mixed["maxValues"]["at"] == "2026-01-02T03:04:05.000678Z"
    assert "x" not in mixed["minValues"]


def test_lists_and_structures_of_a_frame_are_in_files_and_have_no_statistics(tmp_path: Path) -> None:
    """Spark says of items that they may not be null, which no table is asked to keep."""
    item = pa.struct([pa.field("n", pa.int64(), nullable=False), pa.field("id", pa.string())])
    given = pa.schema([("id", pa.int64()), ("s", item), ("l", pa.list_(pa.field("element", item, nullable=False)))])
    kinds = {field.name: delta_type(field.type) for field in given}
    assert kinds == {"id": "long", "s": "struct<n:long,id:string>", "l": "array<struct<n:long,id:string>>"}
    table = Delta(f"file://{tmp_path}").table("t", columns=kinds)
    table.make(first=True)
    rows = [{"id": 1, "s": {"n": 5, "id": "x"}, "l": [{"n": 6, "id": None}]}, {"id": 2, "s": None, "l": None}]
    made, refused = fitting(pa.RecordBatch.from_pylist(rows, schema=given), schema_of(kinds))
    assert (made.schema.types, refused) == (schema_of(kinds).types, [])
    with DividedWriter(table, schema_of(kinds), "part-0") as writer:
        [one] = [*writer.write(made), *writer.finish()]
    file = TableFile(one.path, one.rows, one.bytes, *json.loads(one.more))
    BatchCommits(table, NAME).commit(DeltaBatch(0, 0, "a", (file,)), look=True)
    assert pl.read_delta(str(tmp_path / "t")).to_dicts() == rows
    told = json.loads(file.statistics)
    assert (told["minValues"], told["nullCount"]) == ({"id": 1}, {"id": 0})


def test_files_of_a_spark_task_that_fails_are_deleted(tmp_path: Path) -> None:
    """No reference reaches the driver then."""
    table = Delta(f"file://{tmp_path}").table("t", columns={"id": "long"})
    table.make(first=True)
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    writer = DividedWriter(table, schema_of({"id": "long"}), "part-0")
    with writer:
        assert not list(writer.write(batch))
        assert list(writer.finish())
    assert list((tmp_path / "t").glob("*.parquet"))
    writer.__exit__(Died, Died(), None)
    assert not list((tmp_path / "t").glob("*.parquet"))
