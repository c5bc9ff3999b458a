"""Staged processors with Spark Connect: what is refused, what is read without Java, and what goes to the server."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from cues_kafka import Avro, ConfigError, DataFrameProcessor, Graph, Json, Kafka, Source, Sql, Topic
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.on_spark.query import files
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.connect import check_classic, check_shared
from cues_kafka.on_spark.staged.extents import BatchExtents
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.making.specs import Identity

CONNECT: Any = object()
"""A session of Spark Connect, as far as it has no Java."""


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: int


def counts(orders: Any) -> Any:
    """Any function."""
    return orders


def graph_of(value: CodecSpec, **settings: Any) -> Graph:
    """One processor of DataFrames."""
    part = DataFrameProcessor(counts, inputs="orders", **(settings or {"outputs": "counts"}))
    return Graph("shop", Source("orders"), part, topics={"orders": Topic(value=value)})


REFUSED = {
    "no shared disk": ({}, Json(Order), "s3a://bucket/a", "s3a://bucket/a has to begin with file: and be on a disk"),
    "a plain path": ({}, Json(Order), "/tmp/a", "/tmp/a has to begin with file:"),
    "a registry": ({}, Avro(Order, registry=True), "file:/a", "reads 'orders' with a schema registry"),
    "a target": ({"into": Sql("sqlite:////tmp/x").table("t", columns=["id"])}, Json(Order), "file:/a", "writes into"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_known_without_java_is_refused_with_the_remedy(case: str) -> None:
    """Before the query starts."""
    settings, value, checkpoint, text = REFUSED[case]
    graph = graph_of(value, **settings)
    with pytest.raises(ConfigError, match=text):
        check_shared(graph, graph.dataframes["counts"], checkpoint)


def test_a_checkpoint_on_a_shared_disk_is_enough() -> None:
    """For a processor between topics; a frame of any sources needs Java."""
    graph = graph_of(Json(Order))
    check_shared(graph, graph.dataframes["counts"], "file:/a")
    with pytest.raises(ConfigError, match="Declare a DataFrameProcessor in a graph"):
        check_classic(CONNECT)


def test_files_are_read_and_written_without_java(tmp_path: Path) -> None:
    """Below a path that begins with `file:`; of another path nothing is known."""
    for place in (f"file:{tmp_path}/a", f"file://{tmp_path}/b"):
        files.write_bytes(CONNECT, f"{place}/x/one", b"1")
        assert files.read_text(CONNECT, f"{place}/x/one") == "1"
        assert files.names(CONNECT, f"{place}/x") == ["one"]
        assert files.size(CONNECT, place) == 1
        files.delete(CONNECT, f"{place}/x")
        assert files.names(CONNECT, place) == []
        with pytest.raises(FileNotFoundError):
            files.read_text(CONNECT, f"{place}/x/one")
    assert files.local(CONNECT, "s3a://bucket/a") is None


def test_a_batch_goes_to_the_process_of_the_server() -> None:
    """With the places where its inputs begin, and without a connection."""
    work = StagedWork(
        options=Kafka("localhost:1"),
        graph="shop",
        processor="counts",
        parts=2,
        target=StagedTarget((Output("counts", 2, 1_000_000),), None),
        codecs=(Json(),),
        key_fields=(None,),
        stateless=False,
        identity=Identity.of_process("spark"),
    )
    taken = BatchExtents(work, "file:/a", {"orders": "orders"}, {"orders": '{"orders":{"0":7}}'}, listed=False)

    serializer: Any = CloudPickleSerializer
    copy = pickle.loads(serializer().dumps(StagedBatch(work, taken, "file:/a")))

    assert replace(copy._extents, work=work) == taken
    assert replace(copy._work, into=work.into) == replace(copy._extents.work, into=work.into) == work
    assert type(copy._work.into) is type(work.into)
    assert copy._tell is None
