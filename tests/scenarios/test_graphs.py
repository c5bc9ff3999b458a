"""Graphs of every kind of processor: every message with all that it comes from, and the records of the tasks."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any, TypeAlias

import pytest

from cues_kafka import Graph, Processor, Source, Step, Topic
from cues_kafka.core.records import Totals
from tests.scenarios.world import PATIENCE_S, Seen, Stage, announced, began, delivered, seen

X: TypeAlias = dict[str, int]


def inc(message: X) -> X:
    """Add one."""
    return {"x": message["x"] + 1}


def total(**messages: X) -> X:
    """Add up what comes together."""
    return {"x": sum(message["x"] for message in messages.values())}


def either(**messages: X) -> X:
    """Add one to what came."""
    [message] = messages.values()
    return inc(message)


def broadcast(step: Step, **messages: X) -> dict[str, X]:
    """Send the sum to every output of the processor."""
    return dict.fromkeys([binding for binding, _ in step.processor.outputs], total(**messages))


def by_parity(**messages: X) -> dict[str, X | None]:
    """Send the sum to one output of two."""
    n = total(**messages)
    return {"even": None if n["x"] % 2 else n, "odd": n if n["x"] % 2 else None}


def done(**messages: X) -> None:
    """Take them out of the graph."""


def xs(topic: str, *numbers: int, tx: str = "") -> list[Seen]:
    """Messages of a source."""
    return [seen({"x": x}, tx, **{topic: number}) for number, x in enumerate(numbers, 1)]


TX = Topic(meta={"offset", "tx"})
"""The place of this topic's message counts as the transaction of all that is made of it."""


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind"),
    [
        ({"inputs": {"in": "in"}}, {}, "sink"),
        ({"inputs": {"in": "in"}}, {"outputs": {"out": "out"}}, "fork"),
        ({"inputs": {"in": "in"}}, {"outputs": "out"}, "pipe"),
        ({"inputs": {"a": "a", "b": "b"}}, {}, "join-sink"),
        ({"inputs": {"a": "a", "b": "b"}}, {"outputs": "out"}, "join"),
        ({"inputs": {"a": "a", "b": "b"}}, {"outputs": {"c": "c", "d": "d"}}, "join-fork"),
        ({"alts": {"a": "a", "b": "b"}}, {}, "alts-sink"),
        ({"alts": {"a": "a", "b": "b"}}, {"outputs": "out"}, "alts"),
        ({"alts": {"a": "a", "b": "b"}}, {"outputs": {"c": "c", "d": "d"}}, "alts-fork"),
        ({"inputs": {"in": "in"}}, {"outputs": "out", "appenders": {"a": "a"}}, "imperative pipe"),
        ({"inputs": {"in": "in"}}, {"outputs": "out", "tailers": {"t": "t"}}, "imperative pipe"),
        ({"inputs": {"in": "in"}}, {"tailers": {"t": "t"}, "appenders": {"a": "a"}}, "imperative sink"),
    ],
)
def test_the_kind_of_a_processor_follows_from_its_declaration(
    inputs: dict[str, Any], outputs: dict[str, Any], kind: str
) -> None:
    """It is never declared; a source is a part of its own."""
    graph = Graph("graph", Source("a"), Processor(done, **inputs, **outputs))

    assert graph.processors["done"].kind == kind
    assert list(graph.sources) == ["a"]


def test_functions_get_what_the_system_opened(stage: Stage) -> None:
    """A factory opens it, once for the process."""
    got: list[Any] = []

    def keep(message: X, component: str) -> None:
        got.append((component, message["x"]))

    opened = iter(["running"])
    graph = stage.graph(Source("s1"), Processor(keep, inputs="s1"), system={"component": lambda: next(opened)})
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.idle()

    assert got == [("running", 1), ("running", 2)]


def test_a_sink_takes_what_enters_at_a_source(stage: Stage) -> None:
    """In order; each is a nil, and its step knows the hash of the delivery."""
    hashes: list[str] = []

    def keep(message: X, step: Step) -> None:
        hashes.append(step.hash)

    graph = stage.graph(Source("s1"), Processor(keep, inputs="s1"), errors="errors")
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2}, {"x": 3})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {"errors": [], "s1": xs("s1", 1, 2, 3)}
    assert world.records("keep") == [
        began(s1=1),
        announced(s1=1),
        delivered("nils", s1=2),
        delivered("nils", s1=3),
        delivered("nils", s1=4),
    ]
    assert hashes == [world.hash("keep", s1=number) for number in (1, 2, 3)]
    assert len(set(hashes)) == 3


def test_a_pipe_makes_one_message_of_each(stage: Stage) -> None:
    """Its output names the message that it was made of, as its place and as its transaction."""
    graph = stage.graph(
        Source("s1"),
        Processor(inc, inputs="s1", outputs="q1"),
        errors="errors",
        topics={"s1": TX},
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2}, {"x": 3})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 2, 3, tx="s1"),
        "q1": [seen({"x": 2}, "s1", s1=1, q1=1), seen({"x": 3}, "s1", s1=2, q1=2), seen({"x": 4}, "s1", s1=3, q1=3)],
    }
    assert world.records("inc") == [
        began(s1=1),
        announced(s1=1),
        delivered("outputs", s1=2),
        delivered("outputs", s1=3),
        delivered("outputs", s1=4),
    ]
    assert world.totals("inc") == Totals(deliveries=3, outputs=3, messages=3, taken=3)


def test_alts_take_whichever_message_comes_first(stage: Stage) -> None:
    """One message at a time, of any input: the outputs have the order in which the inputs came."""
    took: defaultdict[int, threading.Event] = defaultdict(threading.Event)

    def alts(**messages: X) -> X:
        [message] = messages.values()
        took[message["x"]].set()
        return inc(message)

    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(alts, alts={"a": "s1", "b": "s2"}, outputs="q1"),
        errors="errors",
    )
    with stage.run(graph) as scene:
        for x, source in ((1, "s1"), (2, "s2"), (3, "s2"), (4, "s1")):
            scene.send(source, {"x": x})
            assert took[x].wait(PATIENCE_S)
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 4),
        "s2": xs("s2", 2, 3),
        "q1": [
            seen({"x": 2}, s1=1, q1=1),
            seen({"x": 3}, s2=1, q1=2),
            seen({"x": 4}, s2=2, q1=3),
            seen({"x": 5}, s1=2, q1=4),
        ],
    }
    assert world.records("alts")[2:] == [
        delivered("outputs", s1=2, s2=1),
        delivered("outputs", s1=2, s2=2),
        delivered("outputs", s1=2, s2=3),
        delivered("outputs", s1=3, s2=3),
    ]


def test_a_join_takes_one_message_of_each_input(stage: Stage) -> None:
    """The first with the first, the second with the second; its output names both."""
    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(total, inputs={"a": "s1", "b": "s2"}, outputs="q1"),
        errors="errors",
        topics={"q1": TX},
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 3})
        scene.send("s2", {"x": 2}, {"x": 4})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 3),
        "s2": xs("s2", 2, 4),
        "q1": [seen({"x": 3}, "q1", s1=1, s2=1, q1=1), seen({"x": 7}, "q1", s1=2, s2=2, q1=2)],
    }
    assert world.records("total") == [
        began(s1=1, s2=1),
        announced(s1=1, s2=1),
        delivered("outputs", s1=2, s2=2),
        delivered("outputs", s1=3, s2=3),
    ]


def test_a_join_fork_sends_to_several_outputs(stage: Stage) -> None:
    """Both outputs of a step are one delivery, so its attempt counts two messages."""
    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(broadcast, inputs={"a": "s1", "b": "s2"}, outputs={"left": "q1", "right": "q2"}),
        errors="errors",
        topics={"s1": TX},
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 3})
        scene.send("s2", {"x": 2}, {"x": 4})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 3, tx="s1"),
        "s2": xs("s2", 2, 4),
        "q1": [seen({"x": 3}, "s1", s1=1, s2=1, q1=1), seen({"x": 7}, "s1", s1=2, s2=2, q1=2)],
        "q2": [seen({"x": 3}, "s1", s1=1, s2=1, q2=1), seen({"x": 7}, "s1", s1=2, s2=2, q2=2)],
    }
    assert world.totals("broadcast") == Totals(deliveries=2, outputs=2, messages=4, taken=2)


def test_a_join_fork_may_leave_outputs_out(stage: Stage) -> None:
    """By the bindings that the function returns; None sends nothing."""
    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(by_parity, inputs={"a": "s1", "b": "s2"}, outputs={"even": "q1", "odd": "q2"}),
        errors="errors",
        topics={"s1": TX},
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.send("s2", {"x": 1}, {"x": 3})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 2, tx="s1"),
        "s2": xs("s2", 1, 3),
        "q1": [seen({"x": 2}, "s1", s1=1, s2=1, q1=1)],
        "q2": [seen({"x": 5}, "s1", s1=2, s2=2, q2=1)],
    }
    assert world.totals("by_parity") == Totals(deliveries=2, outputs=2, messages=2, taken=2)


def test_a_broadcast_reads_its_outputs_from_the_declaration(stage: Stage) -> None:
    """One function serves processors with other outputs, and knows none of their bindings."""
    graph = stage.graph(
        Source("s1"),
        Processor(broadcast, name="two", inputs={"in": "s1"}, outputs={"a": "q1", "b": "q2"}),
        Processor(broadcast, name="three", inputs={"in": "q1"}, outputs={"c": "q3", "d": "q4", "e": "q5"}),
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.idle()

    world = stage.world(graph)
    found = world.messages
    assert found["q2"] == [seen({"x": 1}, s1=1, q2=1), seen({"x": 2}, s1=2, q2=2)]
    for topic in ("q3", "q4", "q5"):
        assert found[topic] == [seen({"x": n}, **{"s1": n, "q1": n, topic: n}) for n in (1, 2)]
    assert world.totals("three") == Totals(deliveries=2, outputs=2, messages=6, taken=2)
