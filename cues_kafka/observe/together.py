"""One line for what all tasks of a process share: a broker that is away fails each of them in the same words."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from cues_kafka.observe.log import Logger

EVERY_S: Final = 60.0
"""How long further lines of one cause are counted instead of written."""

MOST_CAUSES: Final = 200
"""How many causes are remembered."""

_VARYING: Final = re.compile(r"\d+")


class _Window:
    """A minute of one cause: since when, whose lines were written, and how many were left out."""

    __slots__ = ("left", "since_s", "tasks", "written")

    def __init__(self, since_s: float) -> None:
        self.since_s, self.tasks, self.written, self.left = since_s, set[str](), 0, 0


class Together:
    """
    Writes the lines of the first tasks that a cause meets, then counts for a minute; the next line has the count.

    Two texts are one cause if they differ in numbers only. Threads share it, so its lock is held for each line; nothing
    is called under it.
    """

    def __init__(self, *, most: int = 1, now: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            most: whose lines are written: those of as many tasks, each with all of them; of an event that has no task,
                as many lines.
            now: the monotonic clock.
        """
        self._most, self._now = most, now
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], _Window] = {}

    def warning(self, log: Logger, event: str, *, cause: str, **values: Any) -> None:
        """Write or count a line that an operator should look at; `task` among the values says whose it is."""
        if (more := self.room(event, cause, values.get("task"))) is not None:
            log.warning(event, **values, **more)

    def info(self, log: Logger, event: str, *, cause: str, **values: Any) -> None:
        """Write or count a line of normal work; `task` among the values says whose it is."""
        if (more := self.room(event, cause, values.get("task"))) is not None:
            log.info(event, **values, **more)

    def room(self, event: str, cause: str, task: str | None = None, *, exact: bool = False) -> dict[str, Any] | None:
        """
        None: the line is counted. Else it is written, with these values about those that were counted before it.

        Args:
            event: kind of line.
            cause: what it is about.
            task: whose line it is.
            exact: numbers tell causes apart, too, such as ports.
        """
        key, now, more = (event, cause if exact else _VARYING.sub("#", cause)), self._now(), dict[str, Any]()
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window.since_s >= EVERY_S:
                if window is not None and window.left:
                    more = {"more": window.left, "in_s": round(now - window.since_s)}
                if len(self._windows) >= MOST_CAUSES:
                    self._windows.clear()
                window = self._windows[key] = _Window(now)
            if task in window.tasks:
                return more
            if window.written >= self._most:
                window.left += 1
                return None
            window.written += 1
            if task is not None:
                window.tasks.add(task)
            return more


CLUSTER: Final = Together()
"""Holds, for this process, what a cluster that is away does to all of its clients."""

TASKS: Final = Together(most=3)
"""Holds the tasks of this process that fail. Three of them show what they have in common."""
