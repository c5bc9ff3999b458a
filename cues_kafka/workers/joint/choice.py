"""Whether the tasks of a processor have a session each, or one together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cues_kafka.core.spec import Spec
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.task.interpreter import Interpreter
from cues_kafka.task.session_of import TaskSession
from cues_kafka.workers.joint.session import JointSession

THREADS: Final = 64
"""How many recoveries, and ends of commits, go side by side where tasks share a session. Tasks that recover ask the
cluster together, so with more threads there are fewer questions."""


class Sessions:
    """
    The sessions of a processor in a process.

    Attributes:
        joint: the one of all tasks; None: each task has its own.
        session_of: see `task.world.World`.
    """

    def __init__(
        self,
        wanted: int,
        first: Spec,
        broker: Broker,
        clock: Clock,
        batch_bytes: int | None,
        *,
        submit: Callable[..., Any],
    ) -> None:
        """
        Args:
            wanted: 0: each task has its own; else they share one, unless they have no lock (J9) or are those of a feed.
            first: the spec of the first task.
            broker: the cluster.
            clock: time.
            batch_bytes: see `ports.broker.Broker.session`.
            submit: runs a function with its arguments on another thread.
        """
        joint = wanted > 0 and first.rules.fenced and not first.feed
        names = first.graph, first.processor
        self.joint = (
            JointSession(*names, broker, clock=clock, batch_bytes=batch_bytes, submit=submit) if joint else None
        )
        self.session_of: Callable[[Interpreter], TaskSession] | None = self.joint.share if self.joint else None
        self._width = first.width

    @property
    def threads(self) -> int:
        """How many threads the effects of tasks need."""
        return max(4, min(self._width, THREADS) if self.joint else self._width)

    def start(self, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Serve on a thread, if there is a joint one; see `JointSession.start`."""
        if self.joint is not None:
            self.joint.start(guarded)

    def serve(self, task: int, resume: Callable[[Any], None]) -> None:
        """Have answers for a task handed to `resume`."""
        if self.joint is not None:
            self.joint.answers(task, resume)

    def order(self, tasks: list[int]) -> list[int]:
        """J5: the order in which tasks are given up."""
        return self.joint.last(tasks) if self.joint is not None else tasks

    def gone(self, task: int) -> None:
        """This process has the task no more."""
        if self.joint is not None:
            self.joint.gone(task)

    def close(self) -> None:
        """End, once no task is left."""
        if self.joint is not None:
            self.joint.close()
