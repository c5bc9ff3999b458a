"""A range of a topic is read to its end, however silent it is, unless the cluster is gone (`records.scanning`)."""

from __future__ import annotations

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import RetriableError
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition
from cues_kafka.records import scanning
from cues_kafka.testing.tester import VirtualClock

PLACE = TopicPartition("in", 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """One topic with four messages; a reader's polls come back at once, and any silence counts."""
    broker = MemoryBroker()
    broker.create([NewTopic("in", 1, 1)])
    broker.sender("test").send([("in", 0, None, b"%d" % n, None, 0) for n in range(4)])
    monkeypatch.setattr(scanning, "SILENCE_S", 0.0)
    return broker


def silent(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, polls: int) -> Reader:
    """A reader that brings nothing for some polls."""
    reader, left = broker.reader("test"), list[list[Fetched]]([[]] * polls)
    poll = reader.poll

    def poll_later(timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        return left.pop() if left else poll(0.0, max_messages)

    monkeypatch.setattr(reader, "poll", poll_later)
    monkeypatch.setattr(broker, "reader", lambda *_, **__: reader)
    return reader


def test_a_cluster_that_stops_in_mid_read_is_reported(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader whose broker is gone raises nothing and brings nothing: the question of the ends says so."""

    def gone(_: object) -> dict[TopicPartition, Watermarks]:
        raise RetriableError("Kafka did not answer")

    silent(broker, monkeypatch, polls=3)
    monkeypatch.setattr(broker, "watermarks", gone)

    with pytest.raises(RetriableError, match="did not answer"):
        list(scanning.read_range(broker, PLACE, 0, 4))


def test_a_silent_range_is_read_to_its_end(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run of aborted messages brings nothing either, and the cluster answers."""
    silent(broker, monkeypatch, polls=50)

    assert [message.value() for message in scanning.read_range(broker, PLACE, 0, 4)] == [b"0", b"1", b"2", b"3"]


def test_a_log_that_was_truncated_ends_the_read(broker: MemoryBroker) -> None:
    """The reader stands at an end that is before the place it waits for, and is silent for good."""
    came = scanning.read_range(broker, PLACE, 0, 6)

    assert [next(came).value() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(RetriableError, match=r"reading in/0: the log ends at offset 4 now, before 6: it was truncated"):
        next(came)


def test_several_ranges_are_not_waited_for_without_end_either(broker: MemoryBroker) -> None:
    """The partition that was truncated is named."""
    broker.add_partitions("in", 2)
    other = TopicPartition("in", 1)
    broker.sender("test").send([("in", 1, None, b"other", None, 0)])

    with pytest.raises(RetriableError, match=r"reading in/1: the log ends at offset 1 now, before 3"):
        list(scanning.read_merged(broker, {PLACE: (0, 4), other: (0, 3)}, group="test"))


def test_a_silence_that_lasts_ends_the_read(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the cluster answers: a reader may be stuck."""
    monkeypatch.setattr(scanning, "STILL_S", 0.0)
    silent(broker, monkeypatch, polls=1)

    with pytest.raises(RetriableError, match=r"reading in/0: no message came for 0 s, although the log has more"):
        list(scanning.read_range(broker, PLACE, 0, 4))


@pytest.mark.parametrize(("looks", "end", "took_s"), [(3, 4, 0.03), (1000, 2, scanning.MARKERS_S)])
def test_what_was_committed_before_is_within_the_ranges(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, looks: int, end: int, took_s: float
) -> None:
    """Kafka answers a commit before its markers are written; what another transaction hides for longer is not there."""
    asked, clock = iter(range(looks)), VirtualClock()
    monkeypatch.setattr(
        broker,
        "watermarks",
        lambda places: dict.fromkeys(places, Watermarks(0, 4 if next(asked, None) is None else 2, 4)),
    )
    began_s = clock.monotonic()

    assert scanning.ranges_of(broker, "in", 1, clock) == {PLACE: (0, end)}
    assert clock.monotonic() - began_s == pytest.approx(took_s, abs=0.011)
    assert scanning.ranges_of(broker, "in", 1) == {PLACE: (0, end)}


def test_ranges_that_end_with_markers_end_the_read(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `IndexError` ended the command: brokers may bring the markers behind the last message apart."""
    session = broker.session("test")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("in", 0, None, b"4", None, 0)])
    session.flush()
    session.commit()
    end = broker.watermarks([PLACE])[PLACE].stable
    assert end == 6, "the last offset is that of a marker"
    reader = broker.reader("test")
    poll, held = reader.poll, list[list[Fetched]]()

    def apart(timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        if held:
            return held.pop()
        found = poll(timeout_s, max_messages)
        if any(one.messages and one.eof is not None for one in found):
            held.append([one._replace(messages=[]) for one in found])
            found = [one._replace(eof=None) for one in found]
        return found

    monkeypatch.setattr(reader, "poll", apart)
    monkeypatch.setattr(broker, "reader", lambda *_, **__: reader)

    read = [message.value() for _, message in scanning.read_merged(broker, {PLACE: (0, end)}, group="test")]

    assert read == [b"0", b"1", b"2", b"3", b"4"]
