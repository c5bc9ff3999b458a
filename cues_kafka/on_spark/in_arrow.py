"""`DataFrame.mapInArrow` without an import of pandas, which takes the driver half a second of its start.

Spark imports it there to look at its version alone: what comes and goes is Arrow's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType


def map_in_arrow(frame: Any, fn: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> Any:
    """
    `frame.mapInArrow(fn, schema)`.

    Args:
        frame: of Spark; one of Spark Connect, and one of another version of Spark, does it by itself.
        fn: the function, from batches to batches.
        schema: of what it returns.
    """
    make = getattr(functions, "vectorized_udf", None)
    if make is None or not hasattr(frame, "_jdf"):
        return frame.mapInArrow(fn, schema)
    column = make(fn, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*[frame[name] for name in frame.columns])
    return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: SLF001 - as Spark does
