"""A processor whose bindings are declared in another order goes on, also under a snapshot whose batch died."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source, TaskStopped
from cues_kafka.testing.tester import Crash, Tester

BINDINGS = {"a": "in-a", "b": "in-b", "c": "in-c"}


def collect(**messages: Any) -> list[Any]:
    return sorted(messages.items())


def declared(shape: str, order: tuple[str, ...]) -> Graph:
    """A processor that reads these bindings in this order, and acts outside, so that a snapshot precedes each batch."""
    bindings = {binding: BINDINGS[binding] for binding in order}
    processor = Processor(collect, **{shape: bindings}, outputs="out", effects=True)  # type: ignore[arg-type]
    return Graph("g", *map(Source, BINDINGS.values()), processor)


@pytest.mark.parametrize("order", list(itertools.permutations("abc"))[1:], ids="".join)
@pytest.mark.parametrize("crash", [Crash("before", "Call"), Crash("after", "Call"), Crash("before", "Commit", 3)])
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("inputs", [[["a", n], ["b", n], ["c", n]] for n in range(3)]),
        ("alts", [[[binding, n]] for binding in "abc" for n in range(3)]),
    ],
)
def test_another_order_of_the_bindings_is_the_same_declaration(
    shape: str, expected: list[Any], crash: Crash, order: tuple[str, ...]
) -> None:
    """What the snapshot has announced is delivered, and what comes later, each once."""
    former = Tester(declared(shape, ("a", "b", "c")))
    for n in range(2):
        for topic in BINDINGS.values():
            former.send(topic, n)
    former.run(crash=crash)
    assert former.crashed

    tester = Tester(declared(shape, order), broker=former.broker)
    tester.run()
    for topic in BINDINGS.values():
        tester.send(topic, 2)
    tester.run()

    assert sorted(tester.values("out")) == sorted(expected)
    assert tester.totals("collect").outputs == len(expected)


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (declared("alts", ("a", "b", "c")), "bindings changed: .*, 'c' from 'in-c'"),
        (declared("inputs", ("b", "a")), "declaration of the inputs changed"),
    ],
)
def test_other_bindings_under_a_snapshot_are_another_declaration(later: Graph, says: str) -> None:
    """A new binding has no part in what the snapshot has announced, and a join pairs it in another way."""
    former = Tester(declared("alts", ("a", "b")))
    for topic in ("in-a", "in-b"):
        former.send(topic, 1)
    former.run(crash=Crash("after", "Call"))

    with pytest.raises(TaskStopped, match=says):
        Tester(later, broker=former.broker).run()
