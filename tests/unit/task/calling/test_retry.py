"""`retry=` in virtual time: wherever in a batch the step stands, under a snapshot and without one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Retry, Source, Topic
from cues_kafka.testing.tester import Crash, Tester


class Flaky:
    """Fails a number of times at one value; keeps what it saw."""

    def __init__(self, at: int, times: int) -> None:
        self.at, self.left = at, times
        self.seen: list[tuple[int, str, int]] = []


def graph_of(flaky: Flaky, retry: Retry) -> Graph:
    """A pipe that fails for a while."""

    def work(n: int, step: object) -> int:
        flaky.seen.append((n, step.hash, step.attempt))  # type: ignore[attr-defined]
        if n == flaky.at and flaky.left > 0:
            flaky.left -= 1
            raise ConnectionError("not now")
        return n

    return Graph(
        "flaky",
        Source("in"),
        Processor(work, name="work", inputs="in", outputs="out", retry=retry),
        errors="bad",
        defaults=Topic(value=Json(), partitions=1),
    )


@pytest.mark.parametrize("first_batch", [0, 3], ids=["under the snapshot of the start", "in a later batch"])
@pytest.mark.parametrize("at", [100, 101, 102], ids=["first", "middle", "last"])
def test_a_step_is_called_again_with_the_same_hash_until_it_succeeds(at: int, first_batch: int) -> None:
    """No message is delivered twice or out of order, and the attempts are counted."""
    flaky = Flaky(at, 3)
    tester = Tester(graph_of(flaky, Retry(on=(OSError,))))
    for n in range(first_batch):
        tester.send("in", n)
    tester.run()
    for n in (100, 101, 102):
        tester.send("in", n)
    tester.run()

    assert tester.values("out") == [*range(first_batch), 100, 101, 102]
    calls = [(hash_, attempt) for n, hash_, attempt in flaky.seen if n == at]
    assert [attempt for _, attempt in calls] == [0, 1, 2, 3]
    assert len({hash_ for hash_, _ in calls}) == 1
    assert [n for n, _, attempt in flaky.seen if attempt == 0] == [*range(first_batch), 100, 101, 102]
    assert tester.errors() == []


def test_an_endless_retry_does_not_end_by_its_own_arithmetic() -> None:
    """A pause that doubles more than a thousand times is still the longest pause."""
    flaky = Flaky(100, 1_100)
    tester = Tester(graph_of(flaky, Retry(on=(OSError,), for_s=10**9, first_s=0.001, max_s=0.002)))
    tester.send("in", 100)

    assert tester.run().values("out") == [100]
    assert len(flaky.seen) == 1_101


@pytest.mark.parametrize("at", [100, 102])
def test_an_outage_that_does_not_end_stops_the_task(at: int) -> None:
    """It is not the message's fault, so there is no error message; the steps before it are committed."""
    tester = Tester(graph_of(Flaky(at, 10**9), Retry(on=(OSError,), for_s=1, first_s=0.1, max_s=0.2)))
    for n in (100, 101, 102):
        tester.send("in", n)

    with pytest.raises(ConnectionError):
        tester.run()
    assert tester.values("out") == list(range(100, at))
    assert tester.errors() == []


def test_the_pause_before_each_retry_doubles_up_to_the_longest() -> None:
    """A target that is down is not asked again at once for as long as it is down."""
    times: list[float] = []

    def work(n: int) -> int:
        times.append(tester.clock.monotonic())
        if len(times) < 6:
            raise OSError("later")
        return n

    graph = Graph(
        "g",
        Source("in"),
        Processor(work, inputs="in", outputs="out", retry=Retry(on=(OSError,), for_s=99, first_s=1, max_s=4)),
    )
    tester = Tester(graph)
    tester.send("in", 1)
    tester.run()

    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == pytest.approx([1, 2, 4, 4, 4], abs=0.5)


def test_a_message_that_cannot_be_decoded_is_not_tried_again() -> None:
    """Its bytes stay as they are, however long a retry waits."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda n: n, name="f", inputs="in", outputs="out", retry=Retry(on=(Exception,), for_s=9)),
        errors="bad",
        topics={"in": Topic(value=Json(int))},
    )
    tester = Tester(graph)
    tester.send("in", Message(None, key="k"))
    tester.send("in", 2)
    tester.run()

    [error] = tester.errors()
    assert (error.kind, error.attempts) == ("decode", 1)
    assert tester.values("out") == [2]


def test_a_retry_of_the_first_step_under_a_snapshot_ends_after_its_time() -> None:
    """It killed the worker, and its time was measured by another clock than its pauses."""
    calls = []

    def down(n: int) -> int:
        calls.append(n)
        raise OSError("down")

    retry = Retry(on=(OSError,), for_s=5, then="error")
    tester = Tester(Graph("g", Source("in"), Processor(down, inputs="in", outputs="out", retry=retry), errors="failed"))
    tester.send("in", 1, key="k")
    [error] = tester.run().errors()
    assert (error.kind, error.attempts) == ("retries exhausted", len(calls))
    assert len(calls) == 7, "0.1 s doubled until 5 s are over"


def test_a_retried_alts_step_is_the_one_that_comes_next() -> None:
    """A message of another input came in between, and was taken for the one that was retried."""
    calls: list[tuple[str, int]] = []

    def either(step: Any, a: str | None = None, b: str | None = None) -> str:
        calls.append((a or b or "", step.attempt))
        if b == "b1" and step.attempt < 2:
            tester.send("a", f"late{step.attempt}", key="k")
            raise OSError("later")
        return a or b or ""

    either_of = Processor(either, alts={"a": "a", "b": "b"}, outputs="out", retry=Retry(on=(OSError,)))
    tester = Tester(Graph("g", Source("a"), Source("b"), either_of))
    for n in range(2):
        tester.send("b", f"b{n}", key="k")
    tester.run()
    assert calls[:4] == [("b0", 0), ("b1", 0), ("b1", 1), ("b1", 2)]


class FlakyOnTheRight:
    """An alts sink that raises at the first call of each message that comes from the right."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, left: str | None = None, right: str | None = None, step: Any = None) -> None:
        if right is not None and not step.attempt:
            raise OSError(right)
        self.seen.append(left or right or "")


def test_alts_go_on_with_another_input_after_a_retry_under_a_snapshot() -> None:
    """The choice of what was put back stayed behind when its snapshot took it again; the task then never went on."""
    sink = FlakyOnTheRight()
    graph = Graph(
        "g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink", retry=Retry())
    )
    tester = Tester(graph)
    tester.send("b", "first")
    tester.run()
    tester.send("a", "second")
    tester.run()
    assert sink.seen == ["first", "second"]


def test_what_a_retry_put_off_comes_next_after_a_death_too() -> None:
    """I7: it was called under its step number already; another message in its place would be taken for it (E1)."""
    calls: list[str] = []

    def sink(left: str | None = None, right: str | None = None) -> None:
        calls.append(left or right or "")
        if right == "second" and len(calls) < 3:
            raise OSError("later")

    graph = Graph(
        "g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink", retry=Retry())
    )
    tester = Tester(graph)
    tester.send("b", "first")
    tester.send("b", "second")
    tester.run(crash=Crash("after", "Commit", 3))  # the start's record, the snapshot, and what was delivered before it
    tester.send("a", "meanwhile")
    tester.restart().run()
    assert calls == ["first", "second", "second", "meanwhile"]
