"""What `run` prints about a worker in its process."""

from __future__ import annotations

import pytest

from cues_kafka import Feed, Graph, Iterate, Json, Memory, Processor, Topic, start
from cues_kafka.cli.watch import announce


def same(number: int) -> int:
    return number


def test_first_line_counts_tasks_of_feeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of the processor, and one of the feed."""
    graph = Graph(
        "g",
        Feed(Iterate(lambda place: ()), into="in", name="feed"),
        Processor(same, inputs="in", outputs="out"),
        defaults=Topic(value=Json(int), partitions=2),
    )
    with start(graph, Memory()) as running:
        announce(running, "here", warn=False)
    assert capsys.readouterr().out == "g: 3 tasks on here\n"
