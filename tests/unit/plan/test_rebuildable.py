"""`plan` says before the first start which inputs can never get more partitions."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, Source, State, Store, Table, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask


def count(word: str, counts: State[int], names: Any) -> int:
    """With a store and a table."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def only_count(word: str, counts: State[int]) -> int:
    """With a store."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def notes(fn: Any, *, per_task: bool = False, applied: bool = False, **declared: Any) -> tuple[str, ...]:
    """Of a plan on an empty cluster, or on one with the topics of the graph."""
    state = {"counts": Store(Json(int), per_task=per_task)}
    one = Processor(fn, name="count", inputs="words", outputs="numbers", state=state, **declared)
    graph = Graph("g", Source("words"), Source("names"), one, defaults=Topic(value=Json(), partitions=2))
    broker = MemoryBroker()
    if applied:
        apply_plan(plan(graph, broker.facts(topics_to_ask(graph))), broker)
    return plan(graph, broker.facts(topics_to_ask(graph))).notes


def test_store_beside_a_table_is_told_before_the_first_start() -> None:
    """With the reason, and with what to do now."""
    [note] = notes(count, tables={"names": Table("names")})

    assert note.startswith("'count' looks things up in 'names', which may have changed since. So `rebuild`")
    assert "its inputs can never get more partitions" in note
    assert "give 'words' as many partitions as it will ever need" in note


@pytest.mark.parametrize(
    "declared",
    [
        {"fn": only_count},
        {"fn": count, "tables": {"names": Table("names")}, "per_task": True},
        {"fn": count, "tables": {"names": Table("names")}, "applied": True},
    ],
)
def test_nothing_is_told_where_it_can_grow_or_has_started(declared: dict[str, Any]) -> None:
    """A store alone is rebuilt, one of a task stays with it, and a processor that is there is not new."""
    assert notes(**declared) == ()
