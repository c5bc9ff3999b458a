"""What the driver asks the source of ranges for; no session is needed."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Memory
from cues_kafka.ports import GroupMetadata, NewTopic, Outgoing, TopicPartition
from cues_kafka.runtime.spark.source.ranges import RangeReader, SourceInput, within

ALL = ReadAllAvailable()


class World:
    """A topic with ten messages in each of two partitions, and a group that has committed these positions."""

    def __init__(self, *committed: int) -> None:
        self.options = Memory()
        broker = open_broker(self.options)
        broker.create([NewTopic("in", 2)])
        sender = broker.sender("test")
        sender.send([Outgoing("in", p, None, b"x") for p in range(2) for _ in range(10)])
        if committed:
            session = broker.session("g.pipe.0")
            session.init(timeout_s=5)
            session.begin()
            offsets = {TopicPartition("in", p): offset for p, offset in enumerate(committed)}
            session.send_offsets(offsets, GroupMetadata.outside("g.pipe"))
            session.commit()

    def reader(self, *first: int, limit: int | None = None, back: bool = True) -> RangeReader:
        """Of a query whose tasks' records stood there when it started."""
        return RangeReader(SourceInput("g.pipe", self.options, "in", first, limit, back))


def test_the_end_of_a_batch_is_what_is_stable() -> None:
    """From the records' positions on, where there is no checkpoint."""
    reader = World().reader(3, 0)

    assert reader.initialOffset() == {"0": 3, "1": 0}
    assert reader.latestOffset({"0": 3, "1": 0}, ALL) == {"0": 10, "1": 10}


def test_a_batch_is_bounded_over_all_partitions() -> None:
    """Shared by how far each is behind; each gets on."""
    reader = World().reader(0, 5, limit=6)

    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert reader.latestOffset({"0": 0, "1": 5}, ReadMaxRows(6)) == {"0": 4, "1": 7}
    assert within({"0": 0, "1": 0}, {"0": 10, "1": 1}, 1) == {"0": 1, "1": 1}


def test_a_checkpoint_that_is_ahead_of_the_records_leads_back_to_them_once() -> None:
    """After `cues-kafka reset`: an empty batch, then all of it again, and no waiting for a new message."""
    reader = World(0, 10).reader(0, 10)

    assert reader.latestOffset({"0": 10, "1": 10}, ALL) == {"0": 0, "1": 10}
    assert reader.latestOffset({"0": 0, "1": 10}, ALL) == {"0": 10, "1": 10}
    assert reader.latestOffset({"0": 10, "1": 10}, ALL) == {"0": 10, "1": 10}


def test_a_query_with_state_never_goes_back() -> None:
    """A staged batch that is done again after a crash: the group has its start, and Spark has counted it already."""
    reader = World(0, 10).reader(0, 10, back=False)

    assert reader.latestOffset({"0": 5, "1": 10}, ALL) == {"0": 10, "1": 10}


def test_a_batch_that_was_done_again_after_a_crash_leads_nowhere() -> None:
    """The records stood before it when the query started, and do not any more."""
    world = World(10, 10)
    reader = world.reader(4, 4)
    open_broker(world.options).sender("test").send([Outgoing("in", 0, None, b"y")])

    assert reader.latestOffset({"0": 10, "1": 10}, ALL) == {"0": 11, "1": 10}


def test_a_group_whose_offsets_have_expired_leads_nowhere() -> None:
    """The record decides in the slot; nothing is lost by waiting for the next message."""
    reader = World().reader(4, 4)

    assert reader.latestOffset({"0": 10, "1": 10}, ALL) == {"0": 10, "1": 10}


def test_what_is_available_now_is_settled_once() -> None:
    """Messages that come later are for the next run."""
    world = World()
    reader = world.reader(0, 0)
    reader.prepareForTriggerAvailableNow()
    open_broker(world.options).sender("test").send([Outgoing("in", 0, None, b"y")])

    assert reader.latestOffset({"0": 0, "1": 0}, ALL) == {"0": 10, "1": 10}
    assert reader.reportLatestOffset() == {"0": 11, "1": 10}


def test_every_partition_has_a_row_even_an_empty_one() -> None:
    """In the order of their numbers, not of their names."""
    wide = {str(p): p for p in range(12)}
    rows = World().reader().partitions({}, wide)

    assert [(row.partition, row.start, row.end) for row in rows] == [(p, 0, p) for p in range(12)]
