"""`write_exactly_once` of frames that shuffle, keep state, come from anywhere, or do not stream at all."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cues_kafka import ConfigError, Kafka, RecoveryError, TaskStopped, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.names import backing_topic
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.plan.topics import backing_config
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.spark import Written, register, write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture
from tests.spark.streams import frame_of

pytestmark = pytest.mark.timeout(300)

WIDTH = 3
COUNT = 60


@pytest.fixture
def topics(kafka: KafkaFixture) -> Iterator[tuple[Kafka, str, str]]:
    """The cluster, an input with 60 messages, and an output."""
    options, source, target = Kafka(kafka.bootstrap), kafka.unique("in"), kafka.unique("out")
    broker = open_broker(options)
    kept = {"retention.ms": "-1"}  # else the broker may delete a message of 1970 within a minute
    broker.create([NewTopic(source, WIDTH), NewTopic(target, WIDTH, config=kept)])
    with connect(options) as client:
        client.send_many(source, [{"n": n} for n in range(COUNT)])
    yield options, source, target
    broker.close()


def found(options: Kafka, topic: str) -> list[Any]:
    """What readers at read_committed see."""
    with connect(options) as client:
        return [one.value for one in client.messages(topic)]


def number(frame: Any) -> Any:
    """Of a message."""
    from pyspark.sql import functions as f

    return f.get_json_object(frame["value"].cast("string"), "$.n").cast("int")


def union(frame: Any) -> Any:
    """Each message twice."""
    return frame.union(frame).select("value")


def repartitioned(frame: Any) -> Any:
    """Rows of several partitions in one Spark task."""
    return frame.repartition(2).select("value")


def parity(frame: Any) -> Any:
    """State, and a row for each batch."""
    return frame.groupBy((number(frame) % 2).alias("parity")).count()


def blind(frame: Any) -> Any:
    """No shuffle, but nothing says which message a row was made from."""
    return frame.select("value")


Shape = tuple[Callable[[Any], Any], str, Counter[Any]]
SHAPES: list[Shape] = [
    (union, "append", Counter(dict.fromkeys(range(COUNT), 2))),
    (repartitioned, "append", Counter(range(COUNT))),
    (blind, "append", Counter(range(COUNT))),
    (parity, "update", Counter({(0, 30): 1, (1, 30): 1})),
]


@pytest.mark.parametrize(
    "given",
    [pytest.param(one, id=one[0].__name__, marks=() if one[0] is union else pytest.mark.full) for one in SHAPES],
)
def test_what_cannot_be_written_directly_is_staged(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path, given: Shape
) -> None:
    """And a batch that Spark runs again, for its commit log was lost, changes nothing."""
    (options, source, target), (shape, mode, expected) = topics, given
    for _ in range(2):
        frame = shape(frame_of(spark, options, source))
        query = write_exactly_once(
            frame, options, topic=target, name=f"{target}-job", checkpoint=str(tmp_path), output_mode=mode
        )
        query.processAllAvailable()
        query.stop()
        rows = found(options, target)
        assert Counter(row["n"] if "n" in row else (row["parity"], row["count"]) for row in rows) == expected
        last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdecimal())
        (tmp_path / "commits" / str(last)).unlink()
        (tmp_path / "commits" / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.full
def test_a_source_that_is_no_topic_is_staged_too(spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path) -> None:
    """Files that arrive in a directory."""
    options, _, target = topics
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for run in range(2):
        (inbox / f"{run}.json").write_text("\n".join(f'{{"n": {n}}}' for n in range(10 * run, 10 * run + 10)))
        frame = spark.readStream.schema("n INT").json(str(inbox))
        query = write_exactly_once(
            frame, options, topic=target, name=f"{target}-files", checkpoint=str(tmp_path / "checkpoint")
        )
        query.processAllAvailable()
        query.stop()
    assert sorted(row["n"] for row in found(options, target)) == list(range(20))


@pytest.mark.full
@pytest.mark.parametrize("given", [(parity, "update", 2), (blind, "append", COUNT)], ids=["state", "no state"])
def test_a_checkpoint_that_is_gone_is_refused(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path, given: tuple[Callable[[Any], Any], str, int]
) -> None:
    """Before the query is started, and without state too: where its sources were no other store knows."""
    (options, source, target), (shape, mode, rows) = topics, given

    def write(checkpoint: str) -> Any:
        return write_exactly_once(
            shape(frame_of(spark, options, source)),
            options,
            topic=target,
            name=f"{target}-gone",
            checkpoint=str(tmp_path / checkpoint),
            output_mode=mode,
        )

    query = write("a")
    query.processAllAvailable()
    query.stop()
    with pytest.raises(TaskStopped, match=r"this checkpoint is of another query.*another name and checkpoint"):
        write("b")
    assert len(found(options, target)) == rows


@pytest.mark.full
def test_a_topic_more_that_fits_the_pattern_is_read_too(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """No other topic was recreated for that; and the group has the offsets of both."""
    options, source, target = topics
    register(spark)
    broker = open_broker(options)
    for run in (1, 2):
        broker.create([NewTopic(f"{source}-{run}", run)])
        with connect(options) as client:
            client.send_many(f"{source}-{run}", [{"n": 100 * run + n} for n in range(10)])
        frame = (
            spark.readStream.format("cues")
            .option("kafka.bootstrap.servers", options.bootstrap)
            .option("subscribePattern", f"{source}-.*")
            .option("startingOffsets", "earliest")
            .load()
        )
        query = write_exactly_once(
            union(frame), options, topic=target, name=f"{target}-pattern", checkpoint=str(tmp_path)
        )
        query.processAllAvailable()
        query.stop()
    assert Counter(row["n"] for row in found(options, target)) == Counter(
        dict.fromkeys([*range(100, 110), *range(200, 210)], 2)
    )
    place = TopicPartition(f"{source}-1", 0)
    assert broker.committed(f"{target}-pattern.write", [place])[place] is not None
    broker.close()


@pytest.mark.full
def test_an_output_that_has_grown_since_is_written_in_as_many_parts_as_before(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """Its backing topic was made, and then nothing was announced before it got more partitions."""
    options, _, target = topics
    name, broker = f"{target}-grown", open_broker(options)
    broker.create([NewTopic(backing_topic(name, "write"), WIDTH - 1, config=backing_config(1))])
    broker.close()
    written = write_exactly_once(spark.range(9), options, topic=target, name=name, checkpoint=str(tmp_path))
    assert written == Written(9, 0, again=False)


def test_a_frame_that_does_not_stream_is_written_once_by_its_name(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """Again, with other rows: a no-op, also when its files are gone; under another name: another job."""
    options, _, target = topics

    def write(count: int, name: str) -> Written:
        frame = spark.range(count).selectExpr("id AS n", "uuid() AS nonce")
        written: Written = write_exactly_once(
            frame, options, topic=target, name=f"{target}-{name}", checkpoint=str(tmp_path / name)
        )
        return written

    assert write(COUNT, "backfill") == Written(COUNT, 0, again=False)
    first = found(options, target)
    assert write(COUNT + 1, "backfill") == Written(COUNT, 0, again=True)
    shutil.rmtree(tmp_path / "backfill")
    assert write(COUNT, "backfill") == Written(COUNT, 0, again=True)
    assert found(options, target) == first
    assert write(5, "another") == Written(5, 0, again=False)
    assert len(found(options, target)) == COUNT + 5


@pytest.mark.full
def test_jobs_that_share_a_directory_leave_each_other_alone(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """One that was announced and not published finds its files, though another one has cleaned up since."""
    options, _, target = topics
    dies_announced(lambda: job(spark, options, target, f"{target}-first", tmp_path))
    assert job(spark, options, target, f"{target}-second", tmp_path) == Written(5, 0, again=False)
    assert job(spark, options, target, f"{target}-first", tmp_path) == Written(5, 0, again=False)


@pytest.mark.full
def test_a_job_that_was_announced_for_another_topic_says_so(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """Nothing of it goes anywhere else."""
    options, source, target = topics
    dies_announced(lambda: job(spark, options, target, f"{target}-moved", tmp_path))
    with pytest.raises(RecoveryError, match=f"announced for \\['{target}'\\]"):
        job(spark, options, source, f"{target}-moved", tmp_path)
    assert job(spark, options, target, f"{target}-moved", tmp_path) == Written(5, 0, again=False)
    assert len(found(options, source)) == COUNT


def job(spark: Any, options: Kafka, topic: str, name: str, directory: Path) -> Written:
    """Five rows."""
    written: Written = write_exactly_once(spark.range(5), options, topic=topic, name=name, checkpoint=str(directory))
    return written


def dies_announced(write: Callable[[], Written]) -> None:
    """The driver is gone once its batch is announced."""
    with mock.patch.object(StagedBatch, "_publish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write()


def test_a_row_that_is_too_large_goes_to_the_errors_topic(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """Or fails the job, if there is none, before anything is announced."""
    options, source, target = topics
    frame = spark.range(3).selectExpr("id AS n", "repeat('x', IF(id = 1, 2000000, 1)) AS text")
    with pytest.raises(Exception, match="a row does not fit"):
        write_exactly_once(frame, options, topic=target, name=f"{target}-large", checkpoint=str(tmp_path / "a"))
    written = write_exactly_once(
        frame, options, topic=target, name=f"{target}-large", checkpoint=str(tmp_path / "a"), errors=source
    )
    assert written == Written(2, 1, again=False)
    assert sorted(row["n"] for row in found(options, target)) == [0, 2]


def test_rows_that_the_broker_would_refuse_never_hold_up_the_others(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """A compacted topic takes no row without a key, and brokers take none of tomorrow."""
    options, source, target = topics
    compacted = f"{target}-compacted"
    broker = open_broker(options)
    broker.create([NewTopic(compacted, WIDTH, config={"cleanup.policy": "compact"})])
    broker.close()
    frame = spark.range(5).selectExpr(
        "id AS n",
        "IF(id = 1, NULL, string(id)) AS _key",
        "current_timestamp() + IF(id = 2, INTERVAL '1' DAY, INTERVAL '0' DAY) AS _timestamp",
    )
    written = write_exactly_once(
        frame, options, topic=compacted, name=f"{target}-refused", checkpoint=str(tmp_path), errors=source
    )
    assert written == Written(3, 2, again=False)
    assert sorted(row["n"] for row in found(options, compacted)) == [0, 3, 4]


def test_timestamps_in_json_have_three_digits_or_six_where_three_would_lose_some(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """Wherever they stand; text that looks like one, nulls and other types are left alone."""
    options, _, target = topics
    whole, rest = "timestamp'2026-01-02 03:04:05.120Z'", "timestamp'2026-01-02 03:04:05.120001Z'"
    frame = spark.sql(
        f"SELECT {whole} AS whole, {rest} AS rest, CAST(NULL AS timestamp) AS none, array({rest}, NULL, {whole}) AS all"
        f", map('k', {whole}) AS by_key, named_struct('at', {rest}, 'n', 1, 'deep', array(named_struct('at', {whole})))"
        " AS inner, CAST(NULL AS struct<at: timestamp>) AS nothing, '2026-01-02T03:04:05.120000Z' AS text"
    )
    write_exactly_once(frame, options, topic=target, name=f"{target}-times", checkpoint=str(tmp_path))
    [row] = found(options, target)
    short, long = "2026-01-02T03:04:05.120Z", "2026-01-02T03:04:05.120001Z"
    assert row == {
        "whole": short,
        "rest": long,
        "none": None,
        "all": [long, None, short],
        "by_key": {"k": short},
        "inner": {"at": long, "n": 1, "deep": [{"at": short}]},
        "nothing": None,
        "text": "2026-01-02T03:04:05.120000Z",
    }


def test_what_a_message_has_besides_key_and_value_makes_no_json_of_it(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """
    `_timestamp` and `_headers` are no part of the value; and a frame that says where it goes is told who does.

    As natively, the time 0 is written as 1, and our own headers, which came with an input, are left out.
    """
    options, _, target = topics
    frame = spark.range(3).selectExpr(
        "string(id) AS key",
        "concat('{\"n\":', id, '}') AS value",
        "IF(id = 0, timestamp_millis(0), timestamp_millis(unix_millis(current_timestamp()) - 60000)) AS _timestamp",
        "array(named_struct('key', 'cues', 'value', binary('x')), named_struct('key', 'trace', 'value', binary('t1'))) "
        "AS _headers",
    )
    given: dict[str, Any] = {"topic": target, "name": f"{target}-plain", "checkpoint": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"columns \['topic'\] say where a row goes .* Drop them"):
        write_exactly_once(frame.selectExpr("*", "'elsewhere' AS topic"), options, **given)
    write_exactly_once(frame, options, **given)
    with connect(options) as client:
        messages = sorted(client.messages(target), key=lambda one: str(one.key))
    assert [(one.key, one.value) for one in messages] == [(str(n), {"n": n}) for n in range(3)]
    assert all(("trace", b"t1") in one.headers for one in messages)
    assert all([value for name, value in one.headers if name == "cues"] != [b"x"] for one in messages)
    assert all(len([name for name, _ in one.headers if name == "cues"]) <= 1 for one in messages)
    assert [one.timestamp_ms == 1 for one in messages] == [True, False, False]


@pytest.mark.full
def test_a_job_that_a_slot_refuses_is_a_task_that_stopped(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path
) -> None:
    """As for a query, and with what to do; so is one whose rows cannot be made."""
    options, _, target = topics
    given: dict[str, Any] = {"topic": target, "checkpoint": str(tmp_path)}
    with pytest.raises(TaskStopped, match="batch 0 could not be prepared"):
        write_exactly_once(spark.range(3).selectExpr("raise_error('no')"), options, name=f"{target}-a", **given)
    stop = Outcome("write/0", 0, kind="refused", text="why", remedy="what")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedBatch, "_publish", lambda *_: [stop])
        with pytest.raises(TaskStopped, match=r"write/0: why\. Remedy: what"):
            write_exactly_once(spark.range(3), options, name=f"{target}-b", **given)


def test_a_topic_that_is_not_there_is_named(spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path) -> None:
    """Before anything is computed."""
    options, _, target = topics
    with pytest.raises(ConfigError, match="'nowhere' does not exist"):
        write_exactly_once(spark.range(1), options, topic="nowhere", name=target, checkpoint=str(tmp_path))


@pytest.mark.full
def test_a_directory_that_driver_and_executors_do_not_share_is_refused(
    spark: Any, topics: tuple[Kafka, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver finds fewer chunks than the tasks wrote; announcing those would lose the rest in silence."""
    from pyspark.sql.readwriter import DataFrameWriter

    options, _, target = topics
    parquet = DataFrameWriter.parquet

    def elsewhere(self: Any, path: str) -> None:
        parquet(self, path)
        max(Path(path).glob("part-*.parquet"), key=lambda file: file.stat().st_size).unlink()

    def write() -> Written:
        frame, name = spark.range(10, numPartitions=2), f"{target}-shared"
        written: Written = write_exactly_once(frame, options, topic=target, name=name, checkpoint=str(tmp_path))
        return written

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", elsewhere)
        with pytest.raises(ConfigError, match="has 1 of the 2 chunks"):
            write()
    assert found(options, target) == []
    assert write() == Written(10, 0, again=False)
