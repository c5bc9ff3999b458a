"""From options to ranges, on the memory broker: partitions, bounds, loss, and the start that is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.on_spark.source.options import parse
from cues_kafka.on_spark.source.planning import Found, OffsetRange, Planner, pin, within
from cues_kafka.ports.clients import Session
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import Outgoing, TopicPartition

A0, A1, A2, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))


@pytest.fixture
def broker() -> MemoryBroker:
    """Topic a: 5 messages in partition 0, none in 1, 2 in 2. Topic b: 1 message. Timestamps are 100, 101 and so on."""
    broker = MemoryBroker()
    broker.create([NewTopic("a", 3), NewTopic("b", 1)])
    for place, count in ((A0, 5), (A2, 2), (B0, 1)):
        send(broker, place, count)
    return broker


def send(broker: MemoryBroker, place: TopicPartition, count: int = 1) -> None:
    """Messages outside of transactions."""
    sender = broker.sender("test")
    sender.send([Outgoing(*place, b"k", b"v", None, 100 + number) for number in range(count)])
    sender.close()


def open_transaction(broker: MemoryBroker, place: TopicPartition, count: int = 1) -> Session:
    """A transaction with messages, neither committed nor aborted."""
    session = broker.session("open")
    session.init(timeout_s=1)
    session.begin()
    session.produce([Outgoing(*place, b"k", b"open", None, 100)] * count)
    session.flush()
    return session


def planner(broker: MemoryBroker, *, streaming: bool = True, **options: Any) -> Planner:
    """With these options; values that are no text are JSON."""
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
        given["subscribe"] = "a"
    if streaming and "name" not in given and not any(name.startswith("starting") for name in given):
        given["startingOffsets"] = "earliest"
    given["kafka.bootstrap.servers"] = "localhost:1"
    return Planner(parse(given, streaming=streaming), broker, sure_s=0.0)


def ranges(broker: MemoryBroker, **options: Any) -> list[tuple[str, int, int, int]]:
    """Of a batch read, flat."""
    return [(*given.place, given.start, given.end) for given in planner(broker, streaming=False, **options).ranges()]


# ---- a batch


def test_a_batch_has_a_range_for_each_partition_in_order(broker: MemoryBroker) -> None:
    """Empty ones too, sorted by topic and number."""
    assert ranges(broker, subscribe="b,a") == [("a", 0, 0, 5), ("a", 1, 0, 0), ("a", 2, 0, 2), ("b", 0, 0, 1)]


def test_a_pattern_matches_whole_names(broker: MemoryBroker) -> None:
    """As Java's `matches`."""
    broker.create([NewTopic("ab", 1)])

    assert {r[0] for r in ranges(broker, subscribePattern="a")} == {"a"}
    assert {r[0] for r in ranges(broker, subscribePattern="a.*")} == {"a", "ab"}
    assert ranges(broker, subscribePattern="zzz") == []


def test_partitions_can_be_assigned(broker: MemoryBroker) -> None:
    """Those and no others."""
    assert ranges(broker, assign={"b": [0], "a": [2]}) == [("a", 2, 0, 2), ("b", 0, 0, 1)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a,nope,nada"}, "these topics do not exist: nada, nope"),
        ({"assign": {"nope": [0]}}, "these topics do not exist: nope"),
        ({"assign": {"a": [1, 3]}}, "these partitions do not exist: a/3"),
        (
            {"startingOffsets": {"a": {"0": 1}}},
            "must name every partition that is read, and no other: missing a/1, a/2",
        ),
        (
            {"assign": {"a": [0]}, "startingOffsets": {"a": {"0": 1, "1": 1}}},
            "must name every partition that is read, and no other: not read a/1",
        ),
        ({"assign": {"a": [0]}, "endingOffsets": {"a": {"0": 6}}}, "past what can be read: a/0 ends at 5"),
        (
            {"assign": {"a": [0]}, "startingOffsets": {"a": {"0": 4}}, "endingOffsets": {"a": {"0": 2}}},
            "cannot end before it begins: a/0 from 4 to 2",
        ),
        ({"startingTimestamp": "1000"}, "no message is that young in a/0, a/1, a/2"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(broker: MemoryBroker, options: dict[str, Any], text: str) -> None:
    """With what is wrong, by name."""
    with pytest.raises(ConfigError) as refused:
        ranges(broker, **options)

    assert text in str(refused.value)


def test_offsets_in_json(broker: MemoryBroker) -> None:
    """Numbers, the earliest and the latest."""
    broker.trim({A2: 1})

    start = {"a": {"0": 3, "1": -2, "2": -2}}
    end = {"a": {"0": 4, "1": -1, "2": -1}}

    assert ranges(broker, startingOffsets=start, endingOffsets=end) == [("a", 0, 3, 4), ("a", 1, 0, 0), ("a", 2, 1, 2)]


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startingTimestamp": "102"}, 2, 5),
        ({"startingOffsetsByTimestamp": {"a": {"0": 103}}}, 3, 5),
        ({"startingTimestamp": "1000", "startingOffsetsByTimestampStrategy": "latest"}, 5, 5),
        ({"endingTimestamp": "102"}, 0, 2),
        ({"endingOffsetsByTimestamp": {"a": {"0": 1000}}}, 0, 5),
        ({"startingTimestamp": "103", "endingTimestamp": "101"}, 3, 3),
    ],
)
def test_times_become_offsets(broker: MemoryBroker, options: dict[str, Any], start: int, end: int) -> None:
    """The first message at or past the time; it is the first that is read, or the first that is not."""
    assert ranges(broker, assign={"a": [0]}, **options) == [("a", 0, start, end)]


def test_a_batch_ends_where_an_open_transaction_begins(broker: MemoryBroker) -> None:
    """What is not decided is not read, also where options name an end behind it."""
    open_transaction(broker, A0, 3)
    send(broker, A0, 8)

    assert ranges(broker, assign={"a": [0]}) == [("a", 0, 0, 5)]
    assert ranges(broker, assign={"a": [0]}, endingTimestamp="106") == [("a", 0, 0, 5)]
    with pytest.raises(ConfigError, match="Messages after an open transaction cannot be read yet"):
        ranges(broker, assign={"a": [0]}, endingOffsets={"a": {"0": 9}})


def test_a_batch_below_the_start_of_the_log_names_what_is_lost(broker: MemoryBroker) -> None:
    """Unless it is to go on."""
    broker.trim({A0: 3})
    options: dict[str, Any] = {"assign": {"a": [0]}, "startingOffsets": {"a": {"0": 1}}}

    with pytest.raises(RecoveryError, match=r"lost: a/0 \[1, 3\): deleted from the log.*failOnDataLoss"):
        ranges(broker, **options)
    assert ranges(broker, **options, failOnDataLoss=False) == [("a", 0, 3, 5)]


# ---- a stream


def test_a_stream_meets_new_partitions_at_their_beginning(broker: MemoryBroker) -> None:
    """Also those of topics that a pattern matches only now."""
    broker.add_partitions("a", 4)
    send(broker, TopicPartition("a", 3), 2)
    broker.create([NewTopic("aa", 1)])

    found = planner(broker, subscribePattern="a+").ahead({A0: 5, A1: 0, A2: 2})

    assert {place: (one.first, one.last) for place, one in found.items()} == {
        A0: (5, 5),
        A1: (0, 0),
        A2: (2, 2),
        TopicPartition("a", 3): (0, 2),
        TopicPartition("aa", 0): (0, 0),
    }


def test_a_new_partition_that_was_trimmed_already_has_lost_something(broker: MemoryBroker) -> None:
    """It begins at 0, whatever is left of it."""
    broker.trim({A2: 1})

    with pytest.raises(RecoveryError, match=r"lost: a/2 \[0, 1\)"):
        planner(broker).ahead({A0: 0, A1: 0})
    assert planner(broker, failOnDataLoss=False).ahead({A0: 0, A1: 0})[A2].first == 1


def test_a_stream_stays_where_it_is_behind_an_open_transaction(broker: MemoryBroker) -> None:
    """An offset between the last stable one and the end is no loss."""
    open_transaction(broker, A0, 3)

    found = planner(broker).ahead({A0: 7, A1: 0, A2: 2})

    assert (found[A0].first, found[A0].last) == (7, 7)


def test_a_position_past_the_end_is_a_loss(broker: MemoryBroker) -> None:
    """The topic was recreated: what it has now was never read."""
    broker.delete(["a"])
    broker.create([NewTopic("a", 3)])
    send(broker, A0, 2)
    start = {A0: 5, A1: 0, A2: 2}

    with pytest.raises(RecoveryError, match=r"lost: a/0 \[2, 5\): the log ends at 2: it was recreated.*; a/2 \[0, 2\)"):
        planner(broker).ahead(start)
    going_on = planner(broker, failOnDataLoss=False)
    ends = {place: one.last for place, one in going_on.ahead(start).items()}
    assert going_on.between(start, ends) == [OffsetRange(A0, 0, 2), OffsetRange(A1, 0, 0), OffsetRange(A2, 0, 0)]
    with pytest.raises(RecoveryError, match=r"lost: a/0 \[2, 5\): its batch was planned to end at 2; a/2"):
        planner(broker).between(start, ends)


def test_a_position_past_the_end_is_asked_for_again_before_it_is_believed(broker: MemoryBroker) -> None:
    """The first answers of a new leader may be old."""
    settings = parse({"kafka.bootstrap.servers": "x:1", "allowPlaintext": "true", "assign": '{"a": [0]}',
                      "startingOffsets": "earliest"}, streaming=True)  # fmt: skip
    answers = [Watermarks(0, 3, 3), Watermarks(0, 6, 6)]

    class Lagging(MemoryBroker):
        def watermarks(self, partitions: Any) -> dict[TopicPartition, Watermarks]:
            return {A0: answers.pop(0)}

    lagging = Lagging()
    lagging.create([NewTopic("a", 1)])

    assert Planner(settings, lagging).ahead({A0: 5})[A0].last == 6


def test_a_partition_that_is_gone_is_a_loss(broker: MemoryBroker) -> None:
    """Its topic was deleted, or the query subscribes to other topics than before."""
    broker.delete(["b"])
    start = {A0: 5, A1: 0, A2: 2, B0: 1}

    with pytest.raises(RecoveryError, match=r"lost: b/0 \[1, \.\.\.\): the partition no longer exists"):
        planner(broker, subscribePattern="a|b").ahead(start)
    found = planner(broker, subscribePattern="a|b", failOnDataLoss=False).ahead(start)
    assert set(found) == {A0, A1, A2}


def test_a_planned_batch_names_what_was_trimmed_since(broker: MemoryBroker) -> None:
    """A batch comes again after a crash, when retention may have passed."""
    start, end = {A0: 1, A1: 0}, {A0: 4, A1: 0, A2: 2}
    assert planner(broker).between(start, end) == [OffsetRange(A0, 1, 4), OffsetRange(A1, 0, 0), OffsetRange(A2, 0, 2)]

    broker.trim({A0: 2})
    with pytest.raises(RecoveryError, match=r"lost: a/0 \[1, 2\)"):
        planner(broker).between(start, end)
    assert planner(broker, failOnDataLoss=False).between(start, end)[0] == OffsetRange(A0, 2, 4)

    broker.trim({A0: 5})
    with pytest.raises(RecoveryError, match=r"lost: a/0 \[1, 4\)"):
        planner(broker).between(start, end)
    assert planner(broker, failOnDataLoss=False).between(start, end)[0] == OffsetRange(A0, 4, 4)


def test_a_planned_batch_of_a_topic_that_is_gone(broker: MemoryBroker) -> None:
    """The range stays in its place, empty."""
    broker.delete(["b"])

    with pytest.raises(RecoveryError, match=r"lost: b/0 \[0, 1\)"):
        planner(broker, subscribe="a").between({B0: 0}, {B0: 1})
    going_on = planner(broker, subscribe="a", failOnDataLoss=False)
    assert going_on.between({A0: 0, B0: 0}, {A0: 5, B0: 1}) == [OffsetRange(A0, 0, 5), OffsetRange(B0, 1, 1)]


def test_the_limit_is_shared_by_how_far_each_partition_is_behind() -> None:
    """Small partitions get on too; a limit that is not reached changes nothing."""
    found = {place: Found(first, Watermarks(0, 99, 99)) for place, first in ((A0, 10), (A1, 0), (A2, 5))}
    ends = {A0: 90, A1: 20, A2: 5}

    assert within(found, ends, 50) == {A0: 50, A1: 10, A2: 5}
    assert within(found, ends, 1) == {A0: 11, A1: 1, A2: 5}
    assert within(found, ends, 100) == ends


# ---- the start that is kept


def test_a_name_keeps_the_latest_offsets_of_the_first_start(broker: MemoryBroker) -> None:
    """Spark asks again after a crash in the first batch; messages that came between are not lost."""
    first = planner(broker, name="n").begin()
    send(broker, A0, 10)

    assert first == {A0: 5, A1: 0, A2: 2}
    assert planner(broker, name="n").begin() == first
    assert broker.committed("n", [A0, A1, A2]) == first
    assert planner(broker, name="other").begin()[A0] == 15


def test_a_partition_that_came_after_the_first_start_is_read_from_its_beginning(broker: MemoryBroker) -> None:
    """It has no kept offset; the latest of now would lose what it has."""
    planner(broker, name="n").begin()
    broker.add_partitions("a", 4)
    new = TopicPartition("a", 3)
    send(broker, new, 2)

    start = planner(broker, name="n").begin()

    assert new not in start
    assert planner(broker, name="n").ahead(start)[new].first == 0


def test_of_two_that_keep_a_start_at_once_both_get_the_same(broker: MemoryBroker) -> None:
    """The transactional id is the lock: the slower one is fenced, and finds what the faster one has committed."""
    asked: list[str] = []

    def resolve() -> dict[TopicPartition, int]:
        if not asked:
            asked.append("slow")
            faster = pin(broker, "n", [A0], lambda: {A0: 4})
            assert faster == {A0: 4}
        return {A0: 5}

    assert pin(broker, "n", [A0], resolve) == {A0: 4}
    assert asked == ["slow"]


def test_a_start_is_not_kept_in_the_group_of_a_consumer(broker: MemoryBroker) -> None:
    """Its members would move the offsets."""

    class SilentListener:
        def on_assign(self, partitions: Any) -> None: ...
        def on_revoke(self, partitions: Any) -> None: ...
        def on_lost(self, partitions: Any) -> None: ...

    member = broker.member("n", "a", SilentListener())
    member.poll()

    with pytest.raises(ConfigError, match="has members"):
        planner(broker, name="n").begin()
    member.close(leave=True)


def test_options_that_contradict_the_kept_start_are_refused(broker: MemoryBroker) -> None:
    """A user wants another start and would not get it."""
    planner(broker, name="n", startingOffsets={"a": {"0": 2, "1": -1, "2": -2}}).begin()

    planner(broker, name="n", startingOffsets={"a": {"0": 2, "1": -2, "2": -1}}).begin()
    with pytest.raises(ConfigError, match=r"says 3 for a/0, and the name 'n' has kept 2.*another name"):
        planner(broker, name="n", startingOffsets={"a": {"0": 3, "1": 0, "2": 0}}).begin()


def test_the_latest_offsets_of_nothing_cannot_be_kept(broker: MemoryBroker) -> None:
    """At the second question there might be topics, and their latest offsets would be taken for the first ones."""
    with pytest.raises(ConfigError, match=r"subscribePattern=zzz matches no topic yet.*earliest"):
        planner(broker, subscribePattern="zzz", name="n").begin()
    assert planner(broker, subscribePattern="zzz", name="n", startingOffsets="earliest").begin() == {}


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "earliest"}, {A0: 1, A1: 0, A2: 0}),
        ({"startingOffsets": {"a": {"0": 3, "1": -2, "2": 1}}}, {A0: 3, A1: 0, A2: 1}),
        (
            {"startingTimestamp": "101", "startingOffsetsByTimestampStrategy": "latest", "name": "n"},
            {A0: 1, A1: 0, A2: 1},
        ),
    ],
)
def test_where_a_stream_begins(broker: MemoryBroker, options: dict[str, Any], start: dict[TopicPartition, int]) -> None:
    """All forms that a batch has."""
    broker.trim({A0: 1})

    assert planner(broker, **options).begin() == start


def test_a_failure_of_the_moment_does_not_end_a_query(
    broker: MemoryBroker, flaky: Callable[[int], MemoryBroker]
) -> None:
    """A broker that restarts; but what lasts is said."""
    settings = parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}, streaming=False)

    assert Planner(settings, flaky(2)).ranges() == [OffsetRange(A0, 0, 0)]
    from cues_kafka.errors import RetriableError

    with pytest.raises(RetriableError):
        Planner(settings, flaky(2), sure_s=0.0).ranges()


@pytest.fixture
def flaky() -> Callable[[int], MemoryBroker]:
    """A broker whose first answers are failures."""

    def make(failures: int) -> MemoryBroker:
        from cues_kafka.errors import RetriableError

        left = [RetriableError("away", code="_TRANSPORT")] * failures

        class Flaky(MemoryBroker):
            def watermarks(self, partitions: Any) -> dict[TopicPartition, Watermarks]:
                if left:
                    raise left.pop()
                return super().watermarks(partitions)

        made = Flaky()
        made.create([NewTopic("a", 1)])
        return made

    return make
