"""Rows of staged batches in a database (E7), on the reference broker and SQLite, without Spark."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cues_kafka import DataFrameProcessor, Graph, Source, Sql
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.records import Attempt, Staged
from cues_kafka.core.staged import Publish
from cues_kafka.errors import CodecError, RecoveryError
from cues_kafka.graph.effects import SqlTable, Upsert
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.staged.chunks import packed
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Chunk, Manifest, StagedFile, checksum
from cues_kafka.on_spark.staged.part_slot import PartSlot, Spool
from cues_kafka.on_spark.staged.table_rows import TableCommits, TableInto
from cues_kafka.on_spark.staged.target import DuePart
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.plan.edges import edges_of
from cues_kafka.records.scanning import read_all
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.sinks.standing import StandsAt
from cues_kafka.sinks.tables import make_tables
from cues_kafka.spark import explain
from cues_kafka.task.clock import SystemClock
from tests.unit.on_spark.staged.world import PARTS, World

ROWS = 10
BAD = 4
"""Of ten rows: the one that the database refuses."""


def same(a: Any) -> Any:
    """Of DataFrames; no test calls it here."""
    return a


class Died(BaseException):
    """The process is gone."""


class Tables:
    """A staged processor whose parts write to SQLite."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop.db"
        self.world = World()
        with sqlite3.connect(self.path) as made:
            made.execute("CREATE TABLE counts (part INTEGER, n INTEGER PRIMARY KEY, text TEXT CHECK (text <> 'bad'))")
            made.execute(
                "CREATE TABLE latest (part INTEGER PRIMARY KEY, n INTEGER, cues_source TEXT, cues_offset INTEGER, "
                "cues_deleted BOOLEAN NOT NULL DEFAULT FALSE)"
            )
        self.sql = Sql(f"sqlite:///{self.path}")
        make_tables(self.sql, "into", create=True)
        self.into = self.of(self.sql.table("counts", columns=["part", "n", "text"]))

    def of(self, table: SqlTable | Upsert) -> TableInto:
        return TableInto(table, "g", "frames")

    def query(self, statement: str) -> list[Any]:
        """What readers of the database see."""
        with sqlite3.connect(self.path) as opened:
            return opened.execute(statement).fetchall()

    def announce(self, batch: int) -> Staged:
        """T2."""
        outcome, announced = self.world.driver().announce(batch)
        assert not outcome.kind, outcome.text
        assert announced
        return announced

    def publish(
        self, batch: Staged, part: int, moment: str = "", *, into: TableInto | None = None, above: int = -1
    ) -> Outcome:
        """T3; die before or after Kafka's commit, or `between` the two."""

        def hook(now: str, effect: str) -> None:
            if moment == now and effect == "Commit":
                raise Died

        own = replace(batch, part=part)
        slot = PartSlot(
            self.world.spec(part, Publish(own), "first"), broker=self.world.broker, clock=SystemClock(), hook=hook
        )
        payload = packed(pa.RecordBatch.from_pylist(self.rows(batch, part)))
        chunks = (Chunk(part, 0, ROWS, 0, checksum(payload).hex(), 0),)
        due = DuePart(own, above, self.refusing(batch))
        commit = partial((into or self.into).commit_part, due)
        return slot.publish(Spool("test"), [(0, payload)], chunks, self.world.target, commit=commit)

    def refusing(self, batch: Staged, *, errors: bool = True) -> Refusing:
        """What makes error messages."""
        target = self.world.target if errors else StagedTarget(())
        return Refusing("g", "frames", "first", batch.batch, (), replace(target, outputs=()))

    def rows(self, batch: Staged, part: int) -> list[dict[str, Any]]:
        """What Spark has computed for a part."""
        first = (batch.batch * PARTS + part) * ROWS
        return [
            {"part": part, "n": n, "text": "bad" if n % 10 == BAD else f"row {n}"} for n in range(first, first + ROWS)
        ]

    def errors(self) -> list[str]:
        """Reasons in the errors topic."""
        return [error_messages().decode(one.value() or b"").text for one in read_all(self.world.broker, "g.errors", 2)]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """The processor."""
    return Tables(tmp_path)


@pytest.mark.parametrize("moment", ["", "before", "after"])
@pytest.mark.parametrize("of_database", [False, True])
def test_rows_of_a_part_are_committed_once_wherever_it_dies(
    tables: Tables, moment: str, of_database: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around the commit of the database, and around Kafka's. A refused row is one error message."""
    batch = tables.announce(0)
    commit = SqlTarget.commit

    def dies(target: SqlTarget, *given: Any) -> None:
        if moment == "after":
            commit(target, *given)
        raise Died

    if moment:
        with monkeypatch.context() as patched:
            if of_database:
                patched.setattr(SqlTarget, "commit", dies)
            with pytest.raises(Died):
                tables.publish(batch, 0, "" if of_database else moment)
        assert bool(tables.query("SELECT n FROM counts")) == ((of_database, moment) != (True, "before"))
        tables.world.driver().enter()
    for part in range(PARTS):
        assert not tables.publish(batch, part).kind

    kept = [n for n in range(PARTS * ROWS) if n % 10 != BAD]
    assert [row[0] for row in tables.query("SELECT n FROM counts ORDER BY n")] == kept
    reasons = tables.errors()
    assert len(reasons) == PARTS
    assert all("table 'counts' refuses a row: IntegrityError: CHECK constraint failed" in one for one in reasons)
    for part in range(PARTS):
        newest = tables.world.records(part)[-1]
        assert isinstance(newest, Attempt)
        totals = newest.totals
        assert (totals.deliveries, totals.nils, totals.errors, totals.messages) == (ROWS, ROWS - 1, 1, 0)


def test_without_an_errors_topic_nothing_of_the_part_is_written(tables: Tables) -> None:
    """The text names table, reason and remedy."""
    batch = replace(tables.announce(0), part=0)
    rows = pa.Table.from_pylist(tables.rows(batch, 0))

    with pytest.raises(CodecError, match=r"a row does not fit 'counts': .*CHECK constraint.* Declare an errors topic"):
        tables.into.commit_part(DuePart(batch, -1, tables.refusing(batch, errors=False)), [(0, rows)])

    assert tables.query("SELECT n FROM counts") == []


def test_older_driver_writes_nothing_behind_the_next_batch(tables: Tables) -> None:
    """A number that is passed is refused, and one that is there is left alone."""
    first = tables.announce(0)
    for part in range(PARTS):
        tables.publish(first, part)
    second = tables.announce(1)
    tables.publish(second, 0)
    rows = [(0, pa.Table.from_pylist(tables.rows(first, 0)))]
    before = tables.query("SELECT n FROM counts")

    with pytest.raises(RecoveryError, match="stop the older driver of the two"):
        tables.into.commit_part(DuePart(replace(first, part=0), -1, tables.refusing(first)), rows)
    tables.into.commit_part(DuePart(replace(second, part=0), -1, tables.refusing(second)), rows)
    with pytest.raises(RecoveryError, match="of another attempt: another cluster writes to this database"):
        tables.into.commit_part(DuePart(replace(second, part=0, attempt="x"), -1, tables.refusing(second)), rows)

    assert tables.query("SELECT n FROM counts") == before


def test_database_that_lost_a_batch_is_refused_and_a_reset_begins_again(tables: Tables) -> None:
    """By the next driver, by one that works on, and behind the reset rows of an older batch are refused."""
    batch = tables.announce(0)
    for part in range(PARTS):
        tables.publish(batch, part)
    commits = TableCommits(tables.into)
    commits.compare(lambda: StandsAt(batch.number, True, False))
    assert commits.top == batch.number
    with pytest.raises(RecoveryError, match="its newest record in Kafka is at -1: the backing topic was restored"):
        TableCommits(tables.into).compare(lambda: None)

    tables.query("UPDATE cues_task SET step = 0")
    with pytest.raises(RecoveryError, match="the database has lost rows of 'frames'"):
        TableCommits(tables.into).compare(lambda: StandsAt(batch.number, True, False))
    second = tables.announce(1)
    with pytest.raises(RecoveryError, match=f"it had publication {commits.top} when the batch was prepared"):
        tables.publish(second, 0, above=commits.top)
    tables.query("DELETE FROM cues_task")
    with pytest.raises(RecoveryError, match="has no rows of 'frames' in cues_task"):
        TableCommits(tables.into).compare(lambda: StandsAt(batch.number, True, False))

    tables.publish(second, 0)
    commits = TableCommits(tables.into)
    commits.compare(lambda: StandsAt(second.number + 5, False, True))
    assert commits.top == -1
    with pytest.raises(RecoveryError, match="stop the older driver"):
        tables.into.commit_part(DuePart(replace(second, part=0), -1, tables.refusing(second)), [])


def test_batch_that_was_announced_for_files_or_other_columns_is_not_mixed_up(tables: Tables) -> None:
    """The declaration has changed since; nothing is written."""
    batch = tables.announce(0)
    manifest = Manifest(0, "a", (), (), (), "", (StagedFile("x", "lake", 1, 1),))
    with pytest.raises(RecoveryError, match="was announced for files of table 'lake'"):
        TableCommits(tables.into).commit(batch, manifest, staged_here=False)
    other = tables.of(tables.sql.table("counts", columns={"n": "amount"}))
    with pytest.raises(RecoveryError, match="Declare into= as it was"):
        tables.publish(batch, 0, into=other)
    assert tables.query("SELECT n FROM counts") == []


def test_upsert_keeps_the_row_of_the_newest_batch(tables: Tables) -> None:
    """Each batch replaces the rows of its keys."""
    into = tables.of(tables.sql.upsert("latest", key="part", columns=["n"]))
    for number in range(2):
        batch = tables.announce(number)
        for part in range(PARTS):
            assert not tables.publish(batch, part, into=into).kind

    assert tables.query("SELECT part, n FROM latest ORDER BY part") == [
        (part, (PARTS + part + 1) * ROWS - 1) for part in range(PARTS)
    ]


def test_declaration_is_data_and_says_what_it_guarantees() -> None:
    """`plan` and `explain` name the table and the level."""
    into = Sql(env="SHOP").upsert("latest", key="id", columns=["total"])
    graph = Graph("g", Source("a"), DataFrameProcessor(same, inputs="a", into=into))
    [edge] = [one for one in edges_of(graph) if one.parts == ("same",) and "latest" in one.where]

    assert Graph.from_dict(graph.to_dict()) == graph
    assert (edge.where, edge.level) == ("same -> table latest", "exactly once")
    assert explain(graph)["same"].why.endswith(
        "each batch is prepared in files, then written to the table part by part"
    )
