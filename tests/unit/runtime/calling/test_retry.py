"""`retry=` in virtual time: wherever in a batch the step stands, under a snapshot and without one."""

from __future__ import annotations

import itertools

import pytest

from cues_kafka import Graph, Json, Message, Processor, Retry, Source, Topic
from cues_kafka.testing.tester import Tester


class Flaky:
    """Fails so many times at one value; keeps what it saw."""

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
