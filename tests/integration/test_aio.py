"""The asyncio client has the same words; a cancelled call loses nothing, and no thread stays."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from cues_kafka import ConfigError, Graph, Kafka, Memory, Processor, Source, Topic, aio
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.tester import Tester


class Setting:
    """A cluster with names of its own."""

    def __init__(self, options: Kafka | Memory, unique: Callable[[str], str]) -> None:
        self.options, self.unique = options, unique
        self.name, self.one, self.two = (unique(name) for name in ("async", "one", "two"))
        broker = open_broker(options)
        broker.create([NewTopic(self.one, 1), NewTopic(self.two, 1)])
        broker.close()

    def connect(self) -> aio.Opening[aio.AsyncClient]:
        return aio.connect(self.options, name=self.name)


@pytest.fixture(params=["memory", "kafka"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """Both brokers; no thread of ours stays. Those of other tests in this process are not looked at."""
    before = set(threading.enumerate())
    if request.param == "memory":
        found = Setting(Memory(), lambda name: name)
    else:
        kafka: KafkaFixture = request.getfixturevalue("kafka")
        found = Setting(Kafka(kafka.bootstrap), kafka.unique)
    yield found
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("cues-kafka-") for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def run(body: Callable[[], Awaitable[None]]) -> None:
    """In a loop that reports what it would only log, such as exceptions that are not retrieved."""
    said: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        async with asyncio.timeout(60):
            await body()

    asyncio.run(main(), debug=True)
    assert said == []


async def listed(found: AsyncIterable[object]) -> list[object]:
    return [one.value async for one in found]  # type: ignore[attr-defined]


def test_the_words_are_those_of_the_plain_client(setting: Setting) -> None:
    """Each does the same."""

    async def body() -> None:
        async with setting.connect() as client:
            one = await client.topic(setting.one, Topic())
            sent = await client.send(setting.one, 1, key="k", id="a")
            assert await client.sent(setting.one, "a") == await one.sent("a") == sent
            assert await client.send_many(setting.one, [2, 3]) == 2
            await one.append(4)
            assert len(await one.append_many([5, 6])) == 2
            async with one.tailer(name="t") as tailer, one.tailer(start="latest") as other:
                assert [(await tailer.read_blocking(10)).value for _ in range(6)] == [1, 2, 3, 4, 5, 6]  # type: ignore[union-attr]
                assert await tailer.read() is None
                assert await tailer.read_blocking(0.01) is None
                async with client.transaction() as tx:
                    await tx.append(setting.two, "a")
                    await tx.append(await client.topic(setting.two), "b")
                    await tx.advance(tailer)
                await tailer.to_start()
                await tailer.turn("backward")
                await tailer.to_end()
                assert await listed(tailer.messages(limit=2)) == [6, 5]
                await tailer.turn("forward")
                assert (await tailer.peek()).value == 5  # type: ignore[union-attr]
                assert (await tailer.seek(0)).offset == 0
                await tailer.to_time(0)
                assert tailer.topic == setting.one
                assert (await tailer.to_place()).offset == (await other.to_end()).offset
                await one.append(7)
                found = await aio.alts([tailer, other], timeout_s=10)
                assert found is not None
                assert (found[0], found[1].value) == (tailer, 7)
                assert (await other.read_blocking(10)).value == 7  # type: ignore[union-attr]
                assert await aio.alts([tailer, other], timeout_s=0) is None
            with suppress(ZeroDivisionError):
                async with client.transaction() as tx:
                    await tx.append(setting.two, "never")
                    raise ZeroDivisionError
            await _shown(client, setting.two, 2)
            assert await listed(client.messages(setting.two)) == ["a", "b"]
            assert await listed(one.messages(2)) == [1, 2]
            assert await one.last_offset() == (await client.send(setting.one, 8)).offset - 1
            with pytest.raises(ConfigError, match="all topics of a graph"):
                client.messages()
            with pytest.raises(ConfigError, match="give tailers"):
                await aio.alts([])
            with pytest.raises(ConfigError, match="does not exist"):
                await client.topic("nowhere-at-all")

    run(body)


async def _shown(client: aio.AsyncClient, topic: str, count: int) -> None:
    topic_now = await client.topic(topic)
    async with topic_now.tailer() as tailer:
        for _ in range(count):
            assert await tailer.read_blocking(10) is not None


def test_a_cancelled_read_gives_its_message_back(setting: Setting) -> None:
    """At whatever moment it is cancelled."""

    async def body() -> None:
        async with setting.connect() as client:
            topic = await client.topic(setting.one)
            async with topic.tailer() as tailer, (await client.topic(setting.two)).tailer() as other:
                found: list[object] = []

                async def send() -> None:
                    for number in range(15):
                        await topic.append(number)
                        await asyncio.sleep(0.002)

                sending = asyncio.create_task(send())
                pause_s = 0.0005
                while len(found) < 15:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            if len(found) % 2:
                                received = await tailer.read_blocking()
                                assert received is not None
                            else:
                                chosen = await aio.alts([other, tailer])
                                assert chosen is not None
                                received = chosen[1]
                            found.append(received.value)
                    pause_s = 0.0005 if pause_s > 0.1 else pause_s * 1.5
                await sending
                assert found == list(range(15))

    run(body)


def test_a_cancelled_transaction_ends_whole(setting: Setting) -> None:
    """Its outcome is known when it is cancelled; the tailer stands where its place is."""

    async def body() -> None:
        async with setting.connect() as client:
            topic = await client.topic(setting.one)
            await client.send_many(setting.one, range(5))
            async with topic.tailer(name="copy") as tailer:

                async def step() -> None:
                    message = await tailer.read_blocking(10)
                    assert message is not None
                    async with client.transaction() as tx:
                        await tx.append(setting.two, message.value)
                        await tx.advance(tailer)

                pause_s = 0.0005
                while tailer.offset < 5:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await step()
                    await tailer.to_place()
                    pause_s = 0.0005 if pause_s > 0.2 else pause_s * 1.4
            await _shown(client, setting.two, 5)
            assert await listed(client.messages(setting.two)) == list(range(5))

    run(body)


def test_what_is_cancelled_while_it_opens_is_closed(setting: Setting) -> None:
    """And a wait ends when its tailer or client is closed; iterations may be left."""

    async def body() -> None:
        for pause_s in (0.0001, 0.01, 0.05):
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s), setting.connect() as client:
                    await asyncio.sleep(1)
        async with setting.connect() as client:
            topic = await client.topic(setting.one)
            for pause_s in (0.0001, 0.005):
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s), topic.tailer(name="t"):
                        await asyncio.sleep(1)
            tailer = await topic.tailer(name="t")
            waiting = asyncio.create_task(tailer.read_blocking())
            await asyncio.sleep(0.05)
            await tailer.close()
            assert await waiting is None
            event = asyncio.Event()
            other = await topic.tailer()
            waiting = asyncio.create_task(other.read_blocking(unblock=event))
            event.set()
            assert await waiting is None
            waiting = asyncio.create_task(other.read_blocking())
            other.unblock()
            assert await waiting is None
            await client.send_many(setting.one, range(250))
            await _shown(client, setting.one, 250)
            async for message in client.messages(setting.one):
                if message.value == 120:
                    break
            await other.to_end()
            waiting = asyncio.create_task(other.read_blocking())
            await asyncio.sleep(0.1)
        assert await waiting is None

    run(body)


def test_all_topics_of_a_graph_are_read_by_name() -> None:
    """As by the plain client."""
    graph = Graph("g", Source("in"), Processor(abs, name="abs", inputs="in", outputs="out"))
    tester = Tester(graph)
    tester.send("in", -7)
    tester.run()
    memory = Memory()
    memory.held.append(tester.broker)

    async def body() -> None:
        async with aio.connect(memory, graph) as client:
            found = client.messages()
            assert {name: await listed(found[name]) for name in found} == {"in": [-7], "out": [7]}

    run(body)
