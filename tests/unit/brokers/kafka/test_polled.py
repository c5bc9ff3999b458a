"""How the compiled module's queue is kept: the client ends a forwarding at a moment that no test can choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cues_kafka.brokers.kafka.polled import SILENT_S, ModulePolling


class Queue:
    """A fetcher: what it gives next, and what it was asked."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[str, int]] = []
        self.waits: list[float] = []
        self.coming: list[Any] = []

    def forward(self, topic: str, partition: int) -> None:
        self.forwarded.append((topic, partition))

    def take(self, timeout_s: float, most: int) -> list[Any]:
        self.waits.append(timeout_s)
        came, self.coming = self.coming[:most], self.coming[most:]
        return came


def message(topic: str, partition: int, *, error: Any = None) -> Any:
    return SimpleNamespace(
        topic=lambda: topic, partition=lambda: partition, error=lambda: error, offset=lambda: 5, key=lambda: None
    )


@pytest.fixture
def made() -> tuple[ModulePolling, Queue, list[Any]]:
    """What polls, its fetcher, and what the client's own queue has."""
    queue, events = Queue(), list[Any]()
    consumer: Any = SimpleNamespace(poll=lambda _: events.pop(0) if events else None)
    module: Any = SimpleNamespace(fetcher_of=lambda *_: queue)
    return ModulePolling(module, consumer), queue, events


def test_a_partition_is_forwarded_at_each_poll_until_something_of_it_comes(
    made: tuple[ModulePolling, Queue, list[Any]],
) -> None:
    """The client may have ended it since; and polls are short at first, as long as that is not known."""
    polling, queue, _ = made
    polling.expect([("t", 0), ("t", 1)])
    assert sorted(queue.forwarded) == [("t", 0), ("t", 1)]
    queue.forwarded.clear()

    queue.coming = [message("t", 1)]
    polling.take(5.0, 10)
    assert sorted(queue.forwarded) == [("t", 0), ("t", 1)]
    queue.forwarded.clear()
    polling.take(5.0, 10)
    assert queue.forwarded == [("t", 0)]
    assert queue.waits == [SILENT_S, 2 * SILENT_S]

    for _ in range(10):
        polling.take(5.0, 10)
    assert queue.waits[-2:] == [1.0, 1.0], "one that is paused stays silent, and costs nothing"
    queue.forwarded.clear()

    polling.expect([("t", 2)])
    polling.take(5.0, 10)
    assert queue.waits[-1] == SILENT_S
    queue.forwarded.clear()
    polling.forget([("t", 0), ("t", 2)])
    polling.take(5.0, 10)
    assert queue.forwarded == []
    assert queue.waits[-1] == 5.0


def test_an_event_of_the_clients_own_queue_comes_alone_and_a_message_there_is_an_error(
    made: tuple[ModulePolling, Queue, list[Any]],
) -> None:
    """A message that took the client's own queue may have passed others, so the reader begins again."""
    polling, queue, events = made
    queue.coming = [message("t", 0)]
    event = message("t", 0, error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    events += [event, message("t", 3)]
    assert polling.take(0.0, 10) == [event]
    with pytest.raises(KafkaException, match="wrong queue: t/3 at 5"):
        polling.take(0.0, 10)
    assert len(polling.take(0.0, 10)) == 1
