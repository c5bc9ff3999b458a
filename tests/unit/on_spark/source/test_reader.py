"""What Spark asks the streaming reader, on the memory broker and without Spark."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.on_spark.source.format import BatchReader, StreamReader
from cues_kafka.on_spark.source.options import parse
from cues_kafka.on_spark.source.planning import OffsetRange, from_json, to_json
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing, TopicPartition

ALL = ReadAllAvailable()
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> MemoryBroker:
    """Topic t with 3 and 1 messages."""
    broker = MemoryBroker()
    broker.create([NewTopic("t", 2)])
    send(broker, 0, 3)
    send(broker, 1, 1)
    return broker


def send(broker: MemoryBroker, partition: int, count: int) -> None:
    """Messages outside of transactions."""
    sender = broker.sender("test")
    sender.send([Outgoing("t", partition, b"k", b"v")] * count)
    sender.close()


def reader(broker: MemoryBroker, **options: str) -> StreamReader:
    """With its connection made."""
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "earliest"}
    made = StreamReader(parse(given | options, streaming=True))
    made._connection = broker
    return made


def test_a_stream_is_planned_batch_by_batch(broker: MemoryBroker) -> None:
    """All that is there, then nothing new, then what came."""
    stream = reader(broker)

    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert (start, end) == ({"t": {"0": 0, "1": 0}}, {"t": {"0": 3, "1": 1}})
    assert stream.partitions(start, end) == [
        OffsetRange(T0, 0, 3),
        OffsetRange(T1, 0, 1),
    ]
    assert stream.latestOffset(end, ALL) == end
    send(broker, 1, 2)
    assert stream.partitions(end, stream.latestOffset(end, ALL)) == [
        OffsetRange(T0, 3, 3),
        OffsetRange(T1, 1, 3),
    ]


def test_a_limit_bounds_the_batch_and_not_the_lag(broker: MemoryBroker) -> None:
    """What there is to read stays in the progress."""
    stream = reader(broker, maxOffsetsPerTrigger="2")
    limit = stream.getDefaultReadLimit()

    assert limit == ReadMaxRows(2)
    assert stream.latestOffset({"t": {"0": 0, "1": 0}}, limit) == {"t": {"0": 1, "1": 1}}
    assert stream.reportLatestOffset() == {"t": {"0": 3, "1": 1}}
    assert reader(broker).getDefaultReadLimit() == ALL


def test_available_now_ends_at_what_there_was(broker: MemoryBroker) -> None:
    """Messages and partitions that come later are the next run's, and the end is reached."""
    stream = reader(broker)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    send(broker, 0, 5)
    broker.add_partitions("t", 3)
    send(broker, 2, 1)

    end = stream.latestOffset(start, ALL)

    assert end == {"t": {"0": 3, "1": 1}}
    assert stream.latestOffset(end, ALL) == end


def test_available_now_does_not_go_back(broker: MemoryBroker) -> None:
    """A planned batch of an earlier run may go further than what can be read now."""
    stream = reader(broker)
    stream.prepareForTriggerAvailableNow()
    send(broker, 0, 5)
    broker.add_partitions("t", 3)

    ahead = {"t": {"0": 6, "1": 1, "2": 0}}

    assert stream.latestOffset(ahead, ALL) == ahead


def test_offsets_are_always_written_in_the_same_order() -> None:
    """Spark compares their text; partition 10 comes after partition 2."""
    offsets = from_json({"b": {"10": 1, "2": 2}, "a": {"0": 3}})

    assert json.dumps(to_json(offsets)) == '{"a": {"0": 3}, "b": {"2": 2, "10": 1}}'
    assert from_json(to_json(offsets)) == offsets


def test_a_reader_goes_to_spark_tasks_without_its_connection(broker: MemoryBroker) -> None:
    """A client does not survive a pickle, nor a fork."""
    stream = reader(broker)

    copied: Any = pickle.loads(pickle.dumps(stream))

    assert copied._connection is None
    assert stream._connection is broker
    assert copied._settings == stream._settings


def test_a_partition_without_a_range_is_read_without_a_consumer() -> None:
    """Spark plans one without a value where there is none."""
    batch = BatchReader(parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, streaming=False))

    assert list(batch.read(InputPartition(None))) == []
    assert list(batch.read(OffsetRange(T0, 5, 5))) == []
