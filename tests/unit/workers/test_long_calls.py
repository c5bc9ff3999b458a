"""A function that hangs: the log and the status say so, and the worker ends where that is asked for."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cues_kafka import Graph, Memory, Processor, Raw, Source, TaskStopped, Topic, start
from cues_kafka.graph.declare import CallPolicy
from cues_kafka.running.running import Running
from cues_kafka.workers import long_calls as module

LET_GO = threading.Event()
RAW = Topic(value=Raw())


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Whatever hangs goes on in the end."""
    LET_GO.clear()
    yield
    LET_GO.set()


def wait_at(value: Any) -> Any:
    """Hangs at this one."""
    if value in (b"4", 4):
        LET_GO.wait(30)
    return value


def plain(value: bytes) -> bytes:
    """Bytes to bytes: the hottest loop."""
    return wait_at(value)  # type: ignore[no-any-return]


def number(value: int) -> int:
    """Decoded and encoded."""
    return wait_at(value)  # type: ignore[no-any-return]


def several(value: int) -> Iterator[int]:
    """A generator."""
    yield wait_at(value)


def stepwise(value: int, step: Any) -> int:
    """The long way."""
    return wait_at(value)  # type: ignore[no-any-return]


async def later(value: int) -> int:
    """Asynchronous, several at once."""
    if value == 4:
        await asyncio.to_thread(wait_at, value)
    return value


def listed(values: list[int]) -> list[int]:
    """One call for all."""
    return [wait_at(value) for value in values]


KINDS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (plain, {}, "in/0 at 4"),
    (number, {}, "in/0 at 4"),
    (several, {}, "in/0 at 4"),
    (stepwise, {}, "in/0 at 4"),
    (later, {"concurrency": 3}, "in/0 at 4"),
    (listed, {"batch": True}, "in/0 at 0 to in/0 at 7"),
]


def calling(running: Running) -> str:
    """What the status says of the task's call."""
    [task] = running.status().tasks
    return task.calling


@pytest.mark.parametrize(("fn", "options", "at"), KINDS, ids=[fn.__name__ for fn, _, _ in KINDS])
def test_a_call_that_takes_long_is_named_with_its_message(
    fn: Callable[..., Any], options: dict[str, Any], at: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line in the log; the status as long as it lasts; then the task goes on as if nothing had been."""
    monkeypatch.setattr(module, "LONG_S", 0.1)
    graph = Graph(
        "g",
        Source("in"),
        Processor(fn, inputs="in", outputs="out", name="f", **options),
        topics={"in": RAW, "out": RAW} if fn is plain else {},
    )
    with start(graph, Memory(), calls=CallPolicy(warn_seconds=0.2)) as running:
        running.send_many("in", [b"%d" % n if fn is plain else n for n in range(8)])
        deadline = time.monotonic() + 20
        while "call takes long" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)

        assert re.fullmatch(rf"calling for \d+ s: {at}", calling(running))
        LET_GO.set()
        running.wait_idle(timeout_s=20)
        assert calling(running) == ""
        assert len(list(running.messages("out"))) == 8

    [line] = [record.message for record in caplog.records if "call takes long" in record.message]
    assert re.fullmatch(rf"call takes long task='f/0' at='{at}' for_s=\d+", line)


def test_many_calls_that_take_long_together_are_not_one_that_does(caplog: pytest.LogCaptureFixture) -> None:
    """A chunk grows while calls are quick; then each of it takes a moment."""

    def slower(value: int) -> int:
        if value >= 1100:
            time.sleep(0.05)
        return value

    graph = Graph("g", Source("in"), Processor(slower, inputs="in", outputs="out", name="f"))
    with start(graph, Memory(), calls=CallPolicy(warn_seconds=2.0)) as running:
        running.send_many("in", range(1160))
        running.wait_idle(timeout_s=60)

    assert "call takes long" not in caplog.text


def test_a_call_that_takes_too_long_ends_the_worker() -> None:
    """Only where that was asked for; the cause names task and message."""
    graph = Graph("g", Source("in"), Processor(number, inputs="in", outputs="out", name="f"))
    running = start(graph, Memory(), calls=CallPolicy(end_seconds=0.2))
    try:
        running.send_many("in", range(8))
        with pytest.raises(TaskStopped, match=r"task f/0 .* with in/0 at 4, longer than calls.end_seconds=0.2") as met:
            running.wait()
        assert isinstance(met.value.__cause__, TimeoutError)
    finally:
        running.abandon()


def test_a_message_whose_call_takes_too_long_each_time_is_quarantined_alone() -> None:
    """Each end counts as a death of its process, and innocent tasks of the same process leave in order."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(number, inputs="in", outputs="out", name="f", quarantine_after=1),
        errors="failed",
        defaults=Topic(partitions=1),
    )
    memory, starts = Memory(), 0
    while True:
        starts += 1
        assert starts < 8, "it hangs without end"
        running = start(graph, memory, calls=CallPolicy(end_seconds=0.2))
        try:
            if starts == 1:
                running.send_many("in", range(8))
            running.wait_idle(timeout_s=20)
        except TaskStopped:
            running.abandon()
            continue
        break
    with running:
        [error] = running.messages("failed")
        assert sorted(message.value for message in running.messages("out")) == [0, 1, 2, 3, 5, 6, 7]
    assert (error.value.kind, error.value.consumed[0].offset) == ("quarantine", 4)
