"""A function that raises what is no `Exception` ends its worker, and the text names the message and the class."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cues_kafka import (
    Codec,
    Graph,
    Interrupt,
    Json,
    Memory,
    Message,
    Out,
    Processor,
    Source,
    Step,
    TaskStopped,
    Timer,
    Timers,
    Topic,
    start,
)
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.calling.failures import ended_by

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


def run(graph: Graph, *values: Any, memory: Memory | None = None, ends: bool = False) -> None:
    """Run a graph in memory until it is idle, or until it ends: a timer may ring when all messages are delivered."""
    with start(graph, memory or Memory()) as running:
        running.send_many("in", values)
        if ends:
            running.wait()
        else:
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


# Other code of the user's


@dataclass(frozen=True)
class Leaving(Codec):
    """A codec that leaves where it reads or writes 1."""

    make: Callable[[], BaseException]
    where: str

    def encode(self, value: Any) -> bytes:
        return b"%d" % (raising(value, self.make) if self.where == "encode" else value)

    def decode(self, data: bytes) -> Any:
        return raising(int(data), self.make) if self.where == "decode" else int(data)


def step_of(value: int, step: Step) -> int:
    """Passes it on."""
    return value


def yielded(value: int) -> Iterator[Out]:
    """Passes it on, in the middle of its outputs."""
    yield Out("out", value)


async def later(value: int) -> int:
    """Passes it on."""
    await asyncio.sleep(0)
    return value


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"fn": lambda value: value},
    "with step": {"fn": step_of},
    "generated": {"fn": yielded, "outputs": {"out": "out"}},
    "awaited": {"fn": later, "concurrency": 4},
    "list": {"fn": lambda many: many, "batch": True},
    "list with steps": {"fn": lambda many, step: many, "batch": True},
}

WHERE: dict[str, Callable[[Callable[[], BaseException]], dict[str, Any]]] = {
    "decode": lambda make: {"topics": {"in": Topic(value=Leaving(make, "decode"))}},
    "encode": lambda make: {"topics": {"out": Topic(value=Leaving(make, "encode"))}},
    "filter": lambda make: {"filter": lambda message: raising(message.value, make) >= 0},
}


FAILED = TopicPartition("failed", 0)


def graph_of(fn: Callable[..., Any], topics: dict[str, Topic] | None = None, **options: Any) -> Graph:
    """One processor, and an errors topic that gets nothing."""
    processor = Processor(fn, name="p", inputs="in", **{"outputs": "out", **options})
    return Graph(
        "g", Source("in"), processor, errors="failed", topics=topics or {}, defaults=Topic(Json(), partitions=1)
    )


def ended(graph: Graph, *messages: Message[Any]) -> str:
    """Why the worker has ended, without an error message."""
    memory = Memory()
    with pytest.raises(TaskStopped) as stopped:
        run(graph, *messages, memory=memory, ends=True)
    broker = open_broker(memory)
    assert {place: (one.low, one.high) for place, one in broker.watermarks([FAILED]).items()} == {FAILED: (0, 0)}
    return str(stopped.value)


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", WHERE)
def test_codec_or_filter_that_leaves_ends_the_worker_with_its_message(where: str, shape: str, name: str) -> None:
    """No error message, and nothing hangs. With `batch=True` it may be the first of the messages."""
    graph = graph_of(**{**SHAPES[shape], **WHERE[where](RAISED[name])})
    said = ended(graph, *map(Message, (0, 1, 2)))
    at = "[01]" if shape.startswith("list") else "1"
    assert re.match(rf"the worker of 'p' failed: {name}; raised for in/0 at {at} at test_leaving\.py:raising:", said), (
        said
    )
    assert "raise a subclass of Exception" in said


@pytest.mark.parametrize("name", RAISED)
def test_key_whose_codec_leaves_ends_the_worker_with_its_message(name: str) -> None:
    """It is read when the function asks for it."""

    def keyed(value: int, step: Step) -> int | None:
        [received] = step.inputs.values()
        return value if received.key is not None else None

    graph = graph_of(keyed, {"in": Topic(value=Json(), key_codec=Leaving(RAISED[name], "decode"))})
    said = ended(graph, *(Message(n, key=n) for n in (0, 1, 2)))
    assert said.startswith(f"the worker of 'p' failed: {name}; raised for in/0 at 1 at test_leaving.py:raising:"), said


@pytest.mark.parametrize("name", RAISED)
def test_timer_that_leaves_ends_the_worker_with_its_key(name: str) -> None:
    """It is named by its key and its time."""

    def later(value: Any, step: Step) -> None:
        step.schedule("k", at=step.time_ms + value)

    def ring(timer: Timer) -> None:
        raising(1, RAISED[name])

    graph = graph_of(later, state={"timers": Timers(ring)})
    said = ended(graph, Message(1, timestamp_ms=1_000), Message(1, timestamp_ms=60_000))
    assert said.startswith(f"the worker of 'p' failed: {name}; raised for "), said
    assert "'k'" in said, said
    assert "raise a subclass of Exception" in said


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", WHERE)
def test_codec_or_filter_that_interrupts_stops_its_task(where: str, shape: str) -> None:
    """As a function does, and the worker goes on with its other tasks."""
    graph = graph_of(**{**SHAPES[shape], **WHERE[where](lambda: Interrupt("enough"))})
    memory = Memory()
    with pytest.raises(TaskStopped, match=r"task p/0 stopped.*enough") as stopped:
        run(graph, 0, 1, 2, memory=memory)
    assert "worker" not in str(stopped.value)
    assert open_broker(memory).watermarks([TopicPartition("out", 0)])[TopicPartition("out", 0)].high > 0
