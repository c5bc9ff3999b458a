"""Kinds of processors that no example runs, in memory and on a real broker, through a process that is given up."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Appender, Graph, Json, Kafka, Memory, Message, Processor, Source, Tailer, Topic, connect, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify

WIDTH = 2


def both(left: int, right: int) -> dict[str, Any]:
    """A join-fork: nil for some pairs, an error for others."""
    if left % 7 == 3:
        raise ValueError(f"{left} and {right}")
    return {} if left % 5 == 1 else {"sums": left + right, "pairs": Message([left, right], headers={"pair": "yes"})}


def either(left: int | None = None, right: int | None = None) -> dict[str, Any]:
    """An alts-fork."""
    if left is not None:
        return {"all": left, "lefts": left}
    return {"all": right}


def note(sums: list[int], pairs: list[int]) -> None:
    """A join-sink, which fails for some."""
    assert sums[0] == sum(pairs)
    if sums[0] % 4 == 0:
        raise ValueError(f"sum {sums[0]}")


def collect(n: int, old: Tailer, archive: Appender) -> int:
    """An imperative pipe: each message archives two of the old ones."""
    for one in old.messages(limit=2):
        archive.append(one.value)
    return n


def graph_of(name: str) -> Graph:
    """All of them."""

    def topic(part: str) -> str:
        return f"{name}.{part}"

    return Graph(
        name,
        Source(topic("left")),
        Source(topic("right")),
        Source(topic("old")),
        Processor(
            both,
            inputs={"left": topic("left"), "right": topic("right")},
            outputs={"sums": topic("sums"), "pairs": topic("pairs")},
        ),
        Processor(
            either,
            alts={"left": topic("left"), "right": topic("right")},
            outputs={"all": topic("all"), "lefts": topic("lefts")},
        ),
        Processor(note, inputs={"sums": topic("wrapped"), "pairs": topic("repeated")}),
        Processor(lambda n: [n], name="wrap", inputs=topic("sums"), outputs=topic("wrapped")),
        Processor(lambda pair: pair, name="repeat", inputs=topic("pairs"), outputs=topic("repeated")),
        Processor(
            collect,
            inputs=topic("left"),
            outputs=topic("collected"),
            tailers={"old": topic("old")},
            appenders={"archive": topic("archive")},
        ),
        defaults=Topic(value=Json(), partitions=WIDTH),
        errors=topic("errors"),
    )


@pytest.mark.parametrize("where", ["memory", pytest.param("kafka", marks=pytest.mark.full)])
def test_every_message_has_one_outcome_of_each_kind(where: str, request: pytest.FixtureRequest) -> None:
    """The first process is given up in the middle of its work."""
    cluster: Memory | Kafka = Memory()
    name = "kinds"
    if where == "kafka":
        kafka: KafkaFixture = request.getfixturevalue("kafka")
        cluster, name = Kafka(kafka.bootstrap), kafka.unique("kinds")
    graph = graph_of(name)
    count = 40
    lefts = [Message(n, partition=n % WIDTH) for n in range(count)]
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        client.send_many(f"{name}.old", [Message(n, partition=n % WIDTH) for n in range(3 * count)])
        client.send_many(f"{name}.left", lefts[:20])
        client.send_many(f"{name}.right", [Message(100 + n, partition=n % WIDTH) for n in range(20)])
        running.wait_idle()
        client.send_many(f"{name}.left", lefts[20:])
        client.send_many(f"{name}.right", [Message(100 + n, partition=n % WIDTH) for n in range(20, count + 4)])
        running.abandon()
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        running.wait_idle()

        def values(part: str) -> list[Any]:
            return sorted(one.value for one in client.messages(f"{name}.{part}"))

        good = [n for n in range(count) if n % 7 != 3]
        kept = [n for n in good if n % 5 != 1]
        assert values("pairs") == [[n, 100 + n] for n in kept]
        assert values("sums") == sorted(100 + 2 * n for n in kept)
        assert values("lefts") == values("collected") == list(range(count))
        assert values("all") == [*range(count), *range(100, 100 + count + 4)]
        assert values("archive") == list(range(2 * count))
        texts = sorted(one.value.text for one in client.messages(f"{name}.errors"))
        sums = [f"sum {100 + 2 * n}" for n in kept if (100 + 2 * n) % 4 == 0]
        assert texts == sorted([*sums, *(f"{n} and {100 + n}" for n in range(count) if n % 7 == 3)])
    report = verify(graph, open_broker(cluster))
    assert report.ok, str(report)
