"""What another program writes to a changelog stops the task with a text that says so, or does nothing (R4b)."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from cues_kafka import CodecError, Graph, Json, Processor, Source, State, Store, TaskStopped, Topic
from cues_kafka.client.client import Client
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.testing.tester import Tester

CHANGELOG = "g.p.s.changelog"


def counted(order: Any, *, s: State[int]) -> int:
    """How many came."""
    s["all"] = s.get("all", 0) + 1
    return s["all"]


def counting(**settings: Any) -> Tester:
    """A task that has counted two messages."""
    part = Processor(counted, name="p", inputs="in", outputs="out", state={"s": Store(Json(int), **settings)})
    tester = Tester(Graph("g", Source("in"), part, errors="failed", defaults=Topic(value=Json(), partitions=1)))
    for number in range(2):
        tester.send("in", number)
    return tester.run()


def forge(tester: Tester, *records: tuple[bytes, bytes | None]) -> None:
    """Write to the changelog as another program does."""
    tester.broker.sender("stranger").send([(CHANGELOG, 0, key, value, None, 0) for key, value in records])


@pytest.mark.parametrize("value", [b"xx", b"\xff", b"1e3", b"9" * 400, "３".encode(), b" 3", b"1_0", b"--1"])
def test_mark_that_is_no_number_stops_the_task_by_name(value: bytes) -> None:
    """It was read with `int`, which ended the worker; `rebuild` writes the store again."""
    tester = counting()
    forge(tester, (MARK, value))
    with pytest.raises(TaskStopped, match=r"g\.p\.s\.changelog/0 ends with a mark that is not a number.*rebuild"):
        tester.restart().run()


@pytest.mark.parametrize("settings", [{}, {"ttl": "1 minute"}, {"ttl_messages": 5}], ids=str)
@pytest.mark.parametrize("key", [ENTRY, ENTRY + b"\xff", ENTRY + b"all", b"n", b"u", b"", b"\xff", b"\x1b[2J"])
@pytest.mark.parametrize("value", [None, b"", b"x", b"\xff" * 20, b"[" * 9_000])
def test_forged_entry_ends_no_worker(key: bytes, value: bytes | None, settings: dict[str, Any]) -> None:
    """The task goes on, or stops and says why; nothing else is raised."""
    tester = counting(**settings)
    forge(tester, (key, value))
    tester.send("in", 2)
    stopped = ""
    try:
        tester.restart().run()
    except TaskStopped as error:
        stopped = str(error)
    answered = len(tester.values("out")) + len(tester.errors())
    assert CHANGELOG in stopped if stopped else answered == 3


@pytest.mark.parametrize(
    ("key", "value", "what"), [(b"\xff", b"1", "the key b"), (b"a", b"zz", "the value of the key b'a'")]
)
def test_forged_entry_that_a_codec_does_not_read_is_named_with_its_store(key: bytes, value: bytes, what: str) -> None:
    """To the function that looks at all entries, and to a view of the store. Each got the bare error of a codec."""

    def total(_: Any, s: State[int]) -> int:
        s["all"] = 1
        return sum(s[one] for one in s)

    part = Processor(total, name="p", inputs="in", outputs="out", state={"s": Store(Json(int))})
    graph = Graph("g", Source("in"), part, errors="e", defaults=Topic(value=Json(), partitions=1))
    tester = Tester(graph)
    tester.send("in", 1)
    tester.run()
    forge(tester, (ENTRY + key, value), (MARK, b"1"))
    tester.send("in", 2)
    tester.restart().run()

    named = rf"^{re.escape(what)}.* in the store 's' cannot be read: .* wrote it to g\.p\.s\.changelog.*rebuild"
    [error] = tester.errors()
    assert re.search(named, error.text)
    with closing(Client(tester.broker, graph)) as client, closing(client.table("p", "s")) as view:
        assert view["all"] == 1
        with pytest.raises(CodecError, match=named):
            view.copy()
