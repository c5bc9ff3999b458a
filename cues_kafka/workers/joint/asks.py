"""What the tasks of a process want of the session that they share, and what they must hear (J2 to J7).

`_changed` guards all of it, and is the innermost lock: no task is called under it. A task asks with its own lock held,
so the other order could block both.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable
from itertools import count

from cues_kafka.core import events as on
from cues_kafka.ports.clock import Clock
from cues_kafka.task.interpreter import Interpreter
from cues_kafka.workers.joint.rounds import BeforeLeaving, SessionState, Tasks
from cues_kafka.workers.joint.share import Share


class Asks:
    """What was asked of a session, and not answered yet; see `share.Rounds`. May be called on any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._state = SessionState()
        self._shares: dict[int, Share] = {}
        self._inits: dict[int, float] = {}  # tasks that recover -> how long their init may take
        self._waiting: dict[int, Share] = {}  # for a round, the one that has waited longest first
        self._leaving: set[int] = set()
        self._fencing: Tasks = ()  # ids that are being ended
        self._failing: dict[int, str] = {}  # tasks of a round that is over -> why
        self._untold: set[int] = set()  # tasks that have committed, and have not heard it yet
        self._delays: list[tuple[float, int, Share, int]] = []  # tasks that go back to R1 later
        self._numbers = count()
        self._refresh = False  # J5: the id is initialised once more
        self._renew_at_s = 0.0  # J4: not before, behind an init that failed
        self._over = False

    def share(self, interpreter: Interpreter) -> Share:
        """The part of a task that this process has now."""
        share = Share(interpreter, self)
        with self._changed:
            self._shares[share.task] = share
        return share

    def answers(self, task: int, resume: Callable[[on.Event], None]) -> None:
        """Hand the answers to this task to `resume`, which does not raise."""
        self._shares[task].resume = resume

    def gone(self, task: int) -> None:
        """J4, J5: this process has the task no more."""
        with self._changed:
            self._leaving.discard(task)
            if self._shares.pop(task, None) is None:
                return
            self._forget(task)
            self._state, failed = self._state.left(task)
            self._fail(failed, f"the partition {task} of the same transaction is gone")

    def last(self, tasks: Iterable[int]) -> list[int]:
        """These tasks in the order in which they are given up: that of the session's id comes last (J5)."""
        with self._changed:
            return sorted(tasks, key=lambda task: task == self._state.id)

    # What tasks ask for, see `share.Rounds`.

    def wants_init(self, share: Share, timeout_s: float) -> None:
        with self._changed:
            if self._shares.get(share.task) is share:
                self._inits[share.task] = timeout_s
                self._changed.notify_all()

    def wants_round(self, share: Share) -> None:
        with self._changed:
            if self._shares.get(share.task) is share:
                self._waiting[share.task] = share
                self._changed.notify_all()

    def asks(self, share: Share) -> None:
        with self._changed:
            if self._shares.get(share.task) is not share:
                return
            if self._state.round is not None and share.task in self._state.round.tasks:
                self._state = self._state.asks(share.task)
            else:  # the round is over for all, and this task has not heard it yet
                self._failing.setdefault(share.task, "the transaction is over")
            self._changed.notify_all()

    def discards(self, share: Share, delay_s: float) -> bool:
        with self._changed:
            if self._shares.get(share.task) is not share:
                return False
            self._forget(share.task)
            self._state, failed = self._state.discards(share.task)
            self._fail(failed, f"the task of partition {share.task} in the same transaction failed")
            if delay_s > 0:
                heapq.heappush(
                    self._delays, (self._clock.monotonic() + delay_s, next(self._numbers), share, share.turn)
                )
            self._changed.notify_all()
        return delay_s > 0

    def leaves(self, share: Share, timeout_s: float) -> bool:
        task, deadline = share.task, self._clock.monotonic() + timeout_s
        with self._changed:
            self._leaving.add(task)
            while (comes := self._state.leaves(task)) is not BeforeLeaving.NOTHING or task in self._untold:
                if comes is BeforeLeaving.SESSION and task not in self._untold:
                    if not self._shares.keys() - {task}:
                        break  # no other task needs the markers
                    self._refresh = True
                    self._changed.notify_all()
                if (left_s := deadline - self._clock.monotonic()) <= 0:
                    return False  # however often something changes
                self._changed.wait(left_s)
            self._forget(task)
            return True

    def _forget(self, task: int) -> None:
        """The task waits for nothing."""
        self._inits.pop(task, None)
        self._waiting.pop(task, None)
        self._failing.pop(task, None)

    def _fail(self, tasks: Tasks, why: str) -> None:
        """These tasks hear it on the session's thread."""
        for task in tasks:
            self._waiting.pop(task, None)
            self._failing[task] = why
        self._changed.notify_all()
