"""`commit=` of a processor: where its batches end at the latest. It changes no outcome."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, GraphError, Processor, Source, Topic
from cues_kafka.core.records import Attempt
from cues_kafka.testing.tester import Tester


def same(text: Any) -> Any:
    """The message again."""
    return text


def commits_at(text: str, step: Any) -> str:
    """Asks for a commit behind some messages."""
    if text.endswith("!"):
        step.request_commit()
    return text


def batches(tester: Tester, processor: str) -> list[int]:
    """How many steps each attempt of a processor has delivered."""
    return [one.batch.deliveries for one in tester.records(processor) if isinstance(one, Attempt)]


def test_each_processor_has_a_policy_of_its_own() -> None:
    """The others have that of the runtime; by count, by bytes, or behind a step that asks."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(same, name="few", inputs="in", outputs="a", commit=CommitPolicy(max_messages=2)),
        Processor(same, name="small", inputs="in", outputs="b", commit=CommitPolicy(max_bytes=1)),
        Processor(commits_at, name="asked", inputs="in", outputs="c"),
        Processor(same, name="others", inputs="in", outputs="d"),
        defaults=Topic(),
    )
    tester = Tester(graph)
    tester.send_many("in", ["1", "2", "3!", "4", "5"])
    tester.run()

    assert max(batches(tester, "few")) <= 2
    assert sum(batches(tester, "few")) == 5
    assert len(batches(tester, "few")) > len(batches(tester, "others"))
    assert len(batches(tester, "small")) >= len(batches(tester, "others"))
    assert 3 in [sum(batches(tester, "asked")[:n]) for n in range(5)]
    assert tester.values("a") == tester.values("b") == tester.values("c") == tester.values("d")


def test_a_policy_is_written_down_and_read_back() -> None:
    """What is none is refused with the remedy."""
    processor = Processor(same, inputs="in", outputs="out", commit=CommitPolicy(max_seconds=0.2))
    graph = Graph("g", Source("in"), processor)
    assert Graph.from_dict(graph.to_dict()) == graph
    wrong: list[dict[str, Any]] = [{"max_messages": 0}, {"max_seconds": -1}, {"max_bytes": 1.5}, {"idle_seconds": True}]
    for settings in wrong:
        with pytest.raises(GraphError, match="takes numbers above 0"):
            CommitPolicy(**settings)
    with pytest.raises(GraphError, match="Write commit=CommitPolicy"):
        Processor(same, inputs="in", outputs="out", commit=7)  # type: ignore[arg-type]
