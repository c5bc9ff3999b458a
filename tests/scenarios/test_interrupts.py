"""Processes that end in the middle of a message, and graphs that are started again: each message counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cues_kafka import Graph, Interrupt, Processor, Source, Step
from cues_kafka.core.records import Totals
from tests.scenarios.test_graphs import X, done, inc, xs
from tests.scenarios.world import Death, Stage, announced, began, delivered, seen


def interrupted(hashes: list[str]) -> Callable[..., Any]:
    """Stop the task at the first message."""

    def call(step: Step, **messages: X) -> None:
        hashes.append(step.hash)
        raise Interrupt("stop here")

    return call


def repaired(hashes: list[str]) -> Callable[..., Any]:
    """Send each message to the output, or to the output of its own binding."""

    def call(step: Step, **messages: X) -> Any:
        hashes.append(step.hash)
        several = len(step.processor.outputs) > 1
        return {f"to-{binding}": message for binding, message in messages.items()} if several else messages.popitem()[1]

    return call


def test_a_pipe_that_is_interrupted_goes_on_after_a_restart(stage: Stage) -> None:
    """Nothing is lost and nothing is sent twice; the step has the same hash at its second attempt."""
    hashes: list[str] = []

    def graph(fn: Callable[..., Any]) -> Graph:
        return stage.graph(
            Source("s1"),
            Processor(fn, name="pipe", inputs={"in": "s1"}, outputs="q1"),
            Processor(done, inputs={"in": "q1"}),
            errors="errors",
        )

    first, second = graph(interrupted(hashes)), graph(repaired(hashes))
    with stage.run(first) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        assert "task pipe/0 stopped: Interrupt: stop here" in str(scene.stopped())

    world = stage.world(first)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2), "q1": []}
    left = [began(s1=1), announced(s1=1), announced(s1=1, left=True)]
    assert world.records("pipe") == left

    with stage.run(second) as scene:
        scene.idle()

    world = stage.world(second)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 2),
        "q1": [seen({"x": 1}, s1=1, q1=1), seen({"x": 2}, s1=2, q1=2)],
    }
    assert world.records("pipe") == [
        *left, announced(s1=1), delivered("outputs", s1=2), delivered("outputs", s1=3),
    ]  # fmt: skip
    assert world.records("done") == [
        began(q1=1), announced(q1=1), delivered("nils", q1=2), delivered("nils", q1=3),
    ]  # fmt: skip
    assert hashes == [world.hash("pipe", s1=number) for number in (1, 1, 2)]


def test_alts_that_are_interrupted_take_the_same_message_after_a_restart(stage: Stage) -> None:
    """Also with the bindings in another order, and a message of the other input: the record has the choice."""
    hashes: list[str] = []

    def graph(fn: Callable[..., Any], **alts: str) -> Graph:
        return stage.graph(
            Source("s1"),
            Source("s2"),
            Processor(fn, name="alts", alts=alts, outputs="q1", effects=True),
            Processor(done, inputs={"in": "q1"}),
            errors="errors",
        )

    first, second = graph(interrupted(hashes), a="s1", b="s2"), graph(repaired(hashes), b="s2", a="s1")
    with stage.run(first) as scene:
        scene.send("s2", {"x": 1})
        scene.stopped()
        scene.send("s1", {"x": 2})

    world = stage.world(first)
    assert world.messages == {"errors": [], "s1": xs("s1", 2), "s2": xs("s2", 1), "q1": []}
    left = [began(s1=1, s2=1), announced("b", s1=1, s2=1), announced("b", s1=1, s2=1, left=True)]
    assert world.records("alts") == left

    with stage.run(second) as scene:
        scene.idle()

    world = stage.world(second)
    assert world.messages["q1"] == [seen({"x": 1}, s2=1, q1=1), seen({"x": 2}, s1=1, q1=2)]
    assert world.records("alts") == [
        *left,
        announced("b", s1=1, s2=1),
        delivered("outputs", s1=1, s2=2),
        announced("a", s1=1, s2=2),
        delivered("outputs", s1=2, s2=2),
    ]
    assert world.totals("done") == Totals(deliveries=2, nils=2, taken=2)
    assert hashes == [world.hash("alts", s2=1)] * 2 + [world.hash("alts", s1=1)]


def test_a_join_fork_that_is_interrupted_sends_to_both_outputs_after_a_restart(stage: Stage) -> None:
    """Both inputs of the step, and both outputs, are one delivery."""
    hashes: list[str] = []

    def graph(fn: Callable[..., Any]) -> Graph:
        return stage.graph(
            Source("s1"),
            Source("s2"),
            Processor(
                fn, name="fork", inputs={"a": "s1", "b": "s2"}, outputs={"to-a": "q1", "to-b": "q2"}, effects=True
            ),
            Processor(done, inputs={"in": "q1"}),
            errors="errors",
        )

    first, second = graph(interrupted(hashes)), graph(repaired(hashes))
    with stage.run(first) as scene:
        scene.send("s1", {"x": 1})
        scene.send("s2", {"x": 2})
        scene.stopped()

    world = stage.world(first)
    assert world.messages == {"errors": [], "s1": xs("s1", 1), "s2": xs("s2", 2), "q1": [], "q2": []}
    left = [began(s1=1, s2=1), announced(s1=1, s2=1), announced(s1=1, s2=1, left=True)]
    assert world.records("fork") == left

    with stage.run(second) as scene:
        scene.idle()

    world = stage.world(second)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1),
        "s2": xs("s2", 2),
        "q1": [seen({"x": 1}, s1=1, s2=1, q1=1)],
        "q2": [seen({"x": 2}, s1=1, s2=1, q2=1)],
    }
    assert world.records("fork") == [*left, announced(s1=1, s2=1), delivered("outputs", s1=2, s2=2)]
    assert world.totals("fork") == Totals(deliveries=1, outputs=1, messages=2, taken=1)
    assert hashes == [world.hash("fork", s1=1, s2=1)] * 2


def test_an_attempt_that_is_not_committed_leaves_nothing(stage: Stage) -> None:
    """A process dies when record and output are written and not committed. No reader sees them; both come again."""
    graph = stage.graph(Source("s1"), Processor(inc, inputs="s1", outputs="q1"), errors="errors")
    stage.run_to_death(graph, Death("before", "Commit", nth=3), s1=[{"x": 1}, {"x": 2}])

    world = stage.world(graph)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2), "q1": []}
    assert world.records("inc") == [began(s1=1), announced(s1=1)]

    with stage.run(graph) as scene:
        scene.idle()

    world = stage.world(graph)
    assert world.messages["q1"] == [seen({"x": 2}, s1=1, q1=1), seen({"x": 3}, s1=2, q1=2)]
    assert world.records("inc") == [
        began(s1=1),
        announced(s1=1),
        announced(s1=1, deaths=1),
        delivered("outputs", s1=2),
        delivered("outputs", s1=3),
    ]


def test_an_attempt_that_is_committed_is_not_repeated(stage: Stage) -> None:
    """A process dies right behind a commit: the record says that the message is delivered."""
    graph = stage.graph(Source("s1"), Processor(inc, inputs="s1", outputs="q1"), errors="errors")
    stage.run_to_death(graph, Death("after", "Commit", nth=3), s1=[{"x": 1}])
    committed = [began(s1=1), announced(s1=1), delivered("outputs", s1=2)]

    world = stage.world(graph)
    assert world.messages == {"errors": [], "s1": xs("s1", 1), "q1": [seen({"x": 2}, s1=1, q1=1)]}
    assert world.records("inc") == committed

    with stage.run(graph) as scene:
        scene.idle()

    world = stage.world(graph)
    assert world.messages["q1"] == [seen({"x": 2}, s1=1, q1=1)]
    assert world.records("inc") == committed
    assert world.totals("inc") == Totals(deliveries=1, outputs=1, messages=1, taken=1)
