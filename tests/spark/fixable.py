"""A staged processor whose codec refuses some messages until it is fixed: they are replayed then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cues_kafka import Codec, DataFrameProcessor, Graph, Json, Source, Topic
from cues_kafka.graph.effects import Effect

WIDTH = 2


@dataclass(frozen=True)
class Number:
    """What comes in."""

    n: int


@dataclass(frozen=True)
class Fixable(Codec):
    """JSON in which the number may be a text of digits, once a file is there."""

    fixed: str
    schema = Number

    def encode(self, value: Number) -> bytes:
        """Not used."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Number:
        """The number."""
        n = json.loads(data)["n"]
        if isinstance(n, str) and not Path(self.fixed).exists():
            raise ValueError(f"{n!r} is a text")
        return Number(int(n))


def summed(numbers: Any) -> Any:
    """How many numbers there were, and their sum."""
    from pyspark.sql import functions as f

    return numbers.groupBy(f.lit("all").alias("key")).agg(f.count("*").alias("count"), f.sum("n").alias("sum"))


def graph(name: str, fixed: str, into: Effect | None = None) -> Graph:
    """The sum, `work`; into a table, if there is one."""
    to: dict[str, Any] = {"outputs": f"{name}.out"} if into is None else {"into": into}
    work = DataFrameProcessor(summed, name="work", inputs=f"{name}.in", output_mode="update", **to)
    return Graph(
        name,
        Source(f"{name}.in"),
        work,
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=WIDTH),
        topics={f"{name}.in": Topic(value=Fixable(fixed), partitions=WIDTH)},
    )
