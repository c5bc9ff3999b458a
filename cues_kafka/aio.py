"""
An asyncio client with the same words as `cues_kafka.connect`.

Each client has a few threads of its own, and each tailer one, because the clients of Kafka block. All end when it is
closed. What a cancelled call does:

- A cancelled read gives its message back: the next read returns it. That of `alts` waits until it has.
- A cancelled send may still be sent. With `id=`, `sent` waits for it to end, and knows.
- The end of a transaction waits until its outcome is known, and is cancelled then.
- A client or tailer that was being opened is opened and closed first, so that it takes no name from the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.client.access import HeadersLike, Since
from cues_kafka.client.alts import alts as alts_now
from cues_kafka.client.asking import ASK_S, SinceOffsets
from cues_kafka.client.client import Client
from cues_kafka.client.connect import connect as connect_now
from cues_kafka.client.cursor import Direction
from cues_kafka.client.on_threads import CallThreads, Chunks, Leaving, UndoableRead
from cues_kafka.client.starts import Start
from cues_kafka.client.tailer import ClientTailer, Unblock
from cues_kafka.client.topic import ClientTopic
from cues_kafka.client.transaction import ClientTransaction
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.topic import Topic
from cues_kafka.ports.log import Sent
from cues_kafka.task.calling.step import Received

__all__ = ["AsyncClient", "AsyncMessages", "AsyncTailer", "AsyncTopic", "AsyncTransaction", "alts", "connect"]

THREADS: Final = 4
"""How many calls of a client run at once; reads of tailers do not count."""

_Opened = TypeVar("_Opened", bound="AsyncClient | AsyncTailer")


class Opening(Generic[_Opened]):
    """Something that is being opened: `await` it, or use it in `async with`, which closes it."""

    def __init__(self, opened: Callable[[], Awaitable[_Opened]]) -> None:
        self._open = opened
        self._opened: _Opened | None = None

    def __await__(self) -> Generator[Any, None, _Opened]:
        return self._open().__await__()

    async def __aenter__(self) -> _Opened:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def connect(options: Kafka | Memory, graph: Graph | None = None, *, name: str | None = None) -> Opening[AsyncClient]:
    """
    Make a client: ``async with aio.connect(Kafka("localhost:9092"), name="billing-1") as client``.

    See `cues_kafka.connect` for the arguments and what is raised.
    """

    async def opened() -> AsyncClient:
        threads = CallThreads(THREADS, "client")
        try:
            client = await threads.run(
                lambda: connect_now(options, graph, name=name), undo=lambda one: one.close(), to_the_end=True
            )
        except BaseException:
            threads.close()
            raise
        return AsyncClient(client, threads)

    return Opening(opened)


class AsyncClient:
    """Sends to topics and reads them; see `Client` for each method."""

    def __init__(self, client: Client, threads: CallThreads) -> None:
        self._client = client
        self._threads = threads
        self._tailers: list[AsyncTailer] = []

    async def send(
        self,
        topic: Any,
        message: Any = ...,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        id: str | None = None,
    ) -> Sent:
        """Send one message; see `Client.send`."""
        return await self._threads.run(lambda: self._client.send(topic, message, key=key, headers=headers, id=id))

    async def sent(
        self, topic: str, id: str, *, since: SinceOffsets | None = None, timeout_s: float = ASK_S
    ) -> Sent | None:
        """Ask the log for a message; see `Client.sent`."""
        await self._threads.settle()  # a send that was cancelled may be under way
        return await self._threads.run(lambda: self._client.sent(topic, id, since=since, timeout_s=timeout_s))

    async def send_many(self, topic: str, messages: Iterable[Any]) -> int:
        """Send messages in one transaction; see `Client.send_many`."""
        given = list(messages)
        return await self._threads.run(lambda: self._client.send_many(topic, given), to_the_end=True)

    async def topic(self, topic: str, settings: Topic | None = None, *, create: bool = False) -> AsyncTopic:
        """A topic as an object; see `Client.topic`."""
        found = await self._threads.run(lambda: self._client.topic(topic, settings, create=create))
        return AsyncTopic(found, self._threads, self._tailers)

    def messages(
        self, topic: str | None = None, limit: int | None = None, *, last: int | None = None, since: Since | None = None
    ) -> Any:
        """
        The committed messages of a topic, for ``async for``; without one a `dict` of those of all topics of the graph.

        They are read while you iterate, up to the end at its beginning; see `Client.messages`.
        """
        if topic is not None:
            return AsyncMessages(lambda: self._client.messages(topic, limit, last=last, since=since), self._threads)
        return {name: self.messages(name, limit, last=last, since=since) for name in self._client.topics}

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction by hand, for ``async with``; see `Client.transaction`."""
        return AsyncTransaction(self._client.transaction(), self._threads)

    async def close(self) -> None:
        """Close the tailers, release the clients, and end the threads."""
        try:
            await self._threads.run(self._client.close, to_the_end=True)
        finally:
            for threads in (*(tailer.threads for tailer in self._tailers), self._threads):
                threads.close()
            self._tailers.clear()


class AsyncTopic:
    """A topic of a client; see `ClientTopic` for each method."""

    def __init__(self, topic: ClientTopic, threads: CallThreads, tailers: list[AsyncTailer]) -> None:
        self.name: str = topic.name
        self.now = topic
        self._threads = threads
        self._tailers = tailers

    async def append(
        self, message: Any, *, key: Any = None, headers: HeadersLike = None, id: str | None = None
    ) -> Sent:
        """Send one message; see `Client.send`."""
        return await self._threads.run(lambda: self.now.append(message, key=key, headers=headers, id=id))

    async def append_many(self, messages: Iterable[Any]) -> list[Sent]:
        """Send messages together; see `ClientTopic.append_many`."""
        given = list(messages)
        return await self._threads.run(lambda: self.now.append_many(given))

    async def sent(self, id: str, *, since: SinceOffsets | None = None, timeout_s: float = ASK_S) -> Sent | None:
        """Ask the log for a message; see `Client.sent`."""
        await self._threads.settle()  # a send that was cancelled may be under way
        return await self._threads.run(lambda: self.now.sent(id, since=since, timeout_s=timeout_s))

    async def last_offset(self, partition: int = 0) -> int | None:
        """The offset of the newest committed message of a partition; None: there is none."""
        return await self._threads.run(lambda: self.now.last_offset(partition))

    def messages(
        self, limit: int | None = None, *, last: int | None = None, since: Since | None = None
    ) -> AsyncMessages:
        """The committed messages, for ``async for``; see `AsyncClient.messages`."""
        return AsyncMessages(lambda: self.now.messages(limit, last=last, since=since), self._threads)

    def tailer(
        self,
        partition: int | None = 0,
        *,
        name: str | None = None,
        start: Start = "earliest",
        again: bool = False,
    ) -> Opening[AsyncTailer]:
        """Open a tailer: ``async with topic.tailer() as tailer``; see `ClientTopic.tailer`."""

        async def opened() -> AsyncTailer:
            tailer = await self._threads.run(
                lambda: self.now.tailer(partition, name=name, start=start, again=again),
                undo=lambda one: one.close(),
                to_the_end=True,
            )
            return AsyncTailer(tailer, self._threads, self._tailers)

        return Opening(opened)


class AsyncTailer:
    """
    Reads a topic at its own pace; see `ClientTailer` for each method.

    Attributes:
        now: the tailer that does it. While no call is under way, its properties may be read: `offset`, `positions`,
            `last_read_offset`, `name`, `topic`.
    """

    def __init__(self, tailer: ClientTailer, threads: CallThreads, tailers: list[AsyncTailer]) -> None:
        self.now = tailer
        self._client_threads = threads
        self._tailers = tailers
        self.threads: CallThreads = CallThreads(1, "tailer")
        tailers.append(self)

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.now.topic

    @property
    def offset(self) -> Any:
        """The next offset to read; a mapping by partition if it reads all of them."""
        return self.now.offset

    async def read(self) -> Received | None:
        """The next message; None: none was committed before this call."""
        return (await self.threads.run(partial(UndoableRead, [self.now], self.now.read), undo=UndoableRead.undo)).result

    async def peek(self) -> Received | None:
        """What `read` would return, without moving."""
        return await self.threads.run(self.now.peek)

    async def read_blocking(self, timeout_s: float | None = None, unblock: Unblock | None = None) -> Received | None:
        """The next message; waits for it, until the time is over or `unblock`, such as an `asyncio.Event`, is set."""
        leave = Leaving(unblock)
        call = partial(UndoableRead, [self.now], lambda: self.now.read_blocking(timeout_s, leave))
        return (await self.threads.run(call, undo=UndoableRead.undo, interrupt=leave.set)).result

    async def messages(self, limit: int | None = None) -> AsyncIterator[Received]:
        """The messages from here on, until none is there now, or until this many were read."""
        read = 0
        while (limit is None or read < limit) and (found := await self.read()) is not None:
            read += 1
            yield found

    def unblock(self) -> None:
        """End the wait that is under way, or else the next one."""
        self.now.unblock()

    async def turn(self, direction: Direction) -> None:
        """Read `forward` or `backward` from now on."""
        await self.threads.run(lambda: setattr(self.now, "direction", direction))

    async def seek(self, offset: int | Mapping[int, int]) -> Self:
        """Stand at an offset, or at offsets by partition."""
        await self.threads.run(lambda: self.now.seek(offset))
        return self

    async def to_start(self) -> Self:
        """Stand before the first message."""
        await self.threads.run(self.now.to_start)
        return self

    async def to_end(self) -> Self:
        """Stand behind the last message that is committed now."""
        await self.threads.run(self.now.to_end)
        return self

    async def to_time(self, time: Since) -> Self:
        """Stand before the first message that is not older than a time; without one, behind the last message."""
        await self.threads.run(lambda: self.now.to_time(time))
        return self

    async def to_place(self) -> Self:
        """Stand at the stored place of a named tailer."""
        await self.threads.run(self.now.to_place)
        return self

    async def close(self) -> None:
        """Release the clients, and end the thread. The place of a named tailer stays."""
        if self not in self._tailers:
            return
        self._tailers.remove(self)
        try:
            await self._client_threads.run(self.now.close, to_the_end=True)
        finally:
            self.threads.close()


class AsyncTransaction:
    """Collects messages and the place of a named tailer, and commits them at the end of ``async with``."""

    def __init__(self, transaction: ClientTransaction, threads: CallThreads) -> None:
        self._transaction = transaction
        self._threads = threads

    async def append(
        self,
        topic: str | AsyncTopic,
        message: Any,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        id: str | None = None,
    ) -> None:
        """Add a message; see `ClientTransaction.append`."""
        to = topic if isinstance(topic, str) else topic.now
        await self._threads.run(lambda: self._transaction.append(to, message, key=key, headers=headers, id=id))

    async def advance(self, tailer: AsyncTailer) -> None:
        """Store where a named tailer stands now; see `ClientTransaction.advance`."""
        await tailer.threads.run(lambda: self._transaction.advance(tailer.now))
        self._threads = tailer.threads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        end: Callable[[], object] = self._transaction.commit if error is None else self._transaction.discard
        await self._threads.run(end, to_the_end=True)


class AsyncMessages:
    """Messages of a topic, which are read while you iterate; each iteration reads them again."""

    def __init__(self, read: Callable[[], Iterable[Received]], threads: CallThreads) -> None:
        self._read = read
        self._threads = threads

    async def __aiter__(self) -> AsyncIterator[Received]:
        chunks = Chunks(await self._threads.run(lambda: iter(self._read())))
        try:
            while some := await self._threads.run(chunks.read):
                for one in some:
                    yield one
        finally:
            self._threads.later(chunks.close)


async def alts(
    tailers: Sequence[AsyncTailer], timeout_s: float | None = None, unblock: Unblock | None = None
) -> tuple[AsyncTailer, Received] | None:
    """The next message of any of these tailers, with its tailer; see `cues_kafka.alts`."""
    if not tailers:
        raise ConfigError("alts([]): give tailers that read forward")
    await asyncio.gather(*(one.threads.settle() for one in tailers))
    leave = Leaving(unblock)
    now = [one.now for one in tailers]
    call = partial(UndoableRead, now, lambda: alts_now(now, timeout_s, leave))
    # To the end: another thread may use the other tailers as soon as this returns.
    read = await tailers[0].threads.run(call, undo=UndoableRead.undo, interrupt=leave.set, to_the_end=True)
    found = read.result
    return None if found is None else (next(one for one in tailers if one.now is found[0]), found[1])
