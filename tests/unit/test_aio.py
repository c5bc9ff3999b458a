"""What cancelled calls of the asyncio client leave, at the moments that are hard to meet on a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from cues_kafka import CodecError, Memory, Raw, Topic, aio
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.ports.facts import NewTopic

PATIENCE_S = 10


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


class HeldUp:
    """One call that stands still until it is let go."""

    def __init__(self) -> None:
        self.due = False
        self.there, self.go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Stand still here, once."""
        if self.due:
            self.due = False
            self.there.set()
            assert self.go_on.wait(PATIENCE_S)

    async def reached(self) -> None:
        """Wait until the call stands still."""
        assert await asyncio.to_thread(self.there.wait, PATIENCE_S)


class SlowFacts(Faults):
    """Facts of topics come late."""

    def __init__(self, held: HeldUp) -> None:
        self.held = held

    def before(self, operation: str, client: str) -> None:
        del client
        if operation == "facts":
            self.held.wait()


@pytest.fixture
def held() -> HeldUp:
    return HeldUp()


@pytest.fixture
def cluster(held: HeldUp) -> Memory:
    memory, broker = Memory(), MemoryBroker(faults=SlowFacts(held))
    broker.create([NewTopic("a", 1), NewTopic("b", 1)])
    memory.held.append(broker)
    return memory


def decoding_waits(topic: aio.AsyncTopic, offset: int) -> HeldUp:
    """Have the decoding of a message of this topic stand still."""
    held = HeldUp()
    access: Any = topic.now.access
    received: Callable[[Any], Any] = access.received

    def slow(message: Any) -> Any:
        if message.offset() == offset:
            held.wait()
        return received(message)

    access.received = slow
    held.due = True
    return held


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, which must not raise anything else."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_a_loop
async def test_sent_waits_for_a_send_that_was_cancelled(cluster: Memory, held: HeldUp) -> None:
    """None would be taken for final, and the message be sent twice."""
    async with aio.connect(cluster, name="one") as client:
        topic = await client.topic("a")
        topic.now.access.refresh()
        held.due = True
        send = asyncio.create_task(topic.append(1, id="o-1"))
        await held.reached()
        await cancelled(send)
        asked = asyncio.create_task(topic.sent("o-1"))
        done, _ = await asyncio.wait([asked], timeout=0.05)
        assert not done
        held.go_on.set()
        assert await asked is not None


@on_a_loop
async def test_tailers_may_be_used_as_soon_as_alts_is_cancelled(cluster: Memory) -> None:
    """The message that it has taken meanwhile comes again, once and in its place."""
    async with aio.connect(cluster) as client:
        one, other = await client.topic("a"), await client.topic("b")
        await other.append_many(range(3))
        held = decoding_waits(other, 0)
        async with one.tailer() as first, other.tailer() as second:
            waiting = asyncio.create_task(aio.alts([first, second]))
            await held.reached()
            asyncio.get_running_loop().call_later(0.05, held.go_on.set)
            await cancelled(waiting)
            assert [message.value async for message in second.messages()] == [0, 1, 2]


@on_a_loop
async def test_a_cancelled_iteration_raises_nothing_else(cluster: Memory) -> None:
    """Its messages are still being read by a thread, which closes the reader behind it."""
    async with aio.connect(cluster) as client:
        topic = await client.topic("a")
        await topic.append_many(range(150))
        held = decoding_waits(topic, 120)

        async def iterate() -> None:
            async for _ in topic.messages():
                pass

        task = asyncio.create_task(iterate())
        await held.reached()
        await cancelled(task)
        held.go_on.set()


@on_a_loop
async def test_iteration_gives_all_messages_before_one_that_cannot_be_decoded(cluster: Memory) -> None:
    """Although they are read together."""
    async with aio.connect(cluster) as client:
        topic, raw = await client.topic("a"), await client.topic("a", Topic(value=Raw()))
        await topic.append_many(range(3))
        await raw.append(b"{")
        found = topic.messages().__aiter__()
        assert [(await anext(found)).value for _ in range(3)] == [0, 1, 2]
        with pytest.raises(CodecError, match="a/0 at offset 3"):
            await anext(found)


@on_a_loop
async def test_a_cancelled_read_keeps_a_message_that_cannot_be_decoded(cluster: Memory) -> None:
    """Else the next read would leave it out, and its error would be heard nowhere."""
    async with aio.connect(cluster) as client:
        topic, raw = await client.topic("a"), await client.topic("a", Topic(value=Raw()))
        held = decoding_waits(topic, 0)
        async with topic.tailer() as tailer:
            read = asyncio.create_task(tailer.read_blocking())
            await raw.append(b"{")
            await held.reached()
            await cancelled(read)
            held.go_on.set()
            with pytest.raises(CodecError, match="a/0 at offset 0"):
                await tailer.read()
