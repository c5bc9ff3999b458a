"""Messages of time 0 give outputs of time 1. The client would write the present, another one at each attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cues_kafka import Graph, Message, Out, Processor, Raw, Source, Step, Topic
from cues_kafka.graph.message import EARLIEST_MS, written_ms
from cues_kafka.testing.tester import Tester


def plain(value: bytes) -> bytes:
    """The hot path."""
    return value


def with_step(value: bytes, step: Step) -> bytes:
    """The long way."""
    assert step.inputs[step.binding].timestamp_ms <= 0
    return value


def of_list(values: list[bytes]) -> list[bytes]:
    """For `batch=True`."""
    return values


def own_time(value: bytes) -> Message[bytes]:
    """An output with a time of its own."""
    return Message(value, timestamp_ms=0)


def forked(value: bytes) -> Iterator[Out]:
    """Several outputs."""
    yield Out("out", value)


async def awaited(value: bytes) -> bytes:
    """A coroutine."""
    return value


class Appending:
    """Writes by an appender."""

    def __call__(self, value: bytes, to: Any) -> None:
        to.append(value)


PROCESSORS: dict[str, dict[str, Any]] = {
    "plain": {"fn": plain, "outputs": "out"},
    "with its step": {"fn": with_step, "outputs": "out"},
    "a list": {"fn": of_list, "outputs": "out", "batch": True},
    "a time of its own": {"fn": own_time, "outputs": "out"},
    "a fork": {"fn": forked, "outputs": {"out": "out"}},
    "a coroutine": {"fn": awaited, "outputs": "out"},
    "an appender": {"fn": Appending(), "appenders": {"to": "out"}},
}


def world_of(fn: Callable[..., Any], times_ms: list[int], **options: Any) -> Tester:
    """A processor whose inputs have these times; the log is written as other clients than ours may write it."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(fn, name="p", inputs="in", **options),
        errors="failed",
        defaults=Topic(value=Raw()),
    )
    tester = Tester(graph)
    tester.send_many("in", [b"%d" % at for at in range(len(times_ms))])
    for stored, time_ms in zip(tester.broker.messages("in"), times_ms, strict=True):
        stored._timestamp = (1, time_ms)  # type: ignore[attr-defined]  # no sender of ours writes it
    return tester


@pytest.mark.parametrize("name", PROCESSORS)
def test_outputs_of_time_0_have_time_1_wherever_they_are_made(name: str) -> None:
    """Times before 1970, which brokers before 4.0 take, count as 0."""
    options = dict(PROCESSORS[name])
    tester = world_of(options.pop("fn"), [0, 0, -1, -5_000], **options).run()
    assert tester.values("out") == [b"0", b"1", b"2", b"3"]
    assert [one.timestamp_ms for one in tester.messages("out")] == [EARLIEST_MS] * 4


def test_usual_times_stay_beside_early_ones() -> None:
    """Only what cannot be written changes."""
    tester = world_of(plain, [7, 0, 5], outputs="out").run()
    assert [one.timestamp_ms for one in tester.messages("out")] == [7, 1, 5]


def test_error_message_has_the_present_whatever_the_time_of_its_message() -> None:
    """Retention would delete it otherwise; see `Caller._add_error`."""

    def fails(value: bytes) -> None:
        raise ValueError(value)

    tester = world_of(fails, [0]).run()
    [error] = tester.messages("failed")
    assert error.timestamp_ms > 1_000_000


def test_time_0_that_a_program_sends_is_1() -> None:
    """By `send`, by a topic, and within a transaction; None is the present."""
    tester = world_of(plain, [], outputs="out")
    tester.send("in", Message(b"0", timestamp_ms=0))
    topic = tester.client.topic("in")
    topic.append(Message(b"1", timestamp_ms=0))
    topic.append_many([Message(b"2", timestamp_ms=0), Message(b"3", timestamp_ms=2)])
    tester.send("in", Message(b"4"))
    *given, present = [one.timestamp_ms for one in tester.messages("in")]
    assert given == [1, 1, 1, 2]
    assert present > 1_000_000


def test_written_time_is_the_rule() -> None:
    """One function has it."""
    assert [written_ms(one) for one in (-(2**62), -1, 0, 1, 2, 2**62)] == [1, 1, 1, 1, 2, 2**62]
