"""R4 for many tasks at once: what one reader finds is what a reader for each task finds (`records.newest_of_many`)."""

from __future__ import annotations

import random

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import KEY
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.newest_of_many import BackingRange, newest_of_many
from cues_kafka.records.reading import FIRST_WINDOW, newest
from cues_kafka.testing.tester import VirtualClock

TASKS = 8
PLACES = [TopicPartition("g.f.backing", partition) for partition in range(TASKS)]


class _World:
    """A backing topic of eight tasks, under virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self.broker.create([NewTopic(PLACES[0].topic, TASKS, 1)])

    def write(self, place: TopicPartition, key: bytes, value: bytes, *, end: str) -> None:
        """One transaction of one record, which ends as told: `commit`, `abort`, or `open`."""
        session = self.broker.session(f"g.f.{place.partition}")
        session.init(timeout_s=1)
        session.begin()
        session.produce([(*place, key, value, None, 0)])
        session.flush()
        if end == "commit":
            session.commit()
            session.close()
        elif end == "abort":
            session.abandon()

    def extents(self) -> dict[TopicPartition, BackingRange]:
        return {place: BackingRange(marks.low, marks.high) for place, marks in self.broker.watermarks(PLACES).items()}

    def found(self) -> dict[TopicPartition, bytes | None]:
        """The values of the newest records, by one reader."""
        found = newest_of_many(self.broker, self.extents(), self.clock, group="g.f")
        return {place: None if message is None else message.value() for place, message in found.items()}

    def found_alone(self, place: TopicPartition) -> bytes | None:
        """The same by a reader of its own."""
        low, high = self.extents()[place]
        message = newest(self.broker, place, low, high, self.clock, group="g.f")
        return None if message is None else message.value()


@pytest.mark.parametrize("seed", range(20))
def test_one_reader_finds_what_each_would_find(seed: int) -> None:
    """Random logs: committed and aborted records, of the task and of other keys, in all partitions."""
    drawn, world = random.Random(seed), _World()
    for number in range(drawn.choice((0, 20, 80))):
        place, key = drawn.choice(PLACES), drawn.choice((KEY, KEY, b"other"))
        world.write(place, key, b"%d" % number, end=drawn.choice(("commit", "commit", "abort")))

    found = world.found()
    assert found == {place: world.found_alone(place) for place in found}
    extents = world.extents()
    assert all(extents[place].high > FIRST_WINDOW for place in PLACES if place not in found)


def test_a_record_far_before_the_end_is_left_to_its_task() -> None:
    """Behind many aborted transactions the first window holds no record, and says nothing about earlier ones."""
    world = _World()
    for place in PLACES[:2]:
        world.write(place, KEY, b"old", end="commit")
    for _ in range(FIRST_WINDOW):
        world.write(PLACES[0], KEY, b"failed", end="abort")

    found = world.found()
    assert PLACES[0] not in found
    assert found[PLACES[1]] == b"old"
    assert found[PLACES[2]] is None


def test_an_open_transaction_hides_the_record_of_its_task_only() -> None:
    """The others have their answer, and the time that it costs them is bounded."""
    world = _World()
    for place in PLACES:
        world.write(place, KEY, b"old", end="commit")
    world.write(PLACES[3], KEY, b"hidden", end="open")

    began_s = world.clock.monotonic()
    assert world.found() == {place: b"old" for place in PLACES if place != PLACES[3]}
    assert world.clock.monotonic() - began_s < 1.1  # `TOGETHER_S`, and what reading takes
