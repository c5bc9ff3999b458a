"""The threads of tasks: enough for all that is to be done, and none that stays without work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cues_kafka.workers.pool import TaskPool

MOST = 4


def until(done: Callable[[], bool]) -> None:
    """Threads end by themselves, and no event tells it."""
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_jobs_that_wait_for_each_other_run_side_by_side() -> None:
    """Up to the limit, also when threads are between two jobs: a job never stands behind one that waits for it."""
    pool = TaskPool(MOST, name="t")
    for _ in range(50):
        met = threading.Barrier(MOST, timeout=10)
        for future in [pool.submit(met.wait) for _ in range(MOST)]:
            future.result(10)
    assert pool.threads == MOST
    pool.shutdown()


def test_more_jobs_than_threads_all_run() -> None:
    """In the order in which they came, where one thread does them."""
    pool, done = TaskPool(1, name="t"), list[int]()
    for future in [pool.submit(done.append, number) for number in range(100)]:
        future.result(10)
    assert done == [*range(100)]
    assert pool.threads == 1
    pool.shutdown()


def test_threads_without_work_end_and_come_again() -> None:
    """A worker that has recovered its tasks needs a handful."""
    pool = TaskPool(MOST, name="t", idle_s=0.02)
    for _ in range(3):
        met = threading.Barrier(MOST, timeout=10)
        for future in [pool.submit(met.wait) for _ in range(MOST)]:
            future.result(10)
        until(lambda: pool.threads == 0)
    pool.shutdown()


def test_an_error_is_for_who_asks_for_the_result() -> None:
    """The thread goes on."""
    pool = TaskPool(1, name="t")
    failed = pool.submit(int, "no number")
    assert pool.submit(int, "7").result(10) == 7
    with pytest.raises(ValueError, match="no number"):
        failed.result(10)
    pool.shutdown()


def test_what_was_submitted_before_the_end_still_runs() -> None:
    """Then the threads end, and nothing more is taken."""
    pool, go_on = TaskPool(1, name="t"), threading.Event()
    pool.submit(go_on.wait, 10)
    last = pool.submit(int, "7")
    pool.shutdown()
    go_on.set()
    assert last.result(10) == 7
    until(lambda: pool.threads == 0)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int, "8")


def test_the_end_wakes_threads_that_wait() -> None:
    """At once, however long they would wait."""
    pool = TaskPool(MOST, name="t", idle_s=60.0)
    pool.submit(int, "7").result(10)
    pool.shutdown()
    until(lambda: pool.threads == 0)
