"""`mapInArrow` without pandas in the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas import functions

from cues_kafka.on_spark.in_arrow import map_in_arrow


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [2 * one for one in batch.column("id").to_pylist()]})


def test_rows_are_those_of_spark_and_pandas_is_not_asked_for(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own call imports it to look at its version."""
    frame = spark.range(5)
    expected = sorted(frame.mapInArrow(doubled, "id BIGINT").collect())

    def asked() -> None:
        raise AssertionError("pandas is imported")

    monkeypatch.setattr(functions, "require_minimum_pandas_version", asked)
    found = map_in_arrow(frame, doubled, "id BIGINT")

    assert sorted(found.collect()) == expected == [(0,), (2,), (4,), (6,), (8,)]
    assert type(found) is type(frame)
