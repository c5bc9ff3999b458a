"""What helps around a graph: sending to its source, reading it, asking for its state, and making graphs from graphs."""

from __future__ import annotations

import pytest

from cues_kafka import ConfigError, Graph, Message, Processor, Source, connect
from tests.scenarios.test_graphs import X, inc, xs
from tests.scenarios.world import Stage, seen


def double(message: X) -> X:
    """Twice as much."""
    return {"x": 2 * message["x"]}


def test_a_graph_is_sent_to_read_and_asked(stage: Stage) -> None:
    """It has a default source; topics are read from either end, or all at once; its status says how far tasks are."""
    graph = stage.graph(Source("s1"), Source("s2", default=True), Processor(inc, inputs="s2", outputs="q1"))
    with stage.run(graph) as scene:
        for x in range(5):
            scene.running.send(Message({"x": x}, key=f"k{x}", headers={"trace": f"t{x}"}))
        scene.idle()
        messages = scene.running.messages
        source, out = stage.name("s2"), stage.name("q1")

        assert [message.value["x"] for message in messages(source)] == [0, 1, 2, 3, 4]
        assert [message.value["x"] for message in messages(source, limit=2)] == [0, 1]
        assert [message.value["x"] for message in messages(out, last=2)] == [4, 5]
        assert {stage.short(topic): len([*found]) for topic, found in messages().items()} == {"s1": 0, "s2": 5, "q1": 5}
        [newest] = messages(source, last=1)
        assert (newest.key, newest.headers, newest.partition, newest.offset) == ("k4", [("trace", b"t4")], 0, 4)
        with pytest.raises(ConfigError, match="does not exist"):
            messages(stage.name("s3"))
        [task] = scene.running.status().tasks

    assert (task.task, task.stopped, task.totals.outputs) == ("inc/0", "", 5)
    assert [(stage.short(p.topic), p.offset) for p in task.positions] == [("s2", 5)]
    undecided = stage.graph(Source("s1"), Source("s2"), Processor(inc, inputs="s2", outputs="q1"))
    with connect(stage.cluster, undecided) as client, pytest.raises(ConfigError, match="name the topic"):
        client.send({"x": 1})


def test_graphs_are_made_of_catalogs(stage: Stage) -> None:
    """The later part of a name wins; topics and names are bound to others; what comes out is a graph like any."""
    base = Graph("base", Source("s1"), Processor(inc, name="change", inputs="s1", outputs="q1"), errors="errors")
    feature = Graph("feature", Processor(double, name="change", inputs="s1", outputs="q1"), errors="errors")
    merged = base.merge(feature, base.bind({"q1": "q2"}, names={"change": "other"}), override=True)

    assert merged.processors["change"].fn is double
    assert merged.isomorphic(Graph("x", *merged.parts, errors="errors"))
    assert not merged.isomorphic(base)

    graph = stage.graph(*merged.parts, errors="errors")
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 5})
        scene.idle()

    assert stage.world(graph).messages == {
        "errors": [],
        "s1": xs("s1", 5),
        "q1": [seen({"x": 10}, s1=1, q1=1)],
        "q2": [seen({"x": 6}, s1=1, q2=1)],
    }
