"""Which tasks of a process may run user code: many side by side, or one alone (Q2a).

After a death on a single step, that step is delivered alone, so that the next death is its own. No thread is blocked
here: a task that may not run now asks again a moment later.
"""

from __future__ import annotations

import threading

WISH_S = 5.0
"""While a task wants to be alone, new calls of other tasks wait this long, then run for as long, and so on. So a call
that never returns does not hold up all other processors."""

PATIENCE_S = 300.0
"""No task waits longer for a task that is alone, or to be alone beside a call that does not return. After that, a death
in such a call is counted on other tasks too."""

ASK_AGAIN_S = 0.02


class Alone:
    """Decides for the tasks of one process which of them may run user code."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[object] = set()
        self._holder: object | None = None
        self._since_s = 0.0
        self._ending = False
        self._wish: tuple[object, float] | None = None
        self._asked_s: dict[object, float] = {}  # since when a task has waited for calls of others

    def enter(self, task: object, now_s: float) -> bool:
        """Begin to run user code, until `leave`; False: not now."""
        with self._lock:
            if self._held(task, now_s) or self._wished(task, now_s):
                return False
            self._running.add(task)
            return True

    def leave(self, task: object) -> None:
        """End what `enter` began: user code has returned."""
        with self._lock:
            self._running.discard(task)
            if self._ending and self._holder is task:
                self._holder = None

    def take(self, task: object, now_s: float) -> bool:
        """Be alone until `release`, beside calls that do not return in `PATIENCE_S` at most; False: not now."""
        with self._lock:
            if self._holder is task:
                self._ending = False
                return True
            if self._held(task, now_s):
                return False
            if self._running - {task} and now_s - self._asked_s.setdefault(task, now_s) < PATIENCE_S:
                if self._wish is None or now_s - self._wish[1] >= 2 * WISH_S:
                    self._wish = (task, now_s)
                return False
            self._holder, self._since_s, self._wish, self._ending = task, now_s, None, False
            self._asked_s.pop(task, None)
            return True

    def release(self, task: object) -> None:
        """Let others run; if user code of this task still runs, as soon as it returns."""
        with self._lock:
            self._asked_s.pop(task, None)
            if self._wish is not None and self._wish[0] is task:
                self._wish = None
            if self._holder is task:
                self._ending = task in self._running
                self._holder = task if self._ending else None

    def forget(self, task: object) -> None:
        """Stop waiting for user code of a task that was given up: it does not return."""
        self.release(task)
        self.leave(task)

    def _held(self, task: object, now_s: float) -> bool:
        return self._holder not in (None, task) and now_s - self._since_s < PATIENCE_S

    def _wished(self, task: object, now_s: float) -> bool:
        return self._wish is not None and self._wish[0] is not task and now_s - self._wish[1] < WISH_S


PROCESS = Alone()
"""The one of this process. A simulation of several processes makes one for each."""
