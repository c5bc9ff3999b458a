"""The tally: what tasks tell observers, added up by task."""

from __future__ import annotations

from cues_kafka.observe.histogram import Histogram
from cues_kafka.observe.tally import TEXT_CHARS, Tally, TaskTally
from cues_kafka.ports.observer import BatchReport, Observer

NOTE = {"at": "orders/0 at 17", "hash": "ab", "kind": "raised", "error": "ValueError: no", "where": "shop.py:3"}


class Now:
    """A clock that stands where the test puts it, in seconds since the epoch."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_batches_of_a_task_are_added_up() -> None:
    """Other tasks keep their own counts, and a task that told nothing has zeros."""
    now = Now()
    tally: Observer = Tally(now)
    assert isinstance(tally, Tally)
    tally.committed("check/0", BatchReport(3, 2, 1, 4, 0.5, 0, [NOTE]))
    tally.measured("check/0", 0.125, 300)
    now.s = 107.0
    tally.committed("check/0", BatchReport(5, 3, 2, 5, 0.25, 0, [NOTE], dropped=2))
    tally.measured("check/0", 90.0, 50)

    assert tally["check/0"] == TaskTally(
        batches=2, deliveries=8, outputs=5, errors=3, messages=9, dropped=2, seconds=0.75, committed_s=107.0,
        size=350, kinds={"raised": 2, "unnamed": 1}, error="orders/0 at 17: ValueError: no", error_s=107.0,
        batch_s=Histogram((0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0), 0.75),
        commit_s=Histogram((0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1), 90.125),
    )  # fmt: skip
    assert tally["check/1"] == TaskTally()


def test_a_stop_counts_from_its_first_try_until_the_task_recovers() -> None:
    """A task that is tried again and stops again has not worked in between."""
    now = Now()
    tally = Tally(now)
    tally.stopped("check/0", "why", "remedy", {})
    now.s = 160.0
    tally.stopped("check/0", "why", "remedy", {})
    assert (tally["check/0"].stops, tally["check/0"].stopped_s) == (2, 100.0)

    tally.recovered("check/0", 60.0)
    assert (tally["check/0"].stops, tally["check/0"].stopped_s) == (2, 0.0)
    tally.recovered("check/0", 0.75)
    assert tally["check/0"].recovery_s == Histogram((0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1), 60.75)


def test_retries_and_failures_are_counted_and_long_texts_are_cut() -> None:
    """The newest failure stands for all."""
    tally = Tally(Now())
    tally.retried("check/0", NOTE, 1, 0.5)
    tally.retried("check/0", NOTE, 2, 1.0)
    tally.failed("check/0", "x" * 5_000, 1)

    found = tally["check/0"]
    assert (found.retries, found.failures, found.failure_s) == (2, 1, 100.0)
    assert found.failure == "x" * TEXT_CHARS
