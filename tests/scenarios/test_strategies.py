"""Other strategies: at-most-once a message that was started never comes again, at-least-once it may come twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cues_kafka import Graph, Interrupt, Processor, Source
from cues_kafka.core.records import Totals
from tests.scenarios.test_graphs import X, inc, xs
from tests.scenarios.world import Death, Stage, began, delivered, seen, taken


def test_at_most_once_an_interrupted_message_is_dropped(stage: Stage) -> None:
    """It was started, so it is never started again. The message behind it is delivered after the restart."""
    started: list[int] = []

    def interrupted(message: X) -> None:
        started.append(message["x"])
        raise Interrupt("stop here")

    def repaired(message: X) -> X:
        started.append(message["x"])
        return message

    def graph(fn: Callable[..., Any]) -> Graph:
        parts = Source("s1"), Processor(fn, name="pipe", inputs="s1", outputs="q1")
        return stage.graph(*parts, errors="errors", strategy="at-most-once")

    first, second = graph(interrupted), graph(repaired)
    with stage.run(first) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.stopped()

    world = stage.world(first)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2), "q1": []}
    dropped = [began(s1=1), taken(s1=2), taken(s1=2)]
    assert world.records("pipe") == dropped
    assert world.totals("pipe") == Totals(taken=1, dropped=1)

    with stage.run(second) as scene:
        scene.idle()

    world = stage.world(second)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2), "q1": [seen({"x": 2}, s1=2, q1=1)]}
    assert world.records("pipe") == [*dropped, taken(s1=3), delivered("outputs", s1=3)]
    assert world.totals("pipe") == Totals(deliveries=1, outputs=1, messages=1, taken=2, dropped=1)
    assert started == [1, 2]


def test_at_most_once_a_death_drops_what_was_taken(stage: Stage) -> None:
    """The function has been called, and its output was not committed: the next record counts the drop."""
    parts = Source("s1"), Processor(inc, inputs="s1", outputs="q1")
    graph = stage.graph(*parts, errors="errors", strategy="at-most-once")
    stage.run_to_death(graph, Death("after", "Call"), s1=[{"x": 1}, {"x": 2}])
    assert stage.world(graph).records("inc") == [began(s1=1), taken(s1=2)]

    with stage.run(graph) as scene:
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2), "q1": [seen({"x": 3}, s1=2, q1=1)]}
    assert world.totals("inc") == Totals(deliveries=1, outputs=1, messages=1, taken=2, dropped=1)


def test_at_least_once_a_death_may_repeat_an_output(stage: Stage) -> None:
    """The output is written before the record that says so. Both copies name the same message."""
    parts = Source("s1"), Processor(inc, inputs="s1", outputs="q1")
    graph = stage.graph(*parts, errors="errors", strategy="at-least-once")
    stage.run_to_death(graph, Death("after", "Emit"), s1=[{"x": 1}, {"x": 2}])
    assert stage.world(graph).records("inc") == [began(s1=1)]

    with stage.run(graph) as scene:
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 2),
        "q1": [seen({"x": 2}, s1=1, q1=1), seen({"x": 2}, s1=1, q1=2), seen({"x": 3}, s1=2, q1=3)],
    }
    assert world.records("inc") == [began(s1=1), delivered("outputs", s1=2), delivered("outputs", s1=3)]
    assert world.totals("inc") == Totals(deliveries=2, outputs=2, messages=2, taken=2)
