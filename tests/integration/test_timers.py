"""Timers by the clock on a real broker: they fire where no message comes, also in the process that comes next (F2)."""

from __future__ import annotations

import time
from typing import Any

from cues_kafka import Graph, Json, Kafka, Processor, Source, Step, Timer, Timers, Topic, start
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_supervisor import wait_for

SOON_MS, LATER_MS = 700, 2_500


def wake(call: dict[str, Any], step: Step) -> None:
    """Sets a timer."""
    step.schedule(call["room"], at=int(time.time() * 1000) + call["in_ms"])


def ring(timer: Timer) -> dict[str, Any]:
    """Says when it was due, and when it is called."""
    return {"room": timer.key, "due_ms": timer.due_ms, "now_ms": int(time.time() * 1000)}


def test_timers_by_the_clock_need_no_message(kafka: KafkaFixture) -> None:
    """One fires while its worker waits, one in the process that comes after its time, and each does so once."""
    name = kafka.unique("alarm")
    calls, rings = f"{name}.calls", f"{name}.rings"
    graph = Graph(
        name,
        Source(calls),
        Processor(wake, inputs=calls, outputs=rings, state={"alarms": Timers(ring, by="clock")}),
        defaults=Topic(value=Json(), partitions=2),
    )
    with start(graph, Kafka(kafka.bootstrap), instance=f"{name}.1") as running:
        for room in ("a", "b"):
            running.send(calls, {"room": room, "in_ms": SOON_MS}, key=room)
        running.send(calls, {"room": "later", "in_ms": LATER_MS}, key="later")
        running.wait_idle(timeout_s=30)
        wait_for(lambda: len(running.messages(rings)) == 2)
        soon = running.messages(rings)
    later_ms = int(time.time() * 1000) + LATER_MS

    with start(graph, Kafka(kafka.bootstrap), instance=f"{name}.1") as running:
        wait_for(lambda: len(running.messages(rings)) >= 3)
        running.wait_idle(timeout_s=30)
        fired = running.messages(rings)

    assert sorted(one.value["room"] for one in soon) == ["a", "b"]
    assert sorted(one.value["room"] for one in fired) == ["a", "b", "later"]
    for one in fired:
        assert 0 <= one.value["now_ms"] - one.value["due_ms"] < 10_000
        assert one.timestamp_ms == one.value["due_ms"] < later_ms
