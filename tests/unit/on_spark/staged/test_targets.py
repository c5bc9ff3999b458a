"""Targets of `into=` whose parts commit for themselves (E5), on the reference broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from cues_kafka.core.records import Attempt
from cues_kafka.core.staged import Publish
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.staged.chunks import packed
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Chunk, checksum
from cues_kafka.on_spark.staged.part_slot import PartSlot, Spool
from cues_kafka.on_spark.staged.target import DuePart, OutputTopics, PartTarget
from cues_kafka.on_spark.staged.topics import ERRORS
from cues_kafka.task.clock import SystemClock
from tests.unit.on_spark.staged.world import PARTS, World, chunks_of


@dataclass(frozen=True)
class Table(OutputTopics, PartTarget):
    """Keeps the publication number of each part with its rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def commit_part(self, due: DuePart, rows: Iterable[tuple[int, pa.Table]]) -> Sequence[pa.Table]:
        batch = due.batch
        if self.numbers.get(batch.part, -1) < batch.number:
            self.rows.extend(row for _, table in rows for row in table.to_pylist())
            self.numbers[batch.part] = batch.number
        return ()


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("moment", ["", "before", "after"])
def test_part_commits_its_rows_once_before_its_record_wherever_it_dies(moment: str) -> None:
    """Rows go to the table, error messages to Kafka, and both are counted."""
    world, table = World(), Table()
    outcome, announced = world.driver().announce(0)
    assert not outcome.kind
    assert announced

    def publish(part: int, moment: str = "") -> Outcome:
        def hook(now: str, effect: str) -> None:
            if moment == now and effect == "Commit":
                raise Died

        spec = world.spec(part, Publish(replace(announced, part=part)), "first")
        slot = PartSlot(spec, broker=world.broker, clock=SystemClock(), hook=hook)
        payload = packed(pa.RecordBatch.from_pydict({"n": [part, part]}))
        good = Chunk(part, 0, 2, 0, checksum(payload).hex(), 0)
        [(_, bad)], [errors] = chunks_of([(ERRORS, b"bad")])
        chunks = (good, errors._replace(part=part, row=9))
        refusing = Refusing("g", "frames", "first", 0, (), world.target)
        commit = partial(table.commit_part, DuePart(replace(announced, part=part), -1, refusing))
        return slot.publish(Spool("test"), [(0, payload), (9, bad)], chunks, world.target, commit=commit)

    if moment:
        with pytest.raises(Died):
            publish(0, moment)
        assert table.rows == [{"n": 0}, {"n": 0}]
        world.driver().enter()
    for part in range(PARTS):
        assert not publish(part).kind

    assert sorted(row["n"] for row in table.rows) == [part for part in range(PARTS) for _ in range(2)]
    assert world.written("g.errors") == PARTS
    for part in range(PARTS):
        newest = world.records(part)[-1]
        assert isinstance(newest, Attempt)
        totals = newest.totals
        assert (totals.deliveries, totals.nils, totals.errors, totals.messages) == (3, 2, 1, 0)
