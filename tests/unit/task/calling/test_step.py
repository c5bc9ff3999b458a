"""`step.processor`: the declaration, from which a function learns where it stands in the graph."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cues_kafka import Graph, Message, Processor, Source, Step, Timer, Timers
from cues_kafka.testing.tester import Tester

OUTPUTS = {"a": "out-a", "b": "out-b", "c": "out-c"}


def broadcast(message: Any, step: Step) -> dict[str, Any]:
    return dict.fromkeys([binding for binding, _ in step.processor.outputs], message)


async def later(message: Any, step: Step) -> dict[str, Any]:
    return broadcast(message, step)


def many(messages: list[Any], step: list[Step]) -> list[dict[str, Any]]:
    return [broadcast(message, one) for message, one in zip(messages, step, strict=True)]


@pytest.mark.parametrize(
    "how",
    [{"fn": broadcast}, {"fn": later, "concurrency": 3}, {"fn": many, "batch": True}],
    ids=["one", "async", "list"],
)
@pytest.mark.parametrize("bindings", [["b"], ["c", "a"], ["a", "b", "c"]])
def test_a_function_sends_to_all_outputs_of_its_processor(how: dict[str, Any], bindings: list[str]) -> None:
    """The same function in any graph: bindings are those of the declaration, not of the code."""
    processor = Processor(**how, inputs="in", outputs={binding: OUTPUTS[binding] for binding in bindings}, name="p")
    tester = Tester(Graph("g", Source("in"), processor))
    tester.send_many("in", [1, 2, 3])
    tester.run()

    got = {binding: tester.values(OUTPUTS[binding]) for binding in bindings}
    assert got == {binding: [1, 2, 3] for binding in bindings}


def test_the_step_has_the_declaration_and_names_the_task() -> None:
    """The graph's own processor, which no function can change."""
    seen: list[Step] = []

    def keep(message: Any, step: Step) -> None:
        seen.append(step)
        with pytest.raises(dataclasses.FrozenInstanceError):
            step.processor.name = "other"  # type: ignore[misc]

    graph = Graph("g", Source("in"), Processor(keep, inputs="in", name="check", opts={}))
    tester = Tester(graph)
    tester.send("in", 1)
    tester.run()

    [step] = seen
    assert step.processor is graph.processors["check"]
    assert (step.processor.kind, step.task) == ("sink", "check/0")


def test_the_step_of_a_timer_has_the_processor_that_declares_it() -> None:
    """Not the one that stands in for its function."""
    kinds: list[str] = []

    def ring(timer: Timer, step: Step) -> None:
        kinds.append(f"{step.processor.name} {step.processor.kind} {[*step.processor.state]}")

    def wait(message: Any, step: Step) -> None:
        step.schedule("k", at=step.time_ms + 1)

    tester = Tester(Graph("g", Source("in"), Processor(wait, inputs="in", state={"timers": Timers(ring)})))
    tester.send("in", Message(1, timestamp_ms=1_000))
    tester.send("in", Message(1, timestamp_ms=2_000))
    tester.run()

    assert kinds == ["wait sink ['timers']"]
