"""Calls an ``async def``: up to `concurrency=` calls at once, settled in the order of their steps."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ended:
    """How one call ended: with a value, or with what it raised."""

    value: Any = None
    error: BaseException | None = None


class Coroutines:
    """
    One event loop for all calls of a function, so that sessions and pools that it keeps open stay usable.

    The loop runs only during a call: an asyncio task that the function leaves behind stands still in between. It keeps
    the context of its own call, by which a database knows it from later ones.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._runner = asyncio.Runner()  # makes its loop at the first call, in the thread that calls
        weakref.finalize(self, _close, self._runner)

    def result(self, made: Any) -> Any:
        """
        The result of one call: the value of a coroutine, or everything that an asynchronous generator yields.

        Raises:
            BaseException: what the call raises.
        """
        found: list[Ended] = []
        self.settle([lambda: made], lambda _, ended: found.append(ended))
        [ended] = found
        if ended.error is not None:
            raise ended.error
        return ended.value

    def settle(self, calls: Sequence[Callable[[], Any]], settle: Callable[[int, Ended], bool | None]) -> None:
        """
        Call side by side, and report how each call ended, in order.

        Args:
            calls: each makes a coroutine or an asynchronous generator.
            settle: gets the index of a call and its end. When it returns False, the later calls are cancelled.
        """
        self._runner.run(self._settle(calls, settle), context=copy_context())

    async def _settle(self, calls: Sequence[Callable[[], Any]], settle: Callable[[int, Ended], bool | None]) -> None:
        gate = asyncio.Semaphore(self._concurrency)

        async def one(call: Callable[[], Any]) -> Ended:
            async with gate:
                try:
                    return Ended(await value_of(call()))
                except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets them out of its loop, past the step
                    return Ended(error=error)

        tasks = [asyncio.ensure_future(one(call)) for call in calls]
        try:
            for index, task in enumerate(tasks):
                await asyncio.wait([task])
                if settle(index, _ended(task)) is False:
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _generators_ended()

    def end_generators(self) -> None:
        """Wait until asynchronous generators that nothing refers to any more are through with their `finally`."""
        self._runner.run(_generators_ended(), context=copy_context())


async def _generators_ended() -> None:
    """
    The loop closes such a generator by a task, which would else go on beside the next call.

    What it writes to a store or a database would belong to the step of that call, or be lost with it.
    """
    await asyncio.sleep(0)
    while closing := [one for one in asyncio.all_tasks() if type(one.get_coro()).__name__ == CLOSING]:
        await asyncio.wait(closing)


CLOSING = "async_generator_athrow"
"""The type of what `aclose` of an asynchronous generator gives."""


def _close(runner: asyncio.Runner) -> None:
    """
    Close the loop, unless a thread is in it that never comes back: that of a `Tester` which was killed there.

    The collector may come here while another loop runs on its thread, and then no coroutine can be ended in this one.
    """
    loop = runner.get_loop()
    if loop.is_running():
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        runner.close()
    else:
        loop.close()


async def value_of(made: Any) -> Any:
    """The value of a coroutine, or everything that an asynchronous generator yields."""
    if isinstance(made, Awaitable):
        return await made
    return [one async for one in made]


def _ended(task: asyncio.Future[Ended]) -> Ended:
    if task.cancelled():  # by itself: no other code has this task
        return Ended(error=RuntimeError("the coroutine was cancelled from inside"))
    error = task.exception()
    return Ended(error=error) if error is not None else task.result()
