"""The outcome of one message: its outputs, one error message, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import ErrorMessage, Graph, Message, Out, Processor, Source
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.tester import Tester


def test_a_yielded_none_is_nothing() -> None:
    """It became a tombstone with the input's key."""

    def fork(_: int) -> Iterator[Out]:
        yield Out("all", None)

    tester = Tester(Graph("g", Source("in"), Processor(fork, inputs="in", outputs={"all": "all"})))
    tester.send("in", 1, key="k")
    assert tester.run().messages("all") == []


@pytest.mark.parametrize("wrong", ["soon", 1.5, -5, 2**70, True])
def test_a_wrong_timestamp_is_an_error_of_its_step(wrong: Any) -> None:
    """It reached the client, which raised in the middle of a batch."""
    late = Processor(lambda n: Message(n, timestamp_ms=wrong), inputs="in", outputs="out", name="late")
    tester = Tester(Graph("g", Source("in"), late, errors="failed"))
    tester.send("in", 1, key="k")
    assert [error.kind for error in tester.run().errors()] == ["output"]


def test_an_exception_without_a_text_is_an_error_message_too() -> None:
    """Its `__str__` raised, and took the worker with it."""

    class Bad(Exception):
        def __str__(self) -> str:
            return str(self.args[5])

    def raises(_: int) -> int:
        raise Bad("x")

    tester = Tester(Graph("g", Source("in"), Processor(raises, inputs="in", outputs="out"), errors="failed"))
    tester.send("in", 1, key="k")
    [error] = tester.run().errors()
    assert "IndexError" in error.text


def test_the_error_context_of_one_step_of_a_list_is_kept() -> None:
    """Only functions that get one message at a time had theirs in the error message."""

    def several(values: list[int], step: list[Any]) -> list[Any]:
        step[1].error_context(who="me")
        return [values[0], ValueError("no"), *values[2:]]

    tester = Tester(
        Graph("g", Source("in"), Processor(several, inputs="in", outputs="out", batch=True), errors="failed")
    )
    tester.send_many("in", [1, 2, 3])
    [error] = tester.run().errors()
    assert error.context == {"who": "me"}
    assert sorted(tester.values("out")) == [1, 3]


@pytest.mark.parametrize("batch", [False, True])
def test_the_error_message_of_a_join_carries_the_bytes_of_the_input_that_cannot_be_decoded(*, batch: bool) -> None:
    """It carried those of the lead, which could be decoded."""
    processor = Processor(lambda a, b: b, name="join", inputs={"a": "a", "b": "b"}, outputs="out", batch=batch)
    tester = Tester(Graph("g", Source("a"), Source("b"), processor, errors="failed"))
    tester.send("a", {"good": 1})
    tester.broker.sender("raw").send([Outgoing("b", 0, b"k", b"\xff no json")])
    tester.run()

    assert [(e.kind, e.payload) for e in tester.errors()] == [("decode", b"\xff no json")]


def test_a_processor_reads_an_errors_topic_as_error_messages() -> None:
    """The graph was accepted, and then nothing of it could be decoded."""
    seen: list[ErrorMessage] = []

    def fails(value: int) -> int:
        raise ValueError(f"not {value}")

    graph = Graph(
        "g",
        Source("in"),
        Processor(fails, inputs="in", outputs="out"),
        Processor(seen.append, name="watch", inputs="failed", errors=False),
        errors="failed",
    )
    tester = Tester(graph)
    tester.send_many("in", [1, 2])
    tester.run()

    assert [(e.processor, e.exception, e.text) for e in seen] == [
        ("fails", "ValueError", "not 1"),
        ("fails", "ValueError", "not 2"),
    ]
