"""Many messages through a join-fork: none is missing, doubled or out of order."""

from __future__ import annotations

import pytest

from cues_kafka import CommitPolicy, Processor, Source, Topic
from cues_kafka.core.records import Totals
from tests.scenarios.test_graphs import broadcast
from tests.scenarios.world import Stage


@pytest.mark.parametrize("count", [1_000, pytest.param(50_000, marks=pytest.mark.full)])
def test_a_join_fork_delivers_many_messages(stage: Stage, count: int) -> None:
    """Each pair of the inputs gives one message in each output."""
    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(broadcast, inputs={"a": "s1", "b": "s2"}, outputs={"left": "q1", "right": "q2"}),
        defaults=Topic(meta=False),
    )
    with stage.run(graph, policy=CommitPolicy()) as scene:
        for source in ("s1", "s2"):
            scene.running.send_many(stage.name(source), [{"x": x} for x in range(count)])
        scene.idle()

    world = stage.world(graph)
    for topic in ("q1", "q2"):
        assert world.values(topic) == [{"x": 2 * x} for x in range(count)]
    assert world.totals("broadcast") == Totals(deliveries=count, outputs=count, messages=2 * count, taken=count)
