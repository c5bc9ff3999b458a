"""A codec that is defined in a user's module, on Spark's processes, which cannot import that module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Kafka, Raw, Source, Topic, connect, start
from cues_kafka.cli.loading import load_graph
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = pytest.mark.timeout(300)

MODULE = """
from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from cues_kafka import Codec, DataFrameProcessor, Digits, Graph, Processor, Source, Topic


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: Annotated[Decimal, Digits(5, 1)]


class Line:
    # What cannot be pickled: only open() makes one.
    def __init__(self, separator: str) -> None:
        self.separator, self.split = separator, lambda text: text.split(separator)


@dataclass(frozen=True)
class Lines(Codec):
    separator: str = ","
    schema = Reading

    def encode(self, value: Reading) -> bytes:
        raise NotImplementedError("not opened")

    def decode(self, data: bytes) -> Any:
        raise NotImplementedError("not opened")

    def open(self, topic: str, part: str) -> Codec:
        return Opened(Line(self.separator))


class Opened(Codec):
    schema = Reading

    def __init__(self, line: Line) -> None:
        self.line = line

    def encode(self, value: Reading) -> bytes:
        return f"{value.sensor}{self.line.separator}{value.celsius}".encode()

    def decode(self, data: bytes) -> Reading:
        sensor, celsius = self.line.split(data.decode())
        return Reading(sensor, Decimal(celsius))


def warmer(reading: Reading) -> Reading:
    return Reading(reading.sensor, reading.celsius + 1)


def warmer_rows(readings):
    return readings.selectExpr("sensor", "CAST(celsius + 1 AS DECIMAL(5, 1)) AS celsius", "_cues")


def warmest(readings):
    return readings.groupBy("sensor").agg({"celsius": "max"}).withColumnRenamed("max(celsius)", "celsius")


graph = Graph(
    "NAME",
    Source("NAME.in"),
    Processor(warmer, inputs="NAME.in", outputs="NAME.plain"),
    DataFrameProcessor(warmer_rows, name="direct", inputs="NAME.in", outputs="NAME.direct"),
    DataFrameProcessor(warmest, name="staged", inputs="NAME.in", outputs="NAME.staged", output_mode="update"),
    defaults=Topic(value=Lines(";"), key="sensor"),
    errors="NAME.errors",
)
"""


@pytest.mark.parametrize(
    "processor", ["direct", *(pytest.param(name, marks=pytest.mark.full) for name in ("warmer", "staged"))]
)
def test_a_codec_of_a_users_module_reads_and_writes_on_sparks_processes(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: str
) -> None:
    """Called by a function, and for the columns of DataFrames."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = kafka.unique(processor)
    file = tmp_path / f"{name.replace('-', '_')}.py"
    file.write_text(MODULE.replace("NAME", name))
    graph = load_graph(f"{file}:graph")
    output = f"{name}.{'plain' if processor == 'warmer' else processor}"
    raw = Graph(f"{name}-raw", Source(output), defaults=Topic(value=Raw()))
    readings = [sys.modules[file.stem].Reading("attic", 21), sys.modules[file.stem].Reading("cellar", 3)]

    engine = Spark(spark, checkpoint=str(tmp_path / "c"))
    with start(graph, Kafka(kafka.bootstrap), engine=engine, only=[processor]) as running:
        running.send_many(f"{name}.in", readings)
        running.wait_idle(timeout_s=180)
    with connect(Kafka(kafka.bootstrap), raw) as client:
        found = sorted((message.key, message.value) for message in client.messages(output))

    plus = 0 if processor == "staged" else 1
    digits = "" if processor == "warmer" else ".0"
    assert found == [(s, f"{s};{n + plus}{digits}".encode()) for s, n in (("attic", 21), ("cellar", 3))]
