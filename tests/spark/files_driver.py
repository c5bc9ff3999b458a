"""The program that tests of batches in files kill (E5, E6): counts of keys, as Parquet files or a table of Delta Lake.

Each row has a number that no two computations share, so a reader sees it when two attempts are mixed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from cues_kafka import Blobs, DataFrameProcessor, Delta, Graph, Json, Source, Topic
from cues_kafka.core.records import Staged
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.staged import run as staged_run
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.files import Staging
from cues_kafka.on_spark.staged.manifest import Manifest
from tests.spark.fault_driver import run_graph, session_of
from tests.spark.staged_driver import WIDTH, Number, PointedStagedSpark, PointedStagedWork, StagedPoint, counts

BAD = "k7"
"""The key whose count is a text that does not fit."""

SCHEMA = {"key": "string", "count": "int64", "nonce": "string"}
COLUMNS = {**SCHEMA, "count": "long"}


def texts(numbers: Any) -> Any:
    """Counts as text."""
    from pyspark.sql import functions as f

    count = f.when(f.col("key") == BAD, f.lit("seven")).otherwise(f.col("count").cast("string"))
    return counts(numbers).withColumn("count", count)


def graph(name: str, url: str, kind: str = "files") -> Graph:
    """
    One aggregation.

    Args:
        name: of the graph, and prefix of its topics.
        url: of the store.
        kind: `files` or `delta`.
    """
    delta = Delta(url).table("counts", columns=COLUMNS, partition_by="key")
    into = delta if kind == "delta" else Blobs(url).parquet("counts", schema=SCHEMA)
    return Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(texts, name="work", inputs=f"{name}.in", into=into, output_mode="update"),
        errors=f"{name}.errors",
        topics={f"{name}.in": Topic(value=Json(Number), partitions=WIDTH)},
    )


class PointedFiles(StagedBatch):
    """Batches with crash points: `announced` (their entry is due), `committed` (their part is due), `published`."""

    def _commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        self._pass("announced", announced)
        super()._commit(announced, manifest, staged_here=staged_here)
        self._pass("committed", announced)

    def _publish(self, staging: Staging, batch: Staged, manifest: Manifest) -> list[Outcome]:
        outcomes = super()._publish(staging, batch, manifest)
        self._pass("published", batch)
        return outcomes

    def _pass(self, where: str, batch: Staged) -> None:
        if isinstance(self._work, PointedStagedWork) and self._work.point:
            self._work.point.pass_by(where, batch.batch)


def main(setup: dict[str, Any]) -> int:
    """The session, then the graph until told to stop."""
    engine = PointedStagedSpark(
        session_of(setup),
        checkpoint=setup["checkpoint"],
        max_offsets_per_trigger=setup["limit"],
        point=StagedPoint(**setup["point"], pipe=setup["pipe"]) if setup["point"] else None,
    )
    with mock.patch.object(staged_run, "StagedBatch", PointedFiles):
        return run_graph(setup, engine)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
