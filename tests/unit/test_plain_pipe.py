"""The quick way through a pipe of bytes has the outcomes of the long one."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Message, Processor, Raw, Source, Topic
from cues_kafka.testing.tester import Tester

COUNT = 60
UNUSUAL = {7: b"none", 20: b"raise", 21: b"message", 33: b"text", 34: b"raise"}


def values() -> list[bytes]:
    """Usual ones, with each unusual one between them."""
    return [UNUSUAL.get(i, b"%03d" % i) for i in range(COUNT)]


class Function:
    """Does what the value says, and remembers every call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def __call__(self, value: bytes) -> Any:
        self.calls.append(value)
        if value == b"raise":
            raise ValueError("as asked")
        return {b"none": None, b"message": Message(b"made", key="k"), b"text": "no bytes"}.get(value, value)


def world_of(fn: Function, errors: str | None) -> Tester:
    """One pipe of bytes."""
    pipe = Processor(fn, name="pipe", inputs="in", outputs="out")
    return Tester(Graph("g", Source("in"), pipe, errors=errors, defaults=Topic(value=Raw())))


def test_unusual_results_among_usual_ones_keep_their_places() -> None:
    """None, a `Message`, an exception, a value that is refused: each is called once and ends as it does elsewhere."""
    fn = Function()
    world = world_of(fn, "failed")
    world.send_many("in", values())
    world.run()

    assert fn.calls == values()
    expected = [b"made" if v == b"message" else v for v in values() if v not in (b"none", b"raise", b"text")]
    assert world.values("out") == expected
    assert [(e.exception, e.consumed[0].offset) for e in world.errors()] == [
        ("ValueError", 20),
        ("CodecError", 33),
        ("ValueError", 34),
    ]
    totals = world.totals("pipe")
    assert (totals.deliveries, totals.outputs, totals.errors, totals.nils) == (COUNT, COUNT - 4, 3, 1)


def test_without_an_errors_topic_the_steps_before_a_failure_are_committed() -> None:
    """DESIGN 7: unhandled; the task stops behind the last step that ended."""
    fn = Function()
    world = world_of(fn, None)
    world.send_many("in", values())

    with pytest.raises(ValueError, match="as asked"):
        world.run()

    assert world.values("out") == [v for v in values()[:20] if v != b"none"]
    assert world.totals("pipe").deliveries == 20
