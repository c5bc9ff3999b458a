"""`running.query`: the committed value of a key, the task that has it, and up to where it is true."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    Graph,
    Json,
    Memory,
    Processor,
    Running,
    Source,
    State,
    Store,
    TaskElsewhere,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.ports.log import Sent, TopicPartition


def count(order: dict[str, Any], counts: State[int]) -> None:
    """Count orders of a customer."""
    counts[order["who"]] = counts.get(order["who"], 0) + 1


def graph_of(fn: Callable[..., Any] = count, *, key: str | None = "who", partitions: int = 4) -> Graph:
    """One processor with a store."""
    processor = Processor(fn, name="count", inputs="orders", state={"counts": Store(Json(int))})
    return Graph("shop", Source("orders"), processor, defaults=Topic(key=key, partitions=partitions))


def tasks_of(running: Running) -> set[str]:
    """The tasks of a process."""
    return {status.task for status in running.status().tasks}


def test_a_query_has_the_value_and_up_to_where_it_is_true() -> None:
    """In the input partition of the key's task only."""
    with start(graph_of(), Memory()) as running:
        running.send("orders", {"who": "ann"})
        sent = running.send("orders", {"who": "ann"})
        value, positions = running.query("count", "counts", "ann", after=sent)
        assert (value, set(positions)) == (2, {TopicPartition("orders", sent.partition)})
        assert positions[TopicPartition("orders", sent.partition)] > sent.offset
        absent = running.query("count", "counts", "bob", default=0)
        assert (absent.value, set(absent.positions)) == (0, {TopicPartition("orders", partition_for(b"bob", 4))})


def test_a_query_does_not_see_what_is_not_committed() -> None:
    """The call before is in the open batch; its positions are not passed either."""
    called, goes_on = threading.Event(), threading.Event()

    def slow(order: dict[str, Any], counts: State[int]) -> None:
        count(order, counts)
        if order.get("slow"):
            called.set()
            assert goes_on.wait(30)

    with start(graph_of(slow, partitions=1), Memory()) as running:
        running.send("orders", {"who": "ann"})
        running.wait_idle()
        before = running.query("count", "counts", "ann")
        sent = running.send("orders", {"who": "ann", "slow": True})
        assert called.wait(30)
        assert running.query("count", "counts", "ann") == before
        with pytest.raises(TimeoutError, match=r"not restored and behind Sent\(.* after 0\.1 s"):
            running.query("count", "counts", "ann", after=sent, timeout_s=0.1)
        goes_on.set()
        after = running.query("count", "counts", "ann", after=sent)
        assert (before.value, after.value) == (1, 2)
        place = TopicPartition("orders", 0)
        assert after.positions[place] > before.positions[place]


def test_without_keys_all_tasks_here_are_asked() -> None:
    """A key that several tasks have needs the partition."""
    with start(graph_of(key=None), Memory()) as running:
        sent = running.send("orders", {"who": "ann"}, key="1")
        places = {sent.partition, *(running.send("orders", {"who": "eve"}, key=str(n)).partition for n in range(9))}
        running.wait_idle()
        assert running.query("count", "counts", "ann").value == 1
        assert running.query("count", "counts", "eve", partition=sent.partition).value >= 1
        nothing = running.query("count", "counts", "bob")
        assert (nothing.value, len(nothing.positions)) == (None, 4)
        assert len(places) > 1
        with pytest.raises(ConfigError, match=r"counts\['eve'\] is in partitions .*query\(\.\.\., partition=\)"):
            running.query("count", "counts", "eve")


def test_a_key_that_is_not_that_of_the_messages_needs_the_partition() -> None:
    """An answer of the wrong task would be silent."""
    other = next(str(n) for n in range(100) if partition_for(b"%d" % n, 4) != partition_for(b"ann", 4))
    with start(graph_of(), Memory()) as running:
        sent = running.send("orders", {"who": "ann"}, key=other)
        running.wait_idle()
        with pytest.raises(ConfigError, match="messages with this key come in partition"):
            running.query("count", "counts", "ann")
        assert running.query("count", "counts", "ann", partition=sent.partition).value == 1


@pytest.mark.parametrize("key", ["who", None])
def test_a_task_in_another_process_is_named(key: str | None) -> None:
    """And where to read it instead."""
    memory, graph = Memory(), graph_of(key=key)
    keys = [f"k{n}" for n in range(20)]
    with start(graph, memory) as one, start(graph, memory) as two:
        for name in keys:
            one.send("orders", {"who": name}, key=name)
        one.wait_idle()
        assert len(one.status().tasks) == len(two.status().tasks) == 2
        for name in keys:
            partition = partition_for(name.encode(), 4)
            here, elsewhere = (one, two) if f"count/{partition}" in tasks_of(one) else (two, one)
            assert here.query("count", "counts", name).value == 1
            assert here.query("count", "counts", name, partition=partition).value == 1
            with pytest.raises(TaskElsewhere, match=r"connect\(\.\.\.\)\.table\('count', 'counts'\)") as raised:
                elsewhere.query("count", "counts", name)
            assert (raised.value.processor, raised.value.partition) == ("count", partition if key else None)
            with pytest.raises(TaskElsewhere, match=f"task 'count/{partition}' is not in this process"):
                elsewhere.query("count", "counts", name, partition=partition)


def test_a_restarted_task_answers_from_its_changelog() -> None:
    """With the positions of its record."""
    memory = Memory()
    with start(graph_of(), memory) as running:
        running.send("orders", {"who": "ann"})
        running.wait_idle()
        before = running.query("count", "counts", "ann")
    with start(graph_of(), memory, timeout_s=None) as running:  # it waits for the task
        assert running.query("count", "counts", "bob", partition=0, default=0).value == 0
        running.wait_idle()
        assert running.query("count", "counts", "ann") == before


def test_names_that_do_not_exist_are_refused() -> None:
    """With those that do."""
    memory = Memory()
    with start(graph_of(), memory) as running:
        with pytest.raises(ConfigError, match=r"no processor 'cuont'.*did you mean 'count'"):
            running.query("cuont", "counts", "ann")
        with pytest.raises(ConfigError, match="no store 'count'; its stores are 'counts'"):
            running.query("count", "count", "ann")
        with pytest.raises(ConfigError, match="has partitions 0 to 3"):
            running.query("count", "counts", "ann", partition=4)
        with pytest.raises(TypeError, match="keys are text"):
            running.query("count", "counts", 5)
        with pytest.raises(ConfigError, match=r"'ann'\] is true for 'orders/\d', where the message is not"):
            running.query("count", "counts", "ann", after=Sent("other", 0, 1))
        with pytest.raises(ConfigError, match="has partitions 0 to 3"):
            running.table("count", "counts", partition=4)
    with connect(memory) as client, pytest.raises(ConfigError, match=r"connect\(options, graph\)"):
        client.table("count", "counts")
    with connect(Memory(), graph_of()) as client, pytest.raises(ConfigError, match="start the graph 'shop'"):
        client.table("count", "counts")


def test_a_processor_that_does_not_run_here_is_elsewhere() -> None:
    """Because of `only=`."""

    def other(order: dict[str, Any]) -> None:
        """Do nothing."""

    graph = Graph("shop", Source("orders"), *graph_of().processors.values(), Processor(other, inputs="orders"))
    memory = Memory()
    with start(graph, memory):
        pass
    with (
        start(graph, memory, only=["other"]) as running,
        pytest.raises(TaskElsewhere, match="does not run in this process, which runs 'other'"),
    ):
        running.query("count", "counts", "ann")
