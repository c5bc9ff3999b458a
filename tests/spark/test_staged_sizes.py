"""Who keeps and who publishes a staged batch: the driver where its rows are few, else Spark; on any file system."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.query import files
from cues_kafka.on_spark.query.plans import STORE
from cues_kafka.on_spark.staged import files as staging
from cues_kafka.on_spark.staged.files import SMALL_BYTES, SMALL_ROWS, Staging
from cues_kafka.ports.facts import NewTopic
from cues_kafka.spark import write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import committed_all, produce, until
from tests.spark.streams import frame_of

pytestmark = pytest.mark.timeout(300)

WIDTH = 3

FEW: list[bytes] = [b"%d" % n for n in range(30)]
MANY: list[bytes] = [b"%d" % n for n in range(SMALL_ROWS + 1)]
LARGE: list[bytes] = [os.urandom(20_000) for _ in range(2 * SMALL_BYTES // 20_000)]
"""Each of three Spark tasks has more than the quarter of `SMALL_BYTES`."""


@pytest.fixture
def topics(kafka: KafkaFixture) -> Iterator[tuple[Kafka, str, str]]:
    """The cluster, an input of one partition, and an output."""
    options, source, target = Kafka(kafka.bootstrap), kafka.unique("in"), kafka.unique("out")
    broker = open_broker(options)
    broker.create([NewTopic(source, 1), NewTopic(target, WIDTH)])
    yield options, source, target
    broker.close()


def written(checkpoint: Path) -> tuple[int, set[str]]:
    """The batch whose files are there, and by whom they are."""

    def attempts() -> list[Path]:
        return list((checkpoint / "stage").glob("*/*"))

    until(lambda: len(attempts()) == 1, "the files of the batch before are gone: they go behind its publication")
    [attempt] = attempts()
    rows = {"driver" if file.name == "few.parquet" else "Spark" for file in (attempt / "rows").glob("*.parquet")}
    return int(attempt.parent.name), rows


def published(options: Kafka, target: str) -> Counter[bytes]:
    """What readers at read_committed see."""
    return Counter(bytes(one.value() or b"") for one in committed_all(options.bootstrap, [target])[target])


def settle(query: Any, options: Kafka, target: str, expected: Counter[bytes]) -> None:
    """All is published, and nothing else: what a sender has committed readers see a moment later."""

    def done() -> bool:
        query.processAllAvailable()
        return published(options, target) == expected

    until(done, "all that was sent is published once", 60)


@pytest.mark.full
def test_batches_of_every_size_are_published_once_by_driver_and_by_spark(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """
    Whether a batch is kept by the driver follows from the one before; so few come behind many, and many behind few:
    more rows than it publishes itself, and more bytes than it keeps, which are computed once more.
    """
    options, source, target = topics
    sent = Counter[bytes]()
    frame = frame_of(spark, options, source).repartition(WIDTH).select("value")
    query = write_exactly_once(frame, options, topic=target, name=f"{target}-sizes", checkpoint=str(tmp_path))
    seen = []
    for values in (FEW, FEW, MANY, FEW, FEW, LARGE, FEW):
        produce(options.bootstrap, source, values, transaction=True)  # so that they are one batch
        sent.update(values)
        settle(query, options, target, sent)
        seen.append(written(tmp_path))
    query.stop()
    assert [by for _, by in sorted(seen)] == [
        {"Spark"},
        {"driver"},
        {"driver"},
        {"Spark"},
        {"driver"},
        {"Spark"},
        {"Spark"},
    ]


@pytest.mark.full
@pytest.mark.parametrize("store", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_state_counts_a_batch_once_that_was_computed_again(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its first computation, which was more than the driver keeps, has done to the state is undone."""
    from pyspark.sql import functions as f

    options, source, target = topics
    gather, too_many = Staging._gather, []

    def gathered(*args: Any) -> Any:
        found = gather(*args)
        too_many.append(found is None)
        return found

    monkeypatch.setattr(Staging, "_gather", gathered)
    spark.conf.set(STORE, f"org.apache.spark.sql.execution.streaming.state.{store}")
    try:
        frame = frame_of(spark, options, source)
        counted = frame.groupBy("value").agg(f.count("*").cast("string").cast("binary").alias("count"))
        rows = counted.select(f.concat("count", "value").alias("value"))
        query = write_exactly_once(
            rows, options, topic=target, name=f"{target}-state", checkpoint=str(tmp_path), output_mode="update"
        )
        sent, expected, by = Counter[bytes](), Counter[bytes](), set[str]()
        for values in (FEW, LARGE, FEW, FEW, LARGE):
            produce(options.bootstrap, source, values, transaction=True)
            sent.update(values)
            expected.update(b"%d" % sent[value] + value for value in values)
            settle(query, options, target, expected)
            by = written(tmp_path)[1]
        query.stop()
    finally:
        spark.conf.unset(STORE)
    assert too_many == [True]
    assert by == {"Spark"}


@pytest.mark.full
def test_files_that_only_spark_sees_are_published_once(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on HDFS or an object store: all is asked of Java, and Spark's jobs read what its tasks have written."""
    for module in (files, staging):
        monkeypatch.setattr(module, "local", lambda *_: None)
    options, source, target = topics
    sent = Counter[bytes]()
    frame = frame_of(spark, options, source).repartition(WIDTH).select("value")
    query = write_exactly_once(frame, options, topic=target, name=f"{target}-far", checkpoint=str(tmp_path))
    for values in (LARGE, FEW, FEW):
        produce(options.bootstrap, source, values, transaction=True)  # so that they are one batch
        sent.update(values)
        settle(query, options, target, sent)
    query.stop()
    assert written(tmp_path)[1] == {"driver"}
