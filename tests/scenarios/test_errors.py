"""Functions that raise, outputs that are refused, and writes that fail."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ErrorMessage, Errors, Processor, Source, Step, error_context
from cues_kafka.core.records import Totals
from cues_kafka.errors import RetriableError
from tests.scenarios.test_graphs import X, inc, xs
from tests.scenarios.world import Stage, announced, began, delivered, seen


def only_even(message: X) -> X:
    """Refuse odd numbers."""
    if message["x"] % 2:
        raise ValueError("Oops")
    return message


def test_a_message_becomes_an_output_or_an_error_and_never_both(stage: Stage) -> None:
    """Errors are messages like others: a processor reads them, and its outputs name what has failed."""

    def report(error: ErrorMessage) -> str:
        return f"{error.processor}: {error.text}"

    graph = stage.graph(
        Source("s1"),
        Processor(only_even, inputs="s1", outputs="q1"),
        Processor(report, inputs="errors", outputs="reports", errors=False),
        errors="errors",
    )
    with stage.run(graph) as scene:
        scene.send("s1", *({"x": x} for x in (1, 2, 3, 4)))
        scene.idle()

    world = stage.world(graph)
    oops = ("only_even", "raised", "Oops")
    assert world.messages == {
        "errors": [seen(oops, s1=1, errors=1), seen(oops, s1=3, errors=2)],
        "s1": xs("s1", 1, 2, 3, 4),
        "q1": [seen({"x": 2}, s1=2, q1=1), seen({"x": 4}, s1=4, q1=2)],
        "reports": [
            seen("only_even: Oops", s1=1, errors=1, reports=1),
            seen("only_even: Oops", s1=3, errors=2, reports=2),
        ],
    }
    assert world.records("only_even") == [
        began(s1=1),
        announced(s1=1),
        delivered("errors", s1=2),
        delivered("outputs", s1=3),
        delivered("errors", s1=4),
        delivered("outputs", s1=5),
    ]
    first, second = world.values("errors")
    assert [first.hash.hex(), second.hash.hex()] == [world.hash("only_even", s1=number) for number in (1, 3)]


def test_an_error_message_has_the_context_that_the_function_gave(stage: Stage) -> None:
    """The error is delivered: the message behind it goes on, and the failed one is not tried again."""
    calls: list[int] = []

    def fails_once(message: X, step: Step) -> X:
        calls.append(message["x"])
        step.error_context(step="context of the step")
        with error_context(block="context of the block"):
            if len(calls) == 1:
                raise ValueError("Oops")
        return message

    graph = stage.graph(
        Source("s1"), Processor(fails_once, inputs="s1", outputs="q1"), errors=Errors("errors", payload=True)
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.idle()

    world = stage.world(graph)
    assert world.messages == {
        "errors": [seen(("fails_once", "raised", "Oops"), s1=1, errors=1)],
        "s1": xs("s1", 1, 2),
        "q1": [seen({"x": 2}, s1=2, q1=1)],
    }
    assert world.records("fails_once") == [
        began(s1=1), announced(s1=1), delivered("errors", s1=2), delivered("outputs", s1=3),
    ]  # fmt: skip
    [error] = world.values("errors")
    assert (error.exception, error.topics) == ("ValueError", (stage.name("s1"),))
    assert error.context == {"step": "context of the step", "block": "context of the block"}
    assert error.declaration["outputs"] == stage.name("q1")
    assert error.payload == b'{"x":1}'
    assert calls == [1, 2]


def test_an_output_that_cannot_be_written_is_an_error(stage: Stage) -> None:
    """It is the function's fault: the outputs of the step vanish, and one error message stands in their place."""

    def hold(message: X) -> dict[str, Any]:
        return {"good": message, "bad": message if message["x"] % 2 == 0 else object()}

    graph = stage.graph(
        Source("s1"), Processor(hold, inputs="s1", outputs={"good": "q1", "bad": "q2"}), errors="errors"
    )
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.idle()

    world = stage.world(graph)
    [error] = world.values("errors")
    assert (error.kind, error.processor) == ("output", "hold")
    assert world.messages["q1"] == [seen({"x": 2}, s1=2, q1=1)]
    assert world.messages["q2"] == [seen({"x": 2}, s1=2, q2=1)]
    assert world.records("hold") == [
        began(s1=1), announced(s1=1), delivered("errors", s1=2), delivered("outputs", s1=3),
    ]  # fmt: skip


def test_a_write_that_fails_is_an_outage_and_no_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record and output are written when it fails. The transaction is discarded, and the message is delivered again."""
    flush, flushed = stage.session.flush, []

    def fails_third(session: Any) -> Any:
        report = flush(session)
        flushed.append(report)
        if len(flushed) == 3:
            raise RetriableError("failed after the write")
        return report

    monkeypatch.setattr(stage.session, "flush", fails_third)
    graph = stage.graph(Source("s1"), Processor(inc, inputs="s1", outputs="q1"), errors="errors")
    with stage.run(graph) as scene:
        scene.send("s1", {"x": 1}, {"x": 2})
        scene.idle()

    world = stage.world(graph)
    assert len(flushed) == 5
    assert world.messages == {
        "errors": [],
        "s1": xs("s1", 1, 2),
        "q1": [seen({"x": 2}, s1=1, q1=1), seen({"x": 3}, s1=2, q1=2)],
    }
    assert world.records("inc") == [
        began(s1=1), announced(s1=1), delivered("outputs", s1=2), delivered("outputs", s1=3),
    ]  # fmt: skip
    assert world.totals("inc") == Totals(deliveries=2, outputs=2, messages=2, taken=2)


def test_without_an_errors_topic_the_task_stops_at_the_message(stage: Stage) -> None:
    """Nothing is skipped: after a repair, or with an errors topic, the same message comes first."""

    def graph(**settings: Any) -> Any:
        return stage.graph(Source("s1"), Processor(only_even, inputs="s1", outputs="q1"), **settings)

    with stage.run(graph()) as scene:
        scene.send("s1", {"x": 2}, {"x": 3}, {"x": 4})
        stopped = scene.stopped()
        assert isinstance(stopped.__cause__, ValueError)

    world = stage.world(graph())
    assert world.messages["q1"] == [seen({"x": 2}, s1=1, q1=1)]
    assert world.records("only_even") == [began(s1=1), announced(s1=1), delivered("outputs", s1=2)]

    repaired = graph(errors="errors")
    with stage.run(repaired) as scene:
        scene.idle()

    world = stage.world(repaired)
    assert world.messages["errors"] == [seen(("only_even", "raised", "Oops"), s1=2, errors=1)]
    assert world.messages["q1"] == [seen({"x": 2}, s1=1, q1=1), seen({"x": 4}, s1=3, q1=2)]
