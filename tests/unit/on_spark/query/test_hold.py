"""The hold before micro-batches: which batches wait, and that a stop ends the wait."""

from __future__ import annotations

import threading

import pytest

from cues_kafka.on_spark.query.hold import BatchHold, HeldAtEnd

WAIT_S = 20.0


def test_batch_under_way_ends_and_the_next_one_waits() -> None:
    """Only then the processor rests."""
    held = ""
    hold = BatchHold(lambda: held)
    began, go, done = threading.Semaphore(0), threading.Semaphore(0), []

    def batch(_: object, number: int) -> None:
        began.release()
        assert go.acquire(timeout=WAIT_S)
        done.append(number)

    call = hold.over(batch)
    first = threading.Thread(target=call, args=(None, 1))
    first.start()
    assert began.acquire(timeout=WAIT_S)
    held = "paused"
    assert (hold.why, hold.resting) == ("paused", False)
    go.release()
    first.join(WAIT_S)
    assert (hold.resting, done) == (True, [1])

    second = threading.Thread(target=call, args=(None, 2))
    second.start()
    assert not began.acquire(timeout=0.05)
    held = ""
    hold.look()
    assert began.acquire(timeout=WAIT_S)
    assert not hold.resting
    go.release()
    second.join(WAIT_S)
    assert done == [1, 2]


def test_stop_ends_the_wait_and_the_batch_is_not_begun() -> None:
    """Spark runs it again with the next query."""
    hold = BatchHold(lambda: "paused")
    called: list[int] = []
    failed: list[BaseException] = []

    def run() -> None:
        with pytest.raises(HeldAtEnd) as found:
            hold.over(lambda _, number: called.append(number))(None, 1)
        failed.append(found.value)

    thread = threading.Thread(target=run)
    thread.start()
    hold.end()
    thread.join(WAIT_S)

    assert (len(failed), called, hold.resting) == (1, [], True)


def test_batch_that_fails_leaves_the_hold() -> None:
    """Else the processor would never rest."""
    held = ""
    hold = BatchHold(lambda: held)
    with pytest.raises(ZeroDivisionError):
        hold.over(lambda _, number: number // 0)(None, 1)  # type: ignore[arg-type]
    held = "paused"

    assert hold.resting
