"""Our own headers come with a message's others, and are left out wherever a program passes all of them on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import Graph, Message, Out, Processor, Raw, Source, Step, Topic
from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.message import OWN, header_list
from cues_kafka.testing.tester import Tester

META = Topic(value=Raw(), meta={"offset"})


def passed(value: bytes, step: Step) -> Message[bytes]:
    """A hop that keeps the headers."""
    return Message(value, headers=step.inputs[step.binding].headers)


def as_mapping(value: bytes, step: Step) -> Message[bytes]:
    """The same by a mapping."""
    return Message(value, headers=dict(step.inputs[step.binding].headers))


def forked(value: bytes, step: Step) -> Iterator[Out]:
    """The same by a fork."""
    yield Out("out", Message(value, headers=step.inputs[step.binding].headers))


def appended(value: bytes, step: Step, to: Any) -> None:
    """The same by an appender."""
    to.append(Message(value, headers=step.inputs[step.binding].headers))


HOPS: dict[str, dict[str, Any]] = {
    "returned": {"fn": passed, "outputs": "out"},
    "a mapping": {"fn": as_mapping, "outputs": "out"},
    "yielded": {"fn": forked, "outputs": {"out": "out"}},
    "appended": {"fn": appended, "appenders": {"to": "out"}},
}


def chain(second: dict[str, Any]) -> Tester:
    """Two hops; the first one's output has our headers."""
    options = dict(second)
    graph = Graph(
        "g",
        Source("in"),
        Processor(passed, name="first", inputs="in", outputs="between"),
        Processor(options.pop("fn"), name="second", inputs="between", **options),
        errors="failed",
        defaults=META,
    )
    tester = Tester(graph)
    tester.send("in", Message(b"v", headers=[("h", "1"), ("h", "2"), ("null", None)]))
    return tester.run()


@pytest.mark.parametrize("second", HOPS)
def test_second_hop_passes_on_the_headers_that_the_first_one_wrote(second: str) -> None:
    """Each message was an error: the header `cues` was refused. The output has ours once, and they are its own."""
    tester = chain(HOPS[second])
    assert tester.errors() == []
    [between], [out] = tester.messages("between"), tester.messages("out")
    assert [name for name, _ in between.headers] == [HEADER, "h", "h", "null", "cues-meta"]
    users = [("h", b"1"), ("h", b"2"), ("null", None)]
    expected = list(dict(users).items()) if second == "a mapping" else users
    assert [one for one in out.headers if one[0] not in OWN] == expected
    assert sorted(name for name, _ in out.headers if name in OWN) == sorted(OWN)
    assert dict(out.headers)[HEADER] != dict(between.headers)[HEADER]


def test_clients_pass_on_the_headers_of_what_they_have_read() -> None:
    """By `send`, a topic, and a transaction."""
    tester = chain(HOPS["returned"])
    [read] = tester.messages("out")
    client = tester.client
    client.send("in", b"a", headers=dict(read.headers))
    client.send("in", Message(b"b", headers=read.headers))
    client.topic("in").append(Message(b"c", headers=read.headers))
    client.topic("in").append(Message(b"d", headers=read.headers), id="1")
    names = [[name for name, _ in one.headers] for one in tester.messages("in")[1:]]
    assert names == [["h", "null"], ["h", "h", "null"], ["h", "h", "null"], ["h", "h", "null", "cues-id"]]


def test_own_headers_are_left_out_and_no_others() -> None:
    """Names that only begin as ours do are users'."""
    assert header_list([*((name, b"x") for name in OWN), ("cues-own", b"1"), ("Cues", b"2")]) == [
        ("cues-own", b"1"),
        ("Cues", b"2"),
    ]
