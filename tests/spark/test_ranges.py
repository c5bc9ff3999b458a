"""What the driver asks the source of ranges for; no session is needed."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Memory
from cues_kafka.on_spark.source.planning import from_json, to_json
from cues_kafka.on_spark.source.ranges import (
    Begins,
    InputRange,
    RangeReader,
    RangeRow,
    SourceInput,
    offsets_of,
    row_of,
    within,
)
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing

ALL = ReadAllAvailable()


def ends(*offsets: int, topic: str = "in") -> dict[str, dict[str, int]]:
    """Offsets of one topic, as Spark keeps them."""
    return {topic: {str(p): offset for p, offset in enumerate(offsets)}}


class World:
    """Topics with ten messages in each of two partitions, and a group that has committed these positions."""

    def __init__(self, *committed: int, **others: tuple[int, ...]) -> None:
        self.options = Memory()
        broker = open_broker(self.options)
        positions = {"in": committed, **others}
        for topic in positions:
            broker.create([NewTopic(topic, 2)])
            broker.sender("test").send([Outgoing(topic, p, None, b"x") for p in range(2) for _ in range(10)])
        if committed:
            session = broker.session("g.pipe.0")
            session.init(timeout_s=5)
            session.begin()
            session.send_offsets(offsets_of(positions), GroupMetadata.outside("g.pipe"))
            session.commit()

    def reader(self, *first: int, limit: int | None = None, back: bool = True) -> RangeReader:
        """Of a query whose tasks' records stood there when it started."""
        return RangeReader(SourceInput("g.pipe", self.options, {"in": first}, limit, back))

    def several(self, pairing: str, first: Begins, limit: int | None = None) -> RangeReader:
        """The same of several inputs."""
        return RangeReader(SourceInput("g.pipe", self.options, first, limit, pairing=pairing))


def test_the_end_of_a_batch_is_what_is_stable() -> None:
    """From the records' positions on, where there is no checkpoint."""
    reader = World().reader(3, 0)

    assert reader.initialOffset() == ends(3, 0)
    assert reader.latestOffset(ends(3, 0), ALL) == ends(10, 10)


def test_a_batch_is_bounded_over_all_partitions() -> None:
    """Shared by how far each is behind; each gets on."""
    reader = World().reader(0, 5, limit=6)

    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert reader.latestOffset(ends(0, 5), ReadMaxRows(6)) == ends(4, 7)
    assert to_json(within(from_json(ends(0, 0)), from_json(ends(10, 1)), 1)) == ends(1, 1)


def test_a_checkpoint_that_is_ahead_of_the_records_leads_back_to_them_once() -> None:
    """After `cues-kafka reset`: an empty batch, then all of it again, and no waiting for a new message."""
    reader = World(0, 10).reader(0, 10)

    assert reader.latestOffset(ends(10, 10), ALL) == ends(0, 10)
    assert reader.latestOffset(ends(0, 10), ALL) == ends(10, 10)
    assert reader.latestOffset(ends(10, 10), ALL) == ends(10, 10)


def test_a_query_with_state_never_goes_back() -> None:
    """A staged batch that is done again after a crash: the group has its start, and Spark has counted it already."""
    reader = World(0, 10).reader(0, 10, back=False)

    assert reader.latestOffset(ends(5, 10), ALL) == ends(10, 10)


def test_a_batch_that_was_done_again_after_a_crash_leads_nowhere() -> None:
    """The records stood before it when the query started, and do not any more."""
    world = World(10, 10)
    reader = world.reader(4, 4)
    open_broker(world.options).sender("test").send([Outgoing("in", 0, None, b"y")])

    assert reader.latestOffset(ends(10, 10), ALL) == ends(11, 10)


def test_a_group_whose_offsets_have_expired_leads_nowhere() -> None:
    """The record decides in the slot; nothing is lost by waiting for the next message."""
    reader = World().reader(4, 4)

    assert reader.latestOffset(ends(10, 10), ALL) == ends(10, 10)


def test_what_is_available_now_is_settled_once() -> None:
    """Messages that come later are for the next run."""
    world = World()
    reader = world.reader(0, 0)
    reader.prepareForTriggerAvailableNow()
    open_broker(world.options).sender("test").send([Outgoing("in", 0, None, b"y")])

    assert reader.latestOffset(ends(0, 0), ALL) == ends(10, 10)
    assert reader.reportLatestOffset() == ends(11, 10)


def test_every_partition_has_a_row_even_an_empty_one() -> None:
    """In the order of their numbers, not of their names."""
    rows = World().reader().partitions({}, ends(*range(12)))

    assert [(row.partition, row.inputs) for row in rows] == [(p, (("in", 0, p),)) for p in range(12)]


def test_a_row_has_the_same_partition_of_each_input() -> None:
    """A task holds partition p of all its inputs."""
    world = World(0, 0, other=(0, 0))
    reader = world.several("join", {"in": (3, 0), "other": (1, 2)})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    rows = reader.partitions(start, end)

    assert start == ends(3, 0) | ends(1, 2, topic="other")
    assert end == ends(10, 10) | ends(10, 10, topic="other")
    assert rows == [
        RangeRow(0, (InputRange("in", 3, 10), InputRange("other", 1, 10))),
        RangeRow(1, (InputRange("in", 0, 10), InputRange("other", 2, 10))),
    ]
    assert (rows[0].starts, rows[0].ends) == ({"in": 3, "other": 1}, {"in": 10, "other": 10})


def test_a_row_travels_through_spark_as_it_is() -> None:
    """A server of Spark Connect gives rows in place of the offset log."""
    given = RangeRow(1, (InputRange("in", 0, 10), InputRange("other", 2, 10)))

    [batch] = World().reader().read(given)

    assert [row_of(one) for one in batch.to_pylist()] == [given]


def test_a_limit_is_shared_by_all_inputs() -> None:
    """By how far each partition of each of them is behind."""
    world = World(0, 0, other=(0, 0))
    start = ends(10, 0) | ends(0, 10, topic="other")
    reader = world.several("alts", {"in": (10, 0), "other": (0, 10)}, limit=10)

    assert reader.latestOffset(start, ReadMaxRows(10)) == ends(10, 5) | ends(5, 10, topic="other")


@pytest.mark.parametrize(
    ("pairing", "other", "found"),
    [
        ("join", 10, (10, 10)),
        ("join", 7, (4, 7)),
        ("alts", 10, (4, 10)),
    ],
    ids=["a join that waits for a partner", "a join that was reset", "alts that were reset"],
)
def test_a_message_without_a_partner_does_not_lead_back(pairing: str, other: int, found: tuple[int, int]) -> None:
    """One input of a join that waits is always behind the checkpoint: nothing of it can be delivered."""
    world = World(4, 10, other=(other, 10))
    reader = world.several(pairing, {"in": (4, 10), "other": (other, 10)})

    end = reader.latestOffset(ends(10, 10) | ends(10, 10, topic="other"), ALL)

    assert end == ends(found[0], 10) | ends(found[1], 10, topic="other")
