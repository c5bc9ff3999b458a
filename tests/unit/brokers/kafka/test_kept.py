"""Consumers of closed readers, kept for the next one."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from cues_kafka.brokers.kafka.kept import KeptConsumers
from cues_kafka.brokers.kafka.watch import Watch


class FakeConsumer:
    """Knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        """Closed."""
        self.closed.set()


def kept_by(kept: KeptConsumers, *names: str) -> list[Any]:
    """Consumers of these names, given to be kept."""
    consumers: list[Any] = [FakeConsumer() for _ in names]
    for name, consumer in zip(names, consumers, strict=True):
        kept.put(name, consumer, Watch(name))
    return consumers


def test_the_one_that_was_used_last_comes_first_and_those_of_other_names_stay() -> None:
    """Its connections are the freshest."""
    kept = KeptConsumers()
    kept.keep(3)
    first, other, last = kept_by(kept, "recovery", "other", "recovery")

    found = [kept.take("recovery") for _ in range(3)]

    assert [pair and pair[0] for pair in found] == [last, first, None]
    assert not other.closed.is_set()


def test_without_a_word_that_more_will_come_none_is_kept() -> None:
    """A worker that recovers once has nothing of it."""
    kept = KeptConsumers()
    consumer: Any = FakeConsumer()

    assert not kept.put("recovery", consumer, Watch("recovery"))
    kept.keep(1)
    assert kept.put("recovery", consumer, Watch("recovery"))
    assert not kept.put("recovery", FakeConsumer(), Watch("recovery"))  # type: ignore[arg-type]
    kept.keep(0)
    assert consumer.closed.is_set()


def test_in_doubt_about_one_all_are_closed() -> None:
    """They have heard of the cluster what it has heard (R5)."""
    kept = KeptConsumers()
    kept.keep(2)
    consumers = kept_by(kept, "recovery", "recovery")

    kept.discard_all()

    assert all(consumer.closed.is_set() for consumer in consumers)
    assert kept.take("recovery") is None


def test_a_kept_consumer_that_no_caller_asks_for_is_closed() -> None:
    """A query that ends says nothing to its readers."""
    kept = KeptConsumers(idle_s=0.05)
    kept.keep(2)
    [early] = kept_by(kept, "recovery")
    assert early.closed.wait(10)
    [late] = kept_by(kept, "recovery")
    assert late.closed.wait(10)


def test_what_a_client_has_said_is_not_said_to_the_next_reader() -> None:
    """Reasons of an outage that is over would be named in errors that have others."""
    kept = KeptConsumers()
    kept.keep(1)
    consumer: Any = FakeConsumer()
    watch = Watch("recovery")
    watch.log(40, "[thrd:1]: 1: Connection refused")
    assert watch.reasons
    kept.put("recovery", consumer, watch)

    assert kept.take("recovery") == (consumer, watch)
    assert not watch.reasons


def test_a_fork_leaves_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no threads of the client: even closing one would never return."""
    kept = KeptConsumers()
    kept.keep(1)
    [consumer] = kept_by(kept, "recovery")
    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert kept.take("recovery") is None
    assert not kept.put("recovery", FakeConsumer(), Watch("recovery"))  # type: ignore[arg-type]
    kept.keep(0)
    assert not consumer.closed.is_set()
