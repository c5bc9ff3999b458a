"""Looks up what implements a declaration of `into=` of a `DataFrameProcessor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.graph.blobs import FileTable
from cues_kafka.graph.dataframe import INTO, DataFrameProcessor
from cues_kafka.graph.effects import SqlTable, Upsert
from cues_kafka.on_spark.staged.file_rows import parquet_target
from cues_kafka.on_spark.staged.table_rows import sql_target
from cues_kafka.on_spark.staged.target import FrameTarget, Maker
from cues_kafka.sinks.delta.declare import DeltaTarget


def _delta(*given: Any) -> tuple[Any, FrameTarget]:
    from cues_kafka.on_spark.staged.delta_rows import delta_target  # noqa: PLC0415 - it needs an extra

    return delta_target(*given)


MAKERS: Final[Mapping[type[Any], Maker]] = {
    FileTable: parquet_target,
    DeltaTarget: _delta,
    SqlTable: sql_target,
    Upsert: sql_target,
}
"""By type of the declaration, which has `Effect.frames`."""


def frame_target(
    processor: DataFrameProcessor, frames: Mapping[str, Any], graph: str
) -> tuple[Any, FrameTarget] | None:
    """
    Return the columns of a DataFrame that go to what `into=` names, and the target; None: there is no `into=`.

    Args:
        processor: the processor.
        frames: what its function returns.
        graph: the graph's name.

    Raises:
        ConfigError: they do not fit.
    """
    if processor.into is None:
        return None
    make = MAKERS[type(processor.into)]
    return make(frames[INTO], processor.into, processor.label, f"{graph}.{processor.name}")
