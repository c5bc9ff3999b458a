"""Filters on every input of a processor, and functions that know bindings and no topics."""

from __future__ import annotations

from typing import Any, TypeAlias

from cues_kafka import Processor, Source, has_tag, has_type
from cues_kafka.core.records import Totals
from tests.scenarios.test_graphs import TX
from tests.scenarios.world import Stage, seen

Value: TypeAlias = dict[str, Any]


def test_a_filter_looks_at_each_message_of_a_join(stage: Stage) -> None:
    """The function gets those that pass, and is not called if none does. A pair is never torn."""
    got: dict[str, list[Value]] = {}

    def keep(got: list[Value], **messages: Value) -> None:
        got.append(messages)

    def watch(name: str, *tags: str) -> Processor:
        got[name] = []
        opts = {"got": got[name]}
        return Processor(keep, name=name, inputs={"a": "s1", "b": "s2"}, filter=has_tag(*tags), opts=opts)

    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        watch("either", "t1", "t2"),
        watch("first", "t1"),
        watch("second", "t2"),
        watch("other", "other"),
    )
    both, only_1, only_2 = {"t1": "message", "t2": "message"}, {"t1": "message"}, {"t2": "message"}
    pairs = [(both, both), (only_2, only_1), (only_1, only_1), ({}, {"t1": False})]
    with stage.run(graph) as scene:
        for a, b in pairs:
            scene.send("s1", {"tags": a})
            scene.send("s2", {"tags": b})
        scene.idle()

    def passed(**tags: Value) -> Value:
        return {binding: {"tags": tags[binding]} for binding in tags}

    assert got == {
        "either": [passed(a=both, b=both), passed(a=only_2, b=only_1), passed(a=only_1, b=only_1)],
        "first": [passed(a=both, b=both), passed(b=only_1), passed(a=only_1, b=only_1)],
        "second": [passed(a=both, b=both), passed(a=only_2)],
        "other": [],
    }
    world = stage.world(graph)
    assert {world.totals(name) for name in got} == {Totals(deliveries=4, nils=4, taken=4)}


def test_a_function_gets_messages_by_their_bindings(stage: Stage) -> None:
    """Its topics may have any names. What the filter leaves out is a nil, whatever the field holds."""

    def mark(component: bool, a: Value | None = None, ignored: Value | None = None) -> Value | None:
        return None if a is None else {"out": a | {"processed": True, "system": component}}

    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(mark, inputs={"a": "s1", "ignored": "s2"}, outputs={"out": "docs"}, filter=has_tag("doc")),
        system={"component": lambda: True},
    )
    left_out = [{}, {"tags": None}, {"tags": False}, {"tags": {}}, {"tags": {"other": "message"}}]
    with stage.run(graph) as scene:
        for value in [*left_out, {"tags": {"doc": "message"}}]:
            scene.send("s1", value)
            scene.send("s2", {})
        scene.idle()

    world = stage.world(graph)
    made = {"tags": {"doc": "message"}, "processed": True, "system": True}
    assert world.messages["docs"] == [seen(made, s1=6, s2=6, docs=1)]
    assert world.totals("mark") == Totals(deliveries=6, outputs=1, nils=5, messages=1, taken=6)


def test_types_and_tags_lead_messages_through_a_graph(stage: Stage) -> None:
    """A join takes commands only, and a sink documents only."""
    stored: dict[int, Value] = {}

    def command(**tags: Value) -> Value:
        return {"type": "command", "tags": tags}

    def process(a: Value | None = None, **_: Value) -> Value:
        assert a is not None
        return a | {"tags": {tag: document | {"processed": True} for tag, document in a["tags"].items()}}

    def store(message: Value, stored: dict[int, Value]) -> None:
        document = message["tags"]["doc"]
        stored[document["id"]] = document

    graph = stage.graph(
        Source("s1"),
        Source("s2"),
        Processor(process, inputs={"a": "s1", "ignored": "s2"}, outputs="docs", filter=has_type("command")),
        Processor(store, inputs="docs", filter=has_tag("doc"), opts={"stored": stored}),
        errors="errors",
        topics={"docs": TX},
    )
    other, doc = {"id": 1, "text": "no dice"}, {"id": 3, "text": "text"}
    with stage.run(graph) as scene:
        scene.send("s1", command(other=other), command(doc=doc))
        scene.send("s2", command(other=other), command(other=other))
        scene.idle()

    assert stored == {3: doc | {"processed": True}}
    assert stage.world(graph).messages == {
        "errors": [],
        "s1": [seen(command(other=other), s1=1), seen(command(doc=doc), s1=2)],
        "s2": [seen(command(other=other), s2=1), seen(command(other=other), s2=2)],
        "docs": [
            seen(command(other=other | {"processed": True}), "docs", s1=1, s2=1, docs=1),
            seen(command(doc=doc | {"processed": True}), "docs", s1=2, s2=2, docs=2),
        ],
    }
