"""A function that raises what is no `Exception` ends its worker, and the text names the message and the class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cues_kafka import Graph, Memory, Out, Processor, Source, Step, TaskStopped, start
from cues_kafka.runtime.calling.failures import ended_by

RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": SystemExit,
    "SystemExit: 3": lambda: SystemExit(3),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}


def raising(n: int, make: Callable[[], BaseException]) -> int:
    """Leaves at the second message."""
    if n == 1:
        raise make()
    return n


def plain(make: Callable[[], BaseException]) -> dict[str, Any]:
    return {"fn": lambda n: raising(n, make), "outputs": "out"}


def with_step(make: Callable[[], BaseException]) -> dict[str, Any]:
    def stepped(n: int, step: Step) -> int:
        return raising(n, make)

    return {"fn": stepped, "outputs": "out"}


def of_list(make: Callable[[], BaseException]) -> dict[str, Any]:
    return {"fn": lambda many: [raising(n, make) for n in many], "outputs": "out", "batch": True}


def generated(make: Callable[[], BaseException]) -> dict[str, Any]:
    def forked(n: int) -> Iterator[Out]:
        yield Out("out", raising(n, make))

    return {"fn": forked, "outputs": {"out": "out"}}


def awaited(make: Callable[[], BaseException]) -> dict[str, Any]:
    async def coroutine(n: int) -> int:
        await asyncio.sleep(0)
        return raising(n, make)

    return {"fn": coroutine, "outputs": "out", "concurrency": 4}


def run(graph: Graph, *values: int) -> None:
    """Run a graph in memory until it is idle."""
    with start(graph, Memory()) as running:
        running.send_many("in", values)
        running.wait_idle(timeout_s=30)


@pytest.mark.parametrize("errors", [None, "failed"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (name, shape)
        for name in RAISED
        for shape in (plain, with_step, generated, awaited)
        if (name, shape) != ("CancelledError", awaited)  # an error message, see test_coroutines
    ],
)
def test_text_names_the_message_and_the_class(name: str, shape: Callable[..., dict[str, Any]], errors: Any) -> None:
    """And nothing hangs. It said: "the worker of 'p' failed: " and no more."""
    options = shape(RAISED[name])
    graph = Graph("g", Source("in"), Processor(options.pop("fn"), name="p", inputs="in", **options), errors=errors)
    with pytest.raises(TaskStopped) as stopped:
        run(graph, 0, 1, 2)
    said = str(stopped.value)
    assert said.startswith(f"the worker of 'p' failed: {name}; raised for in/0 at 1 at test_leaving.py:raising:")
    assert "raise a subclass of Exception" in said


@pytest.mark.parametrize("name", RAISED)
def test_list_is_named_by_its_first_message(name: str) -> None:
    """With `batch=True` the message that raised it is not known."""
    options = of_list(RAISED[name])
    graph = Graph("g", Source("in"), Processor(options.pop("fn"), name="p", inputs="in", **options))
    why = f"failed: {name}; raised for in/0 at 0 at test_leaving"
    with pytest.raises(TaskStopped, match=why):
        run(graph, 1)


def test_note_is_made_once() -> None:
    """A class without a text has its name, and a text is not lost."""
    assert ended_by(SystemExit()) == "SystemExit"
    error = ValueError("why")
    error.add_note("whose")
    assert ended_by(error) == "ValueError: why; whose"
