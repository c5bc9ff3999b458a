"""Entries end by the task's time, through failed steps, void batches and restarts: compared with a plain dict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cues_kafka.state.expiring import Expiring, part_of
from cues_kafka.state.on_disk import OnDisk

TTL = 250
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1_000),
        st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=1)), max_size=3),
        st.booleans(),
    ),
    max_size=4,
)
Steps: TypeAlias = list[tuple[int, list[tuple[bytes, bytes | None]], bool]]
BATCHES = st.lists(st.tuples(STEPS, st.sampled_from(["commit", "late", "void", "restart"])), max_size=6)


@pytest.fixture(params=["in memory", "on disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Expiring]]:
    """Makes layers over entries in memory, or on the disk."""
    opened, numbers = list[Expiring](), count()

    def make() -> Expiring:
        while opened:
            opened.pop().close()
        on_disk = request.param == "on disk"
        entries = OnDisk(tmp_path / str(next(numbers)), 2**20, width=part_of(TTL)) if on_disk else None
        layers = Expiring(None, TTL, entries=entries)
        opened.append(layers)
        layers.open()
        return layers

    yield make
    while opened:
        opened.pop().close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=BATCHES)
def test_an_entry_is_there_until_its_time_is_over(
    make: Callable[[], Expiring], batches: list[tuple[Steps, str]]
) -> None:
    """What a batch deletes and sets is all that the next process knows."""
    layers, log = make(), dict[bytes, bytes]()
    committed: dict[bytes, tuple[int, bytes]] = {}
    now, waiting = 0, list[int]()
    for sequence, (steps, end) in enumerate(batches):
        layers.begin_batch()
        for one in waiting:
            layers.commit(one)
        waiting = []
        entries, time = dict(committed), now
        entries, time = _take(layers, steps, entries, time)
        for key, value in _seen(entries, time).items():
            assert layers.get(key) == value
        changed = layers.seal(sequence)
        if end == "void":
            layers.discard()
            continue
        committed, now = entries, time
        for key, new in changed.items():
            log.pop(key, None)
            if new is not None:
                log[key] = new
        assert set(log) <= {key for key, (at, _) in committed.items() if at + TTL + TTL // 100 + 3 > now}
        if end == "late":
            waiting.append(sequence)
            continue
        layers.commit(sequence)
        assert layers.committed_entries() == _seen(committed, now)
        if end == "restart":
            layers = make()
            layers.load(log.items())
            layers.load_time(now)
            assert layers.committed_entries() == _seen(committed, now)


def _take(
    layers: Expiring, steps: Steps, entries: dict[bytes, tuple[int, bytes]], time: int
) -> tuple[dict[bytes, tuple[int, bytes]], int]:
    """Entries, each with when it was set, and the time after the steps that are kept."""
    for at, changes, kept in steps:
        layers.begin_step()
        layers.advance(at)
        before, was = dict(entries), time
        time = max(time, at)
        for key, value in changes:
            layers.change(key, value)
            entries.pop(key, None)
            if value is not None:
                entries[key] = (time, value)
        assert dict(layers.entries()) == _seen(entries, time)
        assert layers.count() == len(_seen(entries, time))
        if not kept:
            layers.undo_step()
            entries, time = before, was
    return entries, time


def _seen(entries: dict[bytes, tuple[int, bytes]], now: int) -> dict[bytes, bytes]:
    return {key: value for key, (at, value) in entries.items() if at + TTL > now}


def test_what_a_void_batch_deleted_is_deleted_by_the_next_one(make: Callable[[], Expiring]) -> None:
    """Else the entry would stay in the changelog, and in memory."""
    layers = make()
    layers.begin_batch()
    layers.change(b"k", b"v")
    layers.seal(0)
    layers.commit(0)
    for sequence, outcome in ((1, layers.discard), (2, lambda: layers.commit(2))):
        layers.begin_batch()
        layers.begin_step()
        layers.advance(2 * TTL)
        assert layers.seal(sequence) == {b"k": None}
        outcome()
    layers.begin_batch()
    assert layers.seal(3) == {}


def test_an_entry_that_is_set_again_is_deleted_after_its_second_lifetime(make: Callable[[], Expiring]) -> None:
    """Where it was filed under its first time only, it would never be deleted: that part of time is swept once."""
    layers = make()
    for sequence, (time, deleted) in enumerate(((0, False), (TTL - 1, False), (TTL + 9, False), (3 * TTL, True))):
        layers.begin_batch()
        layers.begin_step()
        layers.advance(time)
        if time < TTL:
            layers.change(b"k", b"v")
        assert (layers.seal(sequence) == {b"k": None}) == deleted
        layers.commit(sequence)


def test_a_batch_begins_while_the_one_before_is_committed() -> None:
    """The function is called ahead on one thread, and the commit ends on another. The time never goes back."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        layers, times = Expiring(None, 86_400_000), set[int]()
        with ThreadPoolExecutor(1) as pool:
            for sequence in range(1, 5_000):
                layers.begin_batch()
                layers.begin_step()
                layers.advance(sequence)
                layers.change(b"k", b"v")
                layers.seal(sequence)
                committing = pool.submit(layers.commit, sequence)
                for _ in range(20):
                    layers.begin_batch()
                    times.add(layers.time - sequence)
                committing.result()
        assert times == {0}
    finally:
        sys.setswitchinterval(before_s)


def test_a_key_that_is_set_and_deleted_often_takes_no_more_room() -> None:
    """Its lifetime is a day, and it changes a hundred thousand times in a second."""
    layers = Expiring(None, 86_400_000)
    layers.begin_batch()
    layers.advance(1_000)
    for _ in range(100_000):
        layers.begin_step()
        layers.change(b"k", b"v")
        layers.change(b"k", None)
    assert sum(map(len, layers._buckets.values())) <= 1_000


@pytest.mark.full
def test_a_million_ids_take_less_than_200_megabytes() -> None:
    """In a process of its own, whose memory is measured before and after."""
    done = subprocess.run([sys.executable, "-c", MILLION], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 200


MILLION = """
import psutil

from cues_kafka.graph.ready import _id
from cues_kafka.state.expiring import Expiring

memory = psutil.Process().memory_info
before, layers = memory().rss, Expiring(None, 7 * 86_400_000)
for batch in range(100):
    layers.begin_batch()
    for number in range(batch * 10_000, (batch + 1) * 10_000):
        layers.begin_step()
        layers.advance(1_700_000_000_000 + number * 600)
        layers.change(_id(f"order-{number:032d}"), b"")
    layers.seal(batch)
    layers.commit(batch)
taken = memory().rss - before
assert len(layers.committed_entries()) == 1_000_000
print(taken / 1e6)
"""
