"""What each worker process of the command line does: take signals, and print what happens to its tasks."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final, Self

from cues_kafka.cli.notify import notify
from cues_kafka.cli.options import BROKEN, DONE, FAILED, WRONG, pasteable
from cues_kafka.cli.printing import say, say_block
from cues_kafka.errors import BrokerError, RetriableError, TaskStopped
from cues_kafka.words import count as number_of

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.running.running import Running

RELOAD: Final = -1
"""The exit code of a worker that is to start itself again."""

LOOK_S: Final = 0.5
"""How soon a stopped task is printed."""

EMPTY_S: Final = 3.0
"""How long a worker without tasks waits before it is called ready. A group takes a worker in first, and gives it tasks
when others have ended their batches. If it were ready at once, a supervisor would replace those others meanwhile."""


class Signals:
    """SIGTERM, SIGINT and SIGHUP as a value to wait for; a second one of the first two kills."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self.waiting = False

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float | None, *fds: int) -> int | None:
        """Wait for a signal and return it; None: the time is over, or a descriptor is readable."""
        self.waiting = True
        if self.came is None:
            select.select([self._read, *fds], [], [], timeout_s)
        return self.came

    def again(self) -> None:
        """Go on after a signal, as if none had come."""
        self.came = None
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        for number in self._before:
            signal.signal(number, self._on)

    def _on(self, number: int, _: FrameType | None) -> None:
        self.came = number
        again = _end_at_once if os.getpid() == 1 else signal.SIG_DFL  # the kernel ignores SIG_DFL of process 1
        signal.signal(signal.SIGINT, again)
        signal.signal(signal.SIGTERM, again)
        if not self.waiting:  # still starting, so there is nothing to stop
            raise SystemExit(128 + number)
        os.write(self._write, b"x")


def _end_at_once(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def announce(running: Running, address: str, *, warn: bool) -> None:
    """Print how many tasks run on which cluster, and the plan's warnings (of several workers, one prints them)."""
    planned, names = running.planned, running.names
    tasks = sum(task.processor in names for task in planned.tasks)
    slots = sum(frame.slots or 0 for frame in planned.dataframes if frame.name in names)
    slots += sum(feed.parts for name, feed in running.graph.feeds.items() if name in names)
    say(f"{running.graph.name}: {number_of(tasks + slots, 'task')} on {address}")
    for warning in planned.warnings if warn else ():
        say(f"warning: {pasteable(warning)}", fg="yellow", err=True)


class TaskWatch:
    """The worker in this process: prints what happens to its tasks, until it ends."""

    def __init__(
        self,
        graph: Graph,
        running: Running,
        *,
        fail_fast: bool,
        succeeded: bool,
        began: float,
        may_reload: Callable[[], bool] | None = None,
        keeps_place: bool = False,
        tells: bool = True,
        stop_timeout_s: float | None = None,
    ) -> None:
        """
        Args:
            graph: the graph at work.
            running: its worker in this process.
            fail_fast: end when a task stops.
            succeeded: a supervisor starts a successor at once.
            began: when the command began, by `time.monotonic`.
            may_reload: asked at SIGHUP, whether this process may start itself again; None: a supervisor does.
            keeps_place: this worker has a name, so that its successor takes its place in the group.
            tells: print a sentence to stderr when a task stops or is tried again; else the log has it.
            stop_timeout_s: how long a graceful shutdown of this process may take; then it writes its stacks and
                ends with 1. None: as long as that takes, or until its supervisor kills it.
        """
        self._graph = graph
        self._running = running
        self._fail_fast = fail_fast
        self._succeeded = succeeded  # a supervisor starts a successor at once
        self._began = began
        self._may_reload = may_reload
        self._keeps_place = succeeded or keeps_place
        self._tells = tells
        self._told: dict[str, str] = {}
        self._ready = False
        self._empty_s: float | None = None  # since when it has no tasks, and the group has taken it in
        self._stop_timeout_s = stop_timeout_s
        from cues_kafka.task.heart import Heart, Loops

        self._heart = Heart()
        self._loops = Loops(running.loops)

    def until(self, signals: Signals) -> int:
        """Watch until a signal comes or the worker ends, stop it, and return the exit code."""
        from cues_kafka.task.calling.failures import ended_by

        running = self._running
        while (came := self._came(signals)) is None:
            self._look()
            if running.failed is not None:
                stopped = bool(self._told) and isinstance(running.failed, TaskStopped)  # it is printed already
                if not stopped and self._tells:
                    say_block(f"this worker failed: {pasteable(ended_by(running.failed))}", fg="red", err=True)
                running.abandon(leave=not self._succeeded)
                if stopped and self._fail_fast:
                    return FAILED
                return WRONG if isinstance(running.failed, BrokerError) and running.failed.final else BROKEN
            if self._told and self._fail_fast:
                running.stop()
                return FAILED
            if running.finished:
                running.stop()
                say(f"{self._graph.name}: all available messages are delivered")
                return DONE if self._succeeded else 0
        if self._stop_timeout_s is not None:
            faulthandler.dump_traceback_later(self._stop_timeout_s, exit=True)
        if came == signal.SIGHUP and self._keeps_place:
            running.release()
        else:
            running.stop()
        if self._stop_timeout_s is not None:
            faulthandler.cancel_dump_traceback_later()
        if came == signal.SIGHUP and self._may_reload is not None:
            return RELOAD
        if not self._succeeded:  # a supervisor prints this for all of its workers
            say(f"{self._graph.name}: stopped")
        return 0

    def _came(self, signals: Signals) -> int | None:
        """The signal that ends this worker, if one came."""
        came = signals.wait(LOOK_S if self._ready else LOOK_S / 10)
        if came == signal.SIGHUP and self._may_reload is not None and not self._may_reload():
            signals.again()
            return None
        return came

    def _look(self) -> None:
        stopped = {task.task: task for task in self._running.status().stopped}
        for name, task in stopped.items():
            if self._tells and self._told.get(name) != task.stopped:
                message = f" (message {task.at}, hash {task.hash})" if task.at else ""
                text = f"{name} stopped: {task.stopped}{message}; remedy: {task.remedy}"
                say(pasteable(text), fg="red", err=True)
        for name in self._told.keys() - stopped.keys() if self._tells else ():
            say(f"{name} is tried again", err=True)
        self._told = {name: task.stopped for name, task in stopped.items()}
        if not self._ready and self._works():
            self._ready = True
            count, seconds = len(self._running.status().tasks), time.monotonic() - self._began
            tasks = f"{number_of(count, 'task')} here" + (f", {len(stopped)} of them stopped" if stopped else "")
            say(f"{self._graph.name}: ready after {seconds:.2f} s, {tasks}, pid {os.getpid()}")
            notify("READY=1")
        if self._ready and self._loops.moved():
            self._heart.beat()

    def _works(self) -> bool:
        """Whether each task of this process works or has stopped. A process that gets no task waits for `EMPTY_S`."""
        now_s = time.monotonic()
        if not self._settled():
            self._empty_s = None
            return False
        self._empty_s = now_s if self._empty_s is None else self._empty_s
        return bool(self._running.status().tasks) or now_s - self._empty_s >= EMPTY_S

    def _settled(self) -> bool:
        try:
            return self._running.settled
        except RetriableError:  # a leader moves; tasks recover from that
            return False
