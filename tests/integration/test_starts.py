"""Where a processor begins that never ran: `start=` as offsets of partitions, or as a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cues_kafka import (
    ConfigError,
    DataFrameProcessor,
    Graph,
    GraphError,
    Json,
    Kafka,
    Memory,
    Processor,
    Source,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.plan.inspectors import Terms
from cues_kafka.task.making.prepare import plan_start
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify

WIDTH = 3
EACH = 5
KEYS = [next(key for n in count() if partition_for((key := f"k{n}").encode(), WIDTH) == p) for p in range(WIDTH)]
"""A key of each partition."""


def check(order: dict[str, Any]) -> dict[str, Any]:
    """Names the message again."""
    return order


def graph_of(name: str, begin: Any) -> Graph:
    """One processor over one topic."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        Processor(check, inputs=f"{name}.orders", outputs=f"{name}.checked", start=begin),
        defaults=Topic(value=Json(), partitions=WIDTH),
    )


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Memory | Kafka, str]]:
    """Both brokers, and a name of the test's own."""
    if request.param == "memory":
        yield Memory(), "shop"
        return
    kafka: KafkaFixture = request.getfixturevalue("kafka")
    yield Kafka(kafka.bootstrap), kafka.unique("starts")


def fill(options: Memory | Kafka, name: str) -> list[int]:
    """Each partition gets the messages 0 to 4; gives their times, in ms."""
    graph = graph_of(name, "earliest")
    broker = open_broker(options)
    apply_plan(plan_start(graph, broker, Terms()), broker)
    broker.close()
    with connect(options, graph) as client:
        for n in range(EACH):
            for partition in range(WIDTH):
                client.send(f"{name}.orders", {"p": partition, "n": n}, key=KEYS[partition])
        return sorted(message.timestamp_ms for message in client.messages(f"{name}.orders"))


def delivered(graph: Graph, options: Memory | Kafka) -> list[tuple[int, int]]:
    """Run until all is delivered; what came out by now."""
    with start(graph, options) as running:
        running.wait_idle()
        found = [message.value for message in running.messages(f"{graph.name}.checked")]
    return sorted((one["p"], one["n"]) for one in found)


def from_offsets(offsets: Mapping[int, int]) -> list[tuple[int, int]]:
    """The messages from there."""
    return [(p, n) for p in range(WIDTH) for n in range(offsets[p], EACH)]


def place(options: Memory | Kafka, name: str) -> dict[int, int]:
    """Offsets by partition, so that message 2 is the first one of partition 0, 4 that of partition 1, 0 that of 2."""
    with connect(options, graph_of(name, "earliest")) as client:
        found = client.messages(f"{name}.orders")
    wanted = {0: 2, 1: 4, 2: 0}
    return {m.partition: m.offset for m in found if wanted[m.partition] == m.value["n"]}


def test_a_processor_begins_at_the_offsets_once(cluster: tuple[Memory | Kafka, str]) -> None:
    """At its first start alone: then it has a place of its own, also if the declaration names others by now."""
    options, name = cluster
    fill(options, name)
    offsets = place(options, name)
    expected = from_offsets({0: 2, 1: 4, 2: 0})
    assert delivered(graph_of(name, offsets), options) == expected
    assert delivered(graph_of(name, dict.fromkeys(range(WIDTH), 0)), options) == expected


def test_what_verify_counts_begins_at_the_offsets(kafka: KafkaFixture) -> None:
    """Before the first start, all behind them is open; after it, everything is delivered."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("starts")
    fill(options, name)
    graph = graph_of(name, place(options, name))
    broker = open_broker(options)
    before = verify(graph, broker)
    delivered(graph, options)
    after = verify(graph, broker)
    broker.close()
    assert [task.behind for task in before["check"].tasks] == [3, 1, 5]
    assert (after.verdict, after.complete, after["check"].steps) == ("ok", True, 9)


def test_a_processor_begins_at_a_time(cluster: tuple[Memory | Kafka, str]) -> None:
    """At the first message that is not older; behind the last one if all are older."""
    options, name = cluster
    times = fill(options, name)
    when = datetime.fromtimestamp(times[7] / 1000, UTC)
    newer = sum(time >= times[7] for time in times)
    assert len(delivered(graph_of(name, when), options)) == newer


@pytest.mark.parametrize("effect", ["Begin", "SendOffsets", "Produce", "Flush", "Commit"])
@pytest.mark.parametrize("timed", [True, False])
def test_a_death_before_the_first_record_changes_no_start(effect: str, *, timed: bool) -> None:
    """What the transaction has written is aborted; the next process begins at the same place."""
    sending = Tester(graph_of("shop", "earliest"), only=[])
    for n in range(EACH):
        sending.send("shop.orders", {"p": 0, "n": n}, key=KEYS[0])
        sending.clock.advance(10)
    third = sending.messages("shop.orders")[3]
    begin = datetime.fromtimestamp(third.timestamp_ms / 1000, UTC) if timed else {0: 3, 1: 0, 2: 0}
    for _ in range(2):
        dying = Tester(graph_of("shop", begin), broker=sending.broker)
        assert dying.run(crash=Crash("before", effect)).crashed
    found = Tester(graph_of("shop", begin), broker=sending.broker).run().values("shop.checked")
    assert [one["n"] for one in found] == [3, 4]


def test_a_time_behind_all_messages_means_the_end(cluster: tuple[Memory | Kafka, str]) -> None:
    """As `latest` does."""
    options, name = cluster
    fill(options, name)
    graph = graph_of(name, datetime.now(UTC) + timedelta(hours=1))
    assert delivered(graph, options) == []
    with connect(options, graph) as client:
        client.send(f"{name}.orders", {"p": 0, "n": 9}, key=KEYS[0])
    assert delivered(graph, options) == [(0, 9)]


def test_messages_that_come_before_the_tasks_begin_are_not_passed_over() -> None:
    """They are as new as the time. A group takes seconds to join, and the end was looked at behind them."""
    first = Tester(graph_of("shop", "earliest"), only=[])
    first.send("shop.orders", {"p": 0, "n": 0}, key=KEYS[0])
    [old] = first.messages("shop.orders")
    first.clock.advance(60)
    planned = Tester(graph_of("shop", datetime.fromtimestamp(old.timestamp_ms / 1000 + 5, UTC)), broker=first.broker)
    for n in (1, 2):
        first.send("shop.orders", {"p": 0, "n": n}, key=KEYS[0])
    assert [one["n"] for one in planned.run().values("shop.checked")] == [1, 2]


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ({0: 0, 2: 0}, "no offset of partition 1"),
        ({0: 0, 1: 0, 2: 0, 3: 0}, "has 3 partitions, so there is no partition 3"),
        ({0: 0, 1: 1000, 2: 0}, "/1 at 1000 is not in the log"),
    ],
)
def test_offsets_that_are_no_place_are_refused(
    cluster: tuple[Memory | Kafka, str], offsets: dict[int, int], text: str
) -> None:
    """Before anything is written; with what to write instead."""
    options, name = cluster
    fill(options, name)
    with pytest.raises(ConfigError, match=text):
        delivered(graph_of(name, offsets), options)
    assert delivered(graph_of(name, "latest"), options) == []


def test_an_offset_that_retention_took_is_refused(kafka: KafkaFixture) -> None:
    """It would begin behind messages that it was to deliver."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("starts")
    fill(options, name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [gone] = admin.delete_records([TopicPartition(f"{name}.orders", 0, 2)]).values()
    gone.result()
    with pytest.raises(ConfigError, match="2 is the first message that is left"):
        delivered(graph_of(name, {0: 1, 1: 0, 2: 0}), options)


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        ({}, "Write the offset of each partition"),
        ({0: -1}, "Write the offset of each partition"),
        ({"0": 1}, "Write the offset of each partition"),
        (datetime(2026, 1, 1), "has no zone"),  # noqa: DTZ001
        ("newest", "Choose one of 'earliest', 'latest'"),
    ],
)
def test_a_start_that_means_nothing_is_refused(begin: Any, text: str) -> None:
    """When it is declared."""
    with pytest.raises(GraphError, match=text):
        graph_of("shop", begin)


def test_offsets_of_a_join_are_refused() -> None:
    """A partition's number says nothing about which input is meant."""
    with pytest.raises(GraphError, match="with one input"):
        Processor(max, name="pair", inputs={"a": "a", "b": "b"}, outputs="c", start={0: 1})


@pytest.mark.parametrize("begin", [{0: 3, 1: 0, 2: 7}, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_start_travels(begin: Any) -> None:
    """As data."""
    graph = graph_of("shop", begin)
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))).processors["check"].start == begin


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        ("latest", "Choose one of 'earliest'"),
        ({0: 1}, "does not name its inputs 'a', 'b'"),
        ({"a": {0: 1}, "b": {0: -1}}, "Write the offset of each partition"),
        ({"a": {0: 1}, "b": 4}, "'b': start=4 is not known"),
    ],
)
def test_a_start_of_dataframes_that_means_nothing_is_refused(begin: Any, text: str) -> None:
    """When it is declared; offsets of several inputs are named by binding."""
    with pytest.raises(GraphError, match=text):
        DataFrameProcessor(max, name="pair", inputs={"a": "a", "b": "b"}, outputs="c", start=begin)
