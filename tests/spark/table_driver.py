"""The program that tests of batches in tables of a database kill (E7): counts of keys, of which one does not fit.

Each row has a number that no two computations share, so a reader sees it when two attempts are mixed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from cues_kafka import DataFrameProcessor, Graph, Json, Source, Sql, Topic
from cues_kafka.graph.effects import SqlTable
from cues_kafka.on_spark import frame_targets
from cues_kafka.on_spark.staged.table_rows import TableInto, sql_target
from cues_kafka.on_spark.staged.target import DuePart
from tests.spark.fault_driver import run_graph, session_of
from tests.spark.files_driver import texts
from tests.spark.staged_driver import WIDTH, Number, PointedStagedSpark, StagedPoint

TABLE = "CREATE TABLE counts (k VARCHAR(20), n INTEGER, nonce VARCHAR(80))"

COLUMNS = {"k": "key", "n": "count", "nonce": "nonce"}


def graph(name: str, url: str) -> Graph:
    """
    One aggregation.

    Args:
        name: of the graph, and prefix of its topics.
        url: of the database.
    """
    into = Sql(url).table("counts", columns=COLUMNS)
    return Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(texts, name="work", inputs=f"{name}.in", into=into, output_mode="update"),
        errors=f"{name}.errors",
        topics={f"{name}.in": Topic(value=Json(Number), partitions=WIDTH)},
    )


@dataclass(frozen=True)
class PointedInto(TableInto):
    """Parts with crash points: `due` (nothing is written), `written` (the record of the part is due)."""

    point: StagedPoint | None = None

    def commit_part(self, due: DuePart, rows: Iterable[tuple[int, pa.Table]]) -> Sequence[pa.Table]:
        self._pass("due", due)
        refused = TableInto.commit_part(self, due, rows)
        self._pass("written", due)
        return refused

    def _pass(self, where: str, due: DuePart) -> None:
        if self.point:
            self.point.pass_by(where, due.batch.batch)


def main(setup: dict[str, Any]) -> int:
    """The session, then the graph until told to stop."""
    point = StagedPoint(**setup["point"], pipe=setup["pipe"]) if setup["point"] else None

    def pointed(frame: Any, table: SqlTable, label: str, processor: str) -> tuple[Any, TableInto]:
        rows, into = sql_target(frame, table, label, processor)
        return rows, PointedInto(into.table, into.graph, into.processor, point)

    engine = PointedStagedSpark(
        session_of(setup), checkpoint=setup["checkpoint"], max_offsets_per_trigger=setup["limit"]
    )
    with mock.patch.dict(frame_targets.MAKERS, {SqlTable: pointed}):
        return run_graph(setup, engine)


if __name__ == "__main__":
    from tests.spark import table_driver  # its classes are those of the module that Spark's processes import

    sys.exit(table_driver.main(json.loads(Path(sys.argv[1]).read_text())))
