"""A key has one task at a time: messages of before more partitions were added never make a second entry of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import (
    Dedupe,
    Graph,
    Json,
    Message,
    Processor,
    Source,
    State,
    Store,
    Table,
    TableView,
    TaskStopped,
    Topic,
)
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.facts import NewTopic
from cues_kafka.task.parts.stores import Storing
from cues_kafka.testing.tester import Tester

WIDTH = next(width for width in range(2, 9) if partition_for(b"ann", width))
"""With this number of partitions, the key is not in the partition that a topic of one has."""

HOME = partition_for(b"ann", WIDTH)

FIXED = {"is": False}


@pytest.fixture(autouse=True)
def broken() -> Iterator[None]:
    """The function fails for `bad` until it is fixed."""
    FIXED["is"] = False
    yield
    FIXED["is"] = True


def counted(word: str, counts: State[int]) -> int:
    """Counts the messages of ann."""
    if word == "bad" and not FIXED["is"]:
        raise ValueError(word)
    counts["ann"] = counts.get("ann", 0) + 1
    return counts["ann"]


def counting(*, partitions: int = 1) -> Graph:
    """A store by key."""
    count = Processor(counted, name="count", inputs="words", outputs="out", state={"counts": Store(Json(int))})
    return Graph("g", Source("words"), count, defaults=Topic(value=Json(), partitions=partitions), errors="g.errors")


def send(tester: Tester, *words: str, partition: int | None = None) -> None:
    """Messages with one key."""
    for word in words:
        tester.clock.advance(0.001)
        tester.send("words", Message(word, key="ann", partition=partition))


def widened(tester: Tester, graph: Graph) -> None:
    """The input gets more partitions, and the entry of the key goes to the task that gets its next messages."""
    tester.broker.add_partitions("words", WIDTH)
    with Rebuild(graph, tester.broker, "count", who="test", clock=tester.clock) as tool:
        tool.hold()
        for group in tool.look():
            tool.write(group)


def entries(tester: Tester) -> dict[int, dict[str, int]]:
    """What each task has in its store, if it has anything."""
    [worker] = tester._workers
    caches = {p: lane.part(Storing) for p, lane in worker.lanes.items()}
    return {p: found for p, one in caches.items() if one and (found := one.stores.cache("counts").decoded())}


@pytest.mark.parametrize("asked", ["before", "after"])
def test_replay_makes_no_second_entry_of_a_key_that_has_moved(asked: str) -> None:
    """The request is refused; one that waits since before becomes an error message again, with what to do."""
    graph = counting()
    tester = Tester(graph)
    send(tester, "good", "good", "bad")
    tester.run()
    tester.stop()
    if asked == "before":
        Repairs(graph, tester.broker, clock=tester.clock).ask("replay")
    widened(tester, graph)
    FIXED["is"] = True
    repairs = Repairs(graph, tester.broker, clock=tester.clock)
    found = repairs.ask("replay")
    if asked == "after":
        assert (found.asked, found.before) == (0, 0)
        [why] = found.refused
        assert f"its key belongs to count/{HOME} by now, because 'words' got more partitions" in why
        assert "Drop the error message, and send the message again" in why
    after = Tester(graph, broker=tester.broker)
    send(after, "good")
    after.run()

    assert entries(after) == {HOME: {"ann": 3}}
    assert after.values("out") == [1, 2, 3]
    last = after.messages("g.errors")[-1].value
    assert (last.exception, f"its key belongs to count/{HOME}" in last.text) == (
        ("MessageGone", True) if asked == "before" else ("ValueError", False)
    )
    assert repairs.ask("drop").asked == 1
    after.run()
    assert not [one for one in repairs.find() if one.settled is None]
    after.stop()


def test_replay_of_a_key_that_stayed_is_delivered() -> None:
    """Its task is the same with more partitions."""
    graph = counting()
    tester = Tester(graph)
    send(tester, "good", "bad")
    tester.run()
    tester.stop()
    FIXED["is"] = True
    assert Repairs(graph, tester.broker, clock=tester.clock).ask("replay").asked == 1
    after = Tester(graph, broker=tester.broker)
    after.run()
    assert entries(after) == {0: {"ann": 2}}
    after.stop()


def grown(graph: Graph) -> Tester:
    """The input had one partition with messages, and got more before the processor first ran."""
    tester = Tester(Graph("early", Source("words"), defaults=Topic(value=Json(), partitions=1)))
    send(tester, "good", "good")
    tester.broker.add_partitions("words", WIDTH)
    tester.broker.create([NewTopic("names", WIDTH)] if "names" in graph.topics_used() else [])
    return Tester(graph, broker=tester.broker)


def named(word: str, names: TableView[str]) -> str:
    """Looks the key up."""
    return f"{word} {names.get('ann', 'unknown')}"


def of_store() -> Graph:
    """A store."""
    return counting(partitions=WIDTH)


def of_dedupe() -> Graph:
    """What drops repeated messages."""
    once = Dedupe("count", inputs="words", outputs="out", by=str, within="1 hour")
    return Graph("g", Source("words"), once, defaults=Topic(value=Json(), partitions=WIDTH))


def of_table() -> Graph:
    """A look-up."""
    count = Processor(named, name="count", inputs={"word": "words", "names": Table("names")}, outputs="out")
    return Graph("g", Source("words"), Source("names"), count, defaults=Topic(value=Json(), partitions=WIDTH))


@pytest.mark.parametrize("made", [of_store, of_dedupe, of_table])
def test_processor_that_begins_behind_the_growth_stops_before_messages_of_before(made: Any) -> None:
    """Nothing moves entries of its keys, so the next message of a key would begin a second one, or find nothing."""
    graph = made()
    tester = grown(graph)
    planned = plan(graph, tester.broker.facts(topics_to_ask(graph)))
    [seen] = foresee(graph, tester.broker, planned, ["count"], clock=tester.clock).stops
    assert f"into partition {HOME} of {WIDTH}" in seen.why
    with pytest.raises(TaskStopped, match=rf"key 'ann' at offset 0, which murmur2.* into partition {HOME} of {WIDTH}"):
        tester.run()
    assert tester.values("out") == []


def test_processor_that_begins_at_the_end_reads_none_of_before_and_is_warned_of_none() -> None:
    """Nor is one whose tasks have passed them: what is delivered stops no task."""
    count = Processor(counted, name="count", inputs="words", outputs="out", start="latest", state={"counts": Store()})
    graph = Graph("g", Source("words"), count, defaults=Topic(value=Json(), partitions=WIDTH))
    tester = grown(graph)
    for _ in ("before the first start", "behind it"):
        planned = plan(graph, tester.broker.facts(topics_to_ask(graph)))
        assert foresee(graph, tester.broker, planned, ["count"], clock=tester.clock).stops == ()
        tester.run()
        send(tester, "good")
        tester.run()
    assert entries(tester) == {HOME: {"ann": 2}}
