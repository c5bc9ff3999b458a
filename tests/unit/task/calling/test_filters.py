"""Filters at work: what they leave out is nil, and what headers decide is not decoded."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Message, Processor, Source, has_header, has_tag, has_type
from cues_kafka.ports.log import Headers, Outgoing
from cues_kafka.testing.tester import Tester

BAD = b"\xff no json"


def same(value: Any) -> Any:
    return value


async def later(value: Any) -> Any:
    return value


def many(values: list[Any]) -> list[Any]:
    return values


def stepped(value: Any, step: Any) -> Any:
    assert step.hash
    return value


def either(a: Any = None, b: Any = None) -> Any:
    return [a, b]


def run(processor: Processor, *messages: tuple[str, bytes, dict[str, str]]) -> Tester:
    """Send these bytes with headers, and run."""
    tester = Tester(Graph("g", *map(Source, processor.input_topics), processor, errors="failed"))
    for topic, data, headers in messages:
        pairs: Headers = [(name, text.encode()) for name, text in headers.items()]
        tester.broker.sender("raw").send([Outgoing(topic, 0, b"k", data, headers=pairs)])
    return tester.run()


@pytest.mark.parametrize(
    "how",
    [
        {"fn": same},
        {"fn": later},
        {"fn": later, "concurrency": 3},
        {"fn": many, "batch": True},
        {"fn": stepped},
    ],
    ids=["function", "coroutine", "coroutines", "list", "step"],
)
def test_a_filter_on_headers_runs_before_decoding(how: dict[str, Any]) -> None:
    """What it leaves out may be any bytes; what it passes must still be decoded."""
    processor = Processor(**how, inputs="in", outputs="out", name="p", filter=has_header("region", "eu"))
    tester = run(
        processor,
        ("in", b"1", {"region": "eu"}),
        ("in", BAD, {"region": "us"}),
        ("in", BAD, {}),
        ("in", b"2", {"region": "eu"}),
        ("in", BAD, {"region": "eu"}),
    )

    assert tester.values("out") == [1, 2]
    assert [(error.kind, error.payload) for error in tester.errors()] == [("decode", BAD)]
    assert (tester.totals("p").outputs, tester.totals("p").nils, tester.totals("p").errors) == (2, 2, 1)


def test_a_filter_that_needs_the_value_decodes_it() -> None:
    """Only where the headers do not decide."""
    wanted = has_tag("eu") & has_type("order") & (lambda one: one.value["total"] > 5)
    tester = run(
        Processor(same, inputs="in", outputs="out", filter=wanted),
        ("in", BAD, {"cues-tags": "us"}),
        ("in", BAD, {"cues-tags": "eu"}),
        ("in", b'{"type": "order", "total": 7}', {"cues-tags": "eu"}),
        ("in", b'{"type": "order", "total": 4}', {"cues-tags": "eu"}),
        ("in", b'{"type": "order", "total": 8, "tags": {"eu": false}}', {}),
        ("in", b'{"type": "order", "total": 9, "tags": {"eu": true}}', {}),
    )

    assert [value["total"] for value in tester.values("out")] == [7, 9]
    assert [error.kind for error in tester.errors()] == ["decode"]


def test_a_join_loses_the_bindings_that_its_filter_leaves_out() -> None:
    """Before it decodes them; the pairs stay as they are."""
    join = Processor(either, inputs={"a": "a", "b": "b"}, outputs="out", filter=~has_header("skip"))
    tester = run(
        join, ("a", b"1", {}), ("b", BAD, {"skip": ""}), ("a", BAD, {"skip": ""}), ("b", BAD, {"skip": ""}),
        ("a", b"3", {}), ("b", b"4", {}),
    )  # fmt: skip

    assert tester.values("out") == [[1, None], [3, 4]]
    assert (tester.totals("either").nils, tester.errors()) == (1, [])


def test_alts_are_filtered_one_by_one() -> None:
    """Of each input."""
    alts = Processor(either, alts={"a": "a", "b": "b"}, outputs="out", filter=has_header("b") | has_header("a", "1"))
    tester = run(alts, ("a", b"1", {"a": "1"}), ("b", b"2", {"b": ""}), ("a", BAD, {"a": "2"}), ("b", BAD, {}))

    assert sorted(tester.values("out"), key=str) == [[1, None], [None, 2]]
    assert tester.totals("either").nils == 2


def test_what_passes_keeps_its_value_none() -> None:
    """A tombstone that the headers let pass reaches the function."""
    tester = Tester(Graph("g", Source("in"), Processor(lambda _: 1, inputs="in", outputs="out", name="p",
                                                       filter=has_header("x"))))  # fmt: skip
    tester.send("in", Message(None, key="k", headers={"x": "1"}))

    assert tester.run().values("out") == [1]
