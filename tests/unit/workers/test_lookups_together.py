"""Recoveries that ask together: one question for all, no answer older than its question, no fault of a neighbour's."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import KEY
from cues_kafka.errors import RetriableError
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import VirtualClock
from cues_kafka.workers.lookups_together import AskedOnce, LookupsTogether

OTHERS = 5


class _Cluster:
    """Answers each key with the number of the question; the first question waits until it is told to go on."""

    def __init__(self, *, fails: Collection[int] = ()) -> None:
        self.asked: list[list[int]] = []
        self.go_on, self.reached = threading.Event(), threading.Event()
        self._fails = fails

    def ask(self, keys: Collection[int]) -> dict[int, int]:
        self.asked.append(sorted(keys))
        number = len(self.asked)
        if number == 1:
            self.reached.set()
            assert self.go_on.wait(10)
        if any(key in self._fails for key in keys):
            raise RetriableError("refused", code="X")
        return dict.fromkeys(keys, number)


class _Watched(AskedOnce[int, int]):
    """Tells when callers wait."""

    def wait_for(self, callers: int) -> None:
        """Until this number of callers wait for the next question."""
        with self._changed:
            while self._next.callers < callers:  # joined under the lock, which this loop gives back
                self._changed.wait(0.01)


def ask_in_parallel(cluster: _Cluster) -> list[dict[int, int] | str]:
    """One caller begins; while its question is under way, others come. What each got: answers, or an error."""
    together = _Watched(cluster.ask)

    def called(key: int) -> dict[int, int] | str:
        try:
            return {one: number for one, number in together([key]).items() if one == key}
        except RetriableError as error:
            return str(error)

    with ThreadPoolExecutor(OTHERS + 1) as pool:
        first = pool.submit(called, 0)
        assert cluster.reached.wait(10)
        later = [pool.submit(called, key) for key in range(1, OTHERS + 1)]
        together.wait_for(OTHERS)
        cluster.go_on.set()
        return [future.result(10) for future in (first, *later)]


def test_callers_that_come_meanwhile_share_the_next_question() -> None:
    """Not the one under way: it was asked before they came."""
    cluster = _Cluster()
    assert ask_in_parallel(cluster) == [{0: 1}, *({key: 2} for key in range(1, OTHERS + 1))]
    assert cluster.asked == [[0], [*range(1, OTHERS + 1)]]


def test_a_shared_question_that_fails_has_no_answers() -> None:
    """Whose key is the reason is not known, so each asks alone."""
    assert ask_in_parallel(_Cluster(fails=[3])) == [{0: 1}, *[{}] * OTHERS]


def test_who_asks_alone_hears_the_error_itself() -> None:
    """It would ask the same again."""
    cluster = _Cluster(fails=[0])
    cluster.go_on.set()
    with pytest.raises(RetriableError, match="refused"):
        AskedOnce(cluster.ask)([0])
    assert cluster.asked == [[0]]


def test_a_caller_behind_a_failed_question_asks_again() -> None:
    """Nothing of a failure stays."""
    cluster = _Cluster(fails=[0])
    cluster.go_on.set()
    together = AskedOnce(cluster.ask)
    with pytest.raises(RetriableError):
        together([0])
    assert together([1]) == {1: 2}


class _Counting(MemoryBroker):
    """Counts the readers that were opened."""

    readers = 0

    def reader(self, name: str, *, prompt: bool = False) -> Any:
        self.readers += 1
        return super().reader(name, prompt=prompt)


def test_each_lookup_gives_what_the_cluster_says() -> None:
    """Offsets, ends, topics and newest records of one task, and what is not there."""
    broker = _Counting(clock=VirtualClock())
    broker.create([NewTopic("g.f.backing", 2, 1)])
    session = broker.session("g.f.0")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("g.f.backing", 0, KEY, b"new", None, 0)])
    session.flush()
    session.commit()
    lookups = LookupsTogether(broker, VirtualClock(), "g.f")
    full, empty = TopicPartition("g.f.backing", 0), TopicPartition("g.f.backing", 1)

    assert lookups.committed("g.f", [full]) == {full: None}
    marks = lookups.watermarks([full, empty])
    assert marks == broker.watermarks([full, empty])
    assert lookups.facts(["g.f.backing", "away"]) == broker.facts(["g.f.backing"]).topics
    assert lookups.partitions(["g.f.backing", "away"]) == {"g.f.backing": 2}
    found = lookups.newest(full, marks[full].low, marks[full].high, group="g.f")
    assert found is not None
    assert found.value() == b"new"
    before = broker.readers
    assert lookups.newest(empty, marks[empty].low, marks[empty].high, group="g.f") is None
    assert broker.readers == before
