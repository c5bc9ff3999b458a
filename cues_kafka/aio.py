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
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.client.access import HeadersLike, Since
from cues_kafka.client.asking import ASK_S, SinceOffsets
from cues_kafka.client.client import Client
from cues_kafka.client.connect import connect as connect_now
from cues_kafka.client.tailer import ClientTailer, Direction, Start, Unblock
from cues_kafka.client.tailer import alts as alts_now
from cues_kafka.client.topic import ClientTopic
from cues_kafka.client.transaction import ClientTransaction
from cues_kafka.errors import CodecError, ConfigError, CuesError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.topic import Topic
from cues_kafka.ports import Sent
from cues_kafka.task.calling.step import Received

__all__ = ["AsyncClient", "AsyncMessages", "AsyncTailer", "AsyncTopic", "AsyncTransaction", "alts", "connect"]

THREADS: Final = 4
"""How many calls of a client run at once; reads of tailers do not count."""

CHUNK: Final = 100
"""How many messages are read together while you iterate."""

_Result = TypeVar("_Result")
_Opened = TypeVar("_Opened", bound="AsyncClient | AsyncTailer")


class _ThreadCall(Generic[_Result]):
    """One call on a thread, which takes its result back if its caller has gone."""

    def __init__(self, call: Callable[[], _Result], undo: Callable[[_Result], object] | None) -> None:
        self._call = call
        self._undo = undo
        self._lock = threading.Lock()
        self._left = False
        self._done: list[_Result] = []

    def __call__(self) -> _Result:
        result = self._call()
        with self._lock:
            left = self._left
            self._done.append(result)
        if left and self._undo is not None:
            self._undo(result)
        return result

    def leave(self) -> Callable[[], object] | None:
        """Say that the caller has gone; what is to be done about a result that is there already."""
        with self._lock:
            self._left = True
            undo = self._undo
            if not self._done or undo is None:
                return None
        return lambda: undo(self._done[0])


class CallThreads:
    """Runs blocking calls on a few threads; with one thread, in their order."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"cues-kafka-{name}")
        self._left: set[asyncio.Future[Any]] = set()

    async def run(
        self,
        call: Callable[[], _Result],
        *,
        undo: Callable[[_Result], object] | None = None,
        interrupt: Callable[[], object] = lambda: None,
        to_the_end: bool = False,
    ) -> _Result:
        """
        Run a call, and wait for its result.

        Args:
            call: the call.
            undo: takes its result back, on a thread, if this is cancelled.
            interrupt: ends the call sooner, if this is cancelled.
            to_the_end: if this is cancelled, wait for the call to end before.
        """
        made = _ThreadCall(call, undo)
        here = copy_context()  # with the span that the program has open
        submitted: Future[_Result] = self._pool.submit(here.run, made)
        future = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if to_the_end:
                interrupt()
                await _ended(future)
                if undo is not None and not future.cancelled() and future.exception() is None:
                    await _ended(asyncio.wrap_future(self._pool.submit(undo, future.result())))
            elif not submitted.cancel():
                interrupt()
                self._left.add(future)
                future.add_done_callback(self._left.discard)
                if again := made.leave():
                    self._pool.submit(again)
            future.add_done_callback(_seen)
            raise

    async def settle(self) -> None:
        """Wait until all calls before this one have ended, those on the same thread and those whose caller has gone."""
        if self._left:
            await asyncio.wait([*self._left])
        await self.run(lambda: None)

    def later(self, call: Callable[[], object]) -> None:
        """Run a call that nothing waits for; after `close` it is left out."""
        with suppress(RuntimeError):
            self._pool.submit(call)

    def close(self) -> None:
        """End the threads; they have nothing to do any more, or soon."""
        self._pool.shutdown(wait=True)


async def _ended(future: asyncio.Future[Any]) -> None:
    """Wait for a call whose outcome counts, however often the waiting is cancelled."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


def _seen(future: asyncio.Future[Any]) -> None:
    """Take the exception of a call whose caller has gone, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


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
        self.name = topic.name
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
        self.threads = CallThreads(1, "tailer")
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
        return (await self.threads.run(partial(_Read, [self.now], self.now.read), undo=_Read.undo)).result

    async def peek(self) -> Received | None:
        """What `read` would return, without moving."""
        return await self.threads.run(self.now.peek)

    async def read_blocking(self, timeout_s: float | None = None, unblock: Unblock | None = None) -> Received | None:
        """The next message; waits for it, until the time is over or `unblock`, such as an `asyncio.Event`, is set."""
        leave = Leaving(unblock)
        call = partial(_Read, [self.now], lambda: self.now.read_blocking(timeout_s, leave))
        return (await self.threads.run(call, undo=_Read.undo, interrupt=leave.set)).result

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
        chunks = _Chunks(await self._threads.run(lambda: iter(self._read())))
        try:
            while some := await self._threads.run(chunks.read):
                for one in some:
                    yield one
        finally:
            self._threads.later(chunks.close)


class _Chunks:
    """Messages that are read together, on any thread; `close` waits for the read that is under way."""

    def __init__(self, found: Iterator[Received]) -> None:
        self._found = found
        self._reading = threading.Lock()
        self._failed: CuesError | None = None

    def read(self) -> list[Received]:
        """
        The next ones; none at the end.

        Raises:
            CuesError: the message behind the last ones cannot be read.
        """
        some: list[Received] = []
        with self._reading:
            try:
                if self._failed is not None:
                    raise self._failed
                some.extend(islice(self._found, CHUNK))
            except CuesError as error:
                self._failed = error
                if not some:
                    raise
        return some

    def close(self) -> None:
        """Release the clients."""
        with self._reading:
            getattr(self._found, "close", lambda: None)()


class _Read(Generic[_Result]):
    """What a read has returned, or the message that it could not decode; and where the tailers stood before."""

    def __init__(self, tailers: Sequence[ClientTailer], read: Callable[[], _Result]) -> None:
        self._before = [(one, one.positions) for one in tailers]
        self._error: CodecError | None = None
        try:
            self._result = read()
        except CodecError as error:
            self._error = error

    @property
    def result(self) -> _Result:
        """
        What it has returned.

        Raises:
            CodecError: what it has raised.
        """
        if self._error is not None:
            raise self._error
        return self._result

    def undo(self) -> None:
        """Have the next read begin where this one began."""
        for tailer, positions in self._before:
            tailer.give_back(positions)


class Leaving:
    """What ends a wait: the caller has gone, or what it gave is set."""

    def __init__(self, unblock: Unblock | None) -> None:
        self._left = threading.Event()
        self._unblock = unblock

    def set(self) -> None:
        """Say that the caller has gone."""
        self._left.set()

    def is_set(self) -> bool:
        """Whether the wait is over."""
        return self._left.is_set() or (self._unblock is not None and self._unblock.is_set())


async def alts(
    tailers: Sequence[AsyncTailer], timeout_s: float | None = None, unblock: Unblock | None = None
) -> tuple[AsyncTailer, Received] | None:
    """The next message of any of these tailers, with its tailer; see `cues_kafka.alts`."""
    if not tailers:
        raise ConfigError("alts([]): give tailers that read forward")
    await asyncio.gather(*(one.threads.settle() for one in tailers))
    leave = Leaving(unblock)
    now = [one.now for one in tailers]
    call = partial(_Read, now, lambda: alts_now(now, timeout_s, leave))
    # To the end: another thread may use the other tailers as soon as this returns.
    read = await tailers[0].threads.run(call, undo=_Read.undo, interrupt=leave.set, to_the_end=True)
    found = read.result
    return None if found is None else (next(one for one in tailers if one.now is found[0]), found[1])
