"""Blocking calls of an asyncio client, on threads: what a cancelled call has done is taken back, or waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from cues_kafka.client.tailer import ClientTailer, Unblock
from cues_kafka.errors import CodecError, CuesError
from cues_kafka.task.calling.step import Received

CHUNK: Final = 100
"""How many messages are read together while a program iterates."""

_Result = TypeVar("_Result")


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


class Chunks:
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


class UndoableRead(Generic[_Result]):
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
