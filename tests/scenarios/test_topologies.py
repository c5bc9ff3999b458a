"""The shape of a graph, changes of it, and what the messages of a run say about it."""

from __future__ import annotations

from typing import Any

from cues_kafka import Graph, Processor, Source, Topology
from tests.scenarios.test_graphs import inc, total
from tests.scenarios.world import Stage

PARTS: dict[str, Any] = {
    "s1": Source("s1"),
    "s2": Source("s2"),
    "left": Processor(inc, name="left", inputs="s1", outputs="q1"),
    "right": Processor(inc, name="right", inputs="s2", outputs="q2"),
    "join": Processor(total, name="join", inputs={"a": "q1", "b": "q2"}, outputs="q3"),
    "last": Processor(inc, name="last", inputs="q3", outputs="q4"),
}


def test_messages_come_from_what_the_topology_says(stage: Stage) -> None:
    """A message has been through the nodes before the processor that wrote it, and through no others."""
    shape = Topology.of([{("s1", "left"), ("s2", "right")}, "join", "last"])
    graph = stage.graph(*PARTS.values())
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1})
        scene.send("s2", {"x": 2})
        scene.idle()

    assert Graph("graph", *PARTS.values()).topology == shape
    writers = {"s1": "s1", "s2": "s2", "q1": "left", "q2": "right", "q3": "join", "q4": "last"}
    for topic, [message] in stage.world(graph).messages.items():
        before = {writers[came] for came in message.places} - {writers[topic]}
        assert before == shape.transitive_dependencies(writers[topic]), topic
    assert shape.in_nodes == {"s1", "s2"}
    assert shape.out_nodes == {"last"}


def test_a_topology_that_is_edited_is_that_of_the_edited_graph() -> None:
    """Taking parts out, putting them in, and connecting others."""
    shape = Graph("graph", *PARTS.values()).topology

    without = [part for name, part in PARTS.items() if name not in ("join", "last")]
    assert Graph("graph", *without).topology == shape.remove("join").remove("last")
    assert shape.remove("join").components == (
        Topology.of(["s1", "left"]),
        Topology.of(["s2", "right"]),
        Topology.of("last"),
    )
    assert shape.remove("join").in_nodes == {"s1", "s2", "last"}
    assert shape.remove("join").out_nodes == {"left", "right", "last"}

    audit = Processor(inc, name="audit", inputs="q1", outputs="audited")
    wider = Graph("graph", *PARTS.values(), audit)
    assert wider.topology == shape.add("audit").depend("audit", "left")
    assert wider.topology.out_nodes == {"last", "audit"}
    assert wider.topology.two_hops("audit") == {"s1"}
    assert wider.topology.undepend("audit", "left").remove("audit") == shape

    moved = PARTS["last"].replace(inputs="q1")
    assert Graph("graph", *[*PARTS.values()][:-1], moved).topology == shape.undepend("last", "join").depend(
        "last", "left"
    )
