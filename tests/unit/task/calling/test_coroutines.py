"""`async def`: up to `concurrency=` calls at once, and yet each message's one outcome, in the order of the inputs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Out, Processor, Retry, Source, Topic
from cues_kafka.errors import Interrupt, TaskStopped
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.tester import Tester


class Service:
    """Answers the later the smaller the number, and counts how many it is asked at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.asked: list[int] = []
        self.loops: set[int] = set()

    async def answer(self, n: int) -> int:
        """Ten times the number."""
        self.asked.append(n)
        self.loops.add(id(asyncio.get_running_loop()))
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20 - n % 20):
            await asyncio.sleep(0)
        self.now -= 1
        return 10 * n


def one(fn: Callable[..., Any], outputs: Any = "out", errors: str | None = "bad", **settings: Any) -> Tester:
    """One processor, one partition."""
    processor = Processor(fn, name="work", inputs="in", outputs=outputs, **settings)
    return Tester(Graph("later", Source("in"), processor, errors=errors, defaults=Topic(value=Json(), partitions=1)))


def sent(tester: Tester, *numbers: int) -> Tester:
    """The same, with messages."""
    for n in numbers:
        tester.send("in", n)
    return tester


def test_calls_are_under_way_at_once_and_committed_in_the_order_of_their_messages() -> None:
    """As many as were asked for, never more; one event loop for all."""
    service = Service()
    tester = sent(one(service.answer, concurrency=4), *range(40)).run()

    assert tester.values("out") == [10 * n for n in range(40)]
    assert service.most == 4
    assert len(service.loops) == 1
    assert sorted(service.asked) == list(range(40))


def test_without_concurrency_one_call_follows_the_other() -> None:
    """The default."""
    service = Service()
    sent(one(service.answer), *range(10)).run()

    assert service.most == 1


def test_a_call_that_raises_is_one_error_message_in_its_place() -> None:
    """Those beside it are not touched, nor is one that cancels itself, or whose message cannot be read."""

    async def picky(n: int) -> int | None:
        await asyncio.sleep(0)
        if n == 3:
            raise ValueError("three")
        if n == 4:
            raise asyncio.CancelledError
        return None if n == 5 else n

    tester = sent(one(picky, concurrency=8), *range(4))
    tester.broker.sender("raw").send([Outgoing("in", 0, None, b"{")])
    sent(tester, *range(4, 8)).run()

    assert tester.values("out") == [0, 1, 2, 6, 7]
    assert [error.exception.rpartition(".")[2] for error in tester.errors()] == [
        "ValueError",
        "CodecError",
        "RuntimeError",
    ]


def test_an_asynchronous_generator_is_a_fork() -> None:
    """All that it yields is one outcome."""

    async def both(n: int) -> AsyncIterator[Out]:
        yield Out("all", n)
        await asyncio.sleep(0)
        if n == 1:
            raise ValueError("half done")
        if n % 2 == 0:
            yield Out("even", n)

    tester = sent(one(both, outputs={"all": "all", "even": "even"}, concurrency=3), *range(5)).run()

    assert tester.values("all") == [0, 2, 3, 4]
    assert tester.values("even") == [0, 2, 4]
    assert len(tester.errors()) == 1


def test_a_call_is_repeated_with_the_same_hash_and_those_behind_it_come_again() -> None:
    """What was called ahead of its turn is thrown away, so nothing overtakes."""
    seen: list[tuple[int, str, int]] = []

    async def flaky(n: int, step: Any) -> int:
        seen.append((n, step.hash, step.attempt))
        await asyncio.sleep(0)
        if n == 2 and step.attempt < 2:
            raise ConnectionError("not now")
        return n

    tester = sent(one(flaky, concurrency=3, retry=Retry(on=(OSError,))), *range(6)).run()

    assert tester.values("out") == list(range(6))
    assert [attempt for n, _, attempt in seen if n == 2] == [0, 1, 2]
    assert len({hash_ for n, hash_, _ in seen}) == 6


@pytest.mark.parametrize("error", [ValueError("no"), Interrupt("enough")])
def test_what_stops_the_task_lets_the_steps_before_it_commit(error: BaseException) -> None:
    """Without an errors topic, or on purpose."""

    async def stops(n: int) -> int:
        await asyncio.sleep(0)
        if n == 3:
            raise error
        return n

    tester = sent(one(stops, errors=None, concurrency=8), *range(8))
    with pytest.raises((TaskStopped, type(error))):
        tester.run()

    assert tester.values("out") == [0, 1, 2]


def test_a_list_is_awaited_as_a_whole() -> None:
    """`batch=True`; where it raises, each message by itself."""
    sizes: list[int] = []

    async def listed(numbers: list[int]) -> list[int]:
        sizes.append(len(numbers))
        await asyncio.sleep(0)
        if 3 in numbers:
            raise ValueError("three")
        return [n + 1 for n in numbers]

    tester = sent(one(listed, batch=True), *range(5)).run()

    assert tester.values("out") == [1, 2, 3, 5]
    assert max(sizes) > 1
    assert len(tester.errors()) == 1
