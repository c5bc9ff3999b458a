"""Functions that read and write topics by themselves: what they do belongs to the step of their message."""

from __future__ import annotations

from cues_kafka import Appender, Interrupt, Processor, Source, Step, Tailer
from cues_kafka.core.records import Totals
from tests.scenarios.test_graphs import TX, X, xs
from tests.scenarios.world import Death, Stage, announced, began, delivered, seen


def append_inc(message: X, appended: Appender) -> None:
    """Add one, and write the message without returning it."""
    appended.append({"x": message["x"] + 1})


def test_an_appended_message_is_like_an_output(stage: Stage) -> None:
    """It names the message that it was made of, and its step ends with outputs although nothing is returned."""
    graph = stage.graph(
        Source("s1"),
        Processor(append_inc, inputs="s1", appenders={"appended": "q1"}),
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
    assert world.records("append_inc") == [
        began(s1=1),
        announced(s1=1),
        delivered("outputs", s1=2),
        delivered("outputs", s1=3),
        delivered("outputs", s1=4),
    ]
    assert world.totals("append_inc") == Totals(deliveries=3, outputs=3, messages=3, taken=3)


def test_what_a_function_reads_and_appends_comes_again_after_a_death(stage: Stage) -> None:
    """The process dies before the commit. Its successor finds the tailer where it stood, and writes everything once."""

    def close(day: X, orders: Tailer, archive: Appender) -> X:
        found = [order.value for order in orders.messages()]
        for order in found:
            archive.append(order)
        return {"x": day["x"] + sum(order["x"] for order in found)}

    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(close, inputs="s1", outputs="q1", tailers={"orders": "s2"}, appenders={"archive": "q2"}),
        errors="errors",
    )
    stage.run_to_death(graph, Death("before", "Commit", nth=3), s2=[{"x": 1}, {"x": 2}], s1=[{"x": 10}])
    assert stage.world(graph).messages["q2"] == []

    with stage.run(graph) as scene:
        scene.idle()
        scene.send("s2", {"x": 4})
        scene.send("s1", {"x": 20})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 10, 20),
        "s2": xs("s2", 1, 2, 4),
        "q1": [seen({"x": 13}, s1=1, q1=1), seen({"x": 24}, s1=2, q1=2)],
        "q2": [seen({"x": 1}, s1=1, q2=1), seen({"x": 2}, s1=1, q2=2), seen({"x": 4}, s1=2, q2=3)],
    }
    assert world.totals("close") == Totals(deliveries=2, outputs=2, messages=5, taken=2)


def test_what_an_interrupted_function_has_appended_is_gone(stage: Stage) -> None:
    """It is no message before its step is committed."""
    tries: list[str] = []

    def append_once(message: X, appended: Appender, step: Step) -> None:
        appended.append(message)
        tries.append(step.hash)
        if len(tries) == 1:
            raise Interrupt("stop here")

    graph = stage.graph(
        Source("s1"), Processor(append_once, inputs="s1", appenders={"appended": "q1"}), errors="errors"
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1})
        scene.stopped()
    assert stage.world(graph).messages == {"errors": [], "s1": xs("s1", 1), "q1": []}

    with stage.run(graph) as scene:
        scene.idle()

    world = stage.world(graph)
    assert world.messages["q1"] == [seen({"x": 1}, s1=1, q1=1)]
    assert tries == [world.hash("append_once", s1=1)] * 2
