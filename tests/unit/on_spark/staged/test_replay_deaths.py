"""Replays of a staged processor with state, whose driver dies anywhere: each once in rows, state and records (Y4)."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cues_kafka import Codec, DataFrameProcessor, Graph, Memory, Raw, Selection, Source, Sql, Topic, Upsert
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Extent, Staged
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Announce, Enter, Publish, Role
from cues_kafka.graph.names import replay_topic
from cues_kafka.on_spark.redelivery import Redelivery
from cues_kafka.on_spark.source.messages import COUNT, MessageReader
from cues_kafka.on_spark.source.ranges import SourceInput
from cues_kafka.on_spark.staged.chunks import packed
from cues_kafka.on_spark.staged.extents import canonical
from cues_kafka.on_spark.staged.manifest import Chunk, checksum
from cues_kafka.on_spark.staged.part_slot import Commit, PartSlot, Spool
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.on_spark.staged.table_rows import TableInto
from cues_kafka.on_spark.staged.target import DuePart
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.on_spark.staged.undecoded import Counts, Search, WriteUndecoded
from cues_kafka.on_spark.undecoded import Undecoded, undecoded_of
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.records.extents import ids_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.calling.carried import NOTHING
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, frame_spec
from cues_kafka.verify.scan import verify

PARTS = 2
REPLAY = replay_topic("g", "sum")
DEATHS = 20


class Killed(Exception):
    """The driver is dead."""


class Strict(Codec):
    """Takes digits; once it is fixed, with an `x` in front of them, too."""

    def __init__(self, fixed: bool = False) -> None:
        self.fixed = fixed

    def encode(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def decode(self, data: bytes) -> bytes:
        """The digits."""
        found = data.removeprefix(b"x") if self.fixed else data
        if not found.isdigit():
            raise ValueError(f"{data!r} is no number")
        return found


def graph_of(*, fixed: bool, into: Upsert | None = None) -> Graph:
    """What the simulation stands for."""
    to: dict[str, Any] = {"outputs": "out"} if into is None else {"into": into}
    return Graph(
        "g",
        Source("in"),
        DataFrameProcessor(print, name="sum", inputs="in", **to),
        errors="g.errors",
        topics={"in": Topic(value=Strict(fixed), partitions=PARTS)},
        defaults=Topic(value=Raw(), partitions=PARTS),
    )


@dataclass
class Spark:
    """
    As much of Spark and its driver as replays meet: offset log, commits, state, and the steps of a batch.

    Attributes:
        ends: of the batches that were begun.
        done: how many of them are finished.
        states: (count, sum) behind each computation of a batch; the last one counts.
        staged: files of each attempt.
        deadly: what decides at each step whether the driver dies.
        into: the table that has the newest total (E7); None: all totals are messages.
    """

    options: Memory
    deadly: random.Random
    into: Upsert | None = None
    chance: float = 0.0
    fixed: bool = False
    ends: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    deaths: int = 0
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    staged: dict[str, dict[int, list[tuple[int, bytes, int, int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Connections are shared in a process, by the name of the run; another test has another cluster.
        self.identity = replace(Identity.of_process("spark"), incarnation=uuid4().hex)
        self.broker = open_broker(self.options)
        _, self.facts = prepare(graph_of(fixed=False, into=self.into), self.broker)
        errors = Output("g.errors", PARTS, 1_000_000)
        self.target = StagedTarget((Output("out", PARTS, 1_000_000),), errors)

    def step(self) -> None:
        """A step of the driver, which may be its last."""
        if self.deadly.random() < self.chance and self.deaths < DEATHS:
            self.deaths += 1
            raise Killed

    @property
    def undecoded(self) -> Undecoded:
        """With the codec of now."""
        graph = graph_of(fixed=self.fixed, into=self.into)
        return undecoded_of(
            *(graph, graph.dataframes["sum"], self.identity),
            facts=self.facts,
            options=self.options,
            client_bytes=self.broker.max_bytes,
        )["in"]

    def spec(self, part: int, role: Role) -> Spec:
        """Of a slot."""
        return frame_spec("g", "sum", part, PARTS, self.identity, inputs=(), staged=role)

    def slot(self, part: int, role: Role) -> PartSlot:
        """That dies with the driver, between any two effects."""

        def hook(_: str, __: str) -> None:
            self.step()

        return PartSlot(self.spec(part, role), broker=self.broker, clock=SystemClock(), hook=hook)

    def run(self) -> None:
        """Until nothing is new, over deaths."""
        while True:
            try:
                for part in range(PARTS):
                    self.slot(part, Enter("q" if self.ends else "", False, part)).recover()
                while self.batch():
                    pass
                return
            except Killed:
                continue

    def batch(self) -> bool:
        """One batch; whether there was anything new."""
        undecoded, at = self.undecoded, self.facts.topics[REPLAY]
        redelivery = Redelivery(undecoded, REPLAY, at.topic_id, PARTS, ("g.errors",), (undecoded.binding,), PARTS, {})
        given = SourceInput(
            "g.sum", self.options, {"in": (0,) * PARTS}, back=False,
            decoding=undecoded.decoding, counted=True, redelivery=redelivery,
        )  # fmt: skip
        reader, number = MessageReader(given), self.done
        start = self.ends[number - 1] if number else reader.initialOffset()
        if number == len(self.ends):
            if (end := reader.latestOffset(start, ReadAllAvailable())) == start:
                return False
            self.ends.append(end)
        end = self.ends[number]
        self.step()
        values, counts = list[int](), Counts(0, 0)
        for partition in reader.partitions(start, end):
            for row in (row for batch in reader.read(partition) for row in batch.to_pylist()):
                if row[COUNT] is None:
                    values.append(int(row["value"].removeprefix(b"x")))
                else:
                    counts = Counts(counts.ranges + 1, counts.messages + row[COUNT])
        count, total = self.states.get(number - 1, (0, 0))
        self.states[number] = state = (count + len(values), total + sum(values))
        self.step()
        ids = ids_of({"in": self.facts.topics["in"].topic_id})
        extent = Extent(undecoded.binding, ids, canonical(start) if number else "", canonical(end))
        mine = Staged(
            query="q", batch=number, attempt=f"{number}-{self.deaths}", checksum=b"", parts=PARTS, extents=(extent,)
        )
        self.staged[mine.attempt] = self.files(mine, undecoded, redelivery, counts, state if values else None)
        self.publish(mine)
        self.done += 1
        return True

    @property
    def work(self) -> StagedWork:
        """Of the slots."""
        connected: Any = self.options
        return StagedWork(
            options=connected, graph="g", processor="sum", parts=PARTS, target=self.target, codecs=(Raw(),),
            key_fields=(None,), stateless=False, identity=self.identity, query="q", carried=NOTHING,
        )  # fmt: skip

    def committing(self, own: Staged) -> Commit | None:
        """What commits the rows of a part; the driver may die before it, and behind it."""
        if self.into is None:
            return None
        into, due = TableInto(self.into, "g", "sum"), DuePart(own, -1, self.work.refusing(own))

        def commit(rows: Iterable[tuple[int, Any]]) -> Sequence[Any]:
            self.step()
            refused = into.commit_part(due, rows)
            self.step()
            return refused

        return commit

    def files(
        self, mine: Staged, undecoded: Undecoded, redelivery: Redelivery, counts: Counts, state: tuple[int, int] | None
    ) -> dict[int, list[tuple[int, bytes, int, int]]]:
        """T1: rows in part 0, and what the second job adds."""
        work = replace(self.work, undecoded=(undecoded,), redelivery=(redelivery,))
        found: dict[int, list[tuple[int, bytes, int, int]]] = {part: [] for part in range(PARTS)}
        if state is not None and self.into:
            row = pa.RecordBatch.from_pylist([{"key": "all", "number": state[0], "total": state[1]}])
            found[0].append((0, packed(row), 1, 0))
        elif state is not None:
            columns = {"output": 0, "key": None, "value": json.dumps(state).encode(), "headers": None, "timestamp": 0}
            kinds = {"output": pa.int32(), "key": pa.binary(), "value": pa.binary(), "headers": pa.binary()}
            schema = pa.schema([*kinds.items(), ("timestamp", pa.int64()), ("error", pa.bool_())])
            payload = packed(pa.RecordBatch.from_pylist([columns | {"error": False}], schema=schema))
            found[0].append((0, payload, 1, 0))
        search = Search(work, mine, lambda: {undecoded.binding: counts})
        spans = search._spans(1)
        if spans:
            numbers = pa.RecordBatch.from_pydict({"id": [*range(len(spans))]})
            for chunk in WriteUndecoded(work, spans, 7)([numbers]):
                [row] = chunk.to_pylist()
                found[row["part"]].append((row["row"], row["payload"], row["rows"], row["errors"]))
        errors = sum(one[3] for chunks in found.values() for one in chunks)
        assert search._expected in (None, errors)
        return {part: sorted(chunks) for part, chunks in found.items()}

    def publish(self, mine: Staged) -> None:
        """T2 and T3."""
        slot = self.slot(0, Announce(mine, False))
        outcome = slot.recover()
        assert not outcome.kind, outcome.text
        assert slot.task.record
        assert slot.task.record.staged
        announced = slot.task.record.staged
        for part, chunks in self.staged[announced.attempt].items():
            self.step()
            own = replace(announced, part=part, extents=announced.extents if part == 0 else ())
            listed = tuple(Chunk(part, row, n, bad, checksum(data).hex(), 0) for row, data, n, bad in chunks)
            coming = [(row, data) for row, data, _, _ in chunks]
            slot, commit = self.slot(part, Publish(own)), self.committing(own)
            outcome = slot.publish(Spool("test"), coming, listed, self.target, commit=commit)
            assert not outcome.kind, outcome.text
        self.step()


@pytest.fixture
def options() -> Iterator[Memory]:
    """A cluster in memory."""
    made = Memory()
    yield made
    for broker in made.held:
        broker.close()


def database(root: Path) -> Upsert:
    """An empty table of SQLite."""
    with closing(sqlite3.connect(root / "sums.db")) as made:
        made.execute(
            "CREATE TABLE sums (key TEXT PRIMARY KEY, number INTEGER, total INTEGER, cues_source TEXT, "
            "cues_offset BIGINT, cues_deleted BOOLEAN NOT NULL DEFAULT false)"
        )
    return Sql(f"sqlite:///{root}/sums.db").upsert("sums", key="key", columns=["number", "total"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("table", [False, True])
def test_driver_that_dies_anywhere_replays_each_error_once(
    options: Memory, seed: int, table: bool, tmp_path: Path
) -> None:
    """Twenty deaths beside new messages: the total has every number once, and each error message one record."""
    into = database(tmp_path) if table else None
    spark, sent = Spark(options, random.Random(seed), into), list[int]()
    sender = spark.broker.sender("test")

    def send(count: int, form: bytes) -> None:
        numbers = range(len(sent), len(sent) + count)
        sender.send([("in", n % PARTS, b"k", form % n, None, 0) for n in numbers])
        sent.extend(numbers)

    send(30, b"x%d")
    send(4, b"never %d")
    never = sent[-4:]
    send(6, b"%d")
    spark.run()
    spark.fixed, spark.chance = True, 0.02
    graph = graph_of(fixed=True, into=into)
    with Repairs(graph, spark.broker) as tool:
        first = Selection(places=frozenset((one.topic, one.partition, one.offset) for one in tool.find()))
        assert len(first.places) == 34
        while tool.ask("replay", first, limit=5).asked:
            send(3, b"%d")
            if spark.deadly.random() < 0.5:
                for message in list(read_all(spark.broker, REPLAY, PARTS)):  # a repeat of everything
                    sender.send([(REPLAY, message.partition(), message.key(), message.value(), None, 0)])
            spark.run()
        spark.chance = 0.0
        spark.run()
        filed = list(tool.find())
    good = [n for n in sent if n not in never]
    if into:
        with closing(sqlite3.connect(tmp_path / "sums.db")) as opened:
            assert opened.execute("SELECT number, total FROM sums").fetchall() == [(len(good), sum(good))]
    else:
        outs = [json.loads(message.value() or b"") for message in read_all(spark.broker, "out", PARTS)]
        assert max(outs) == [len(good), sum(good)]
        assert len({tuple(one) for one in outs}) == len(outs)
    assert spark.states[spark.done - 1] == (len(good), sum(good))
    outcomes = Counter(one.settled.outcome for one in filed if one.settled is not None)
    assert outcomes == {"row": 30, "error": 4}
    assert len(filed) == 38
    report = verify(graph, spark.broker)
    assert report.anomalies == 0, list(report.lines)
    assert report["sum"].replays == 34
    assert spark.deaths > 10
    sender.close()
