"""Joint sessions in a run that has one thread (J1 to J9): the session of a worker is one more strand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cues_kafka.task.lane import Lane
from cues_kafka.workers.joint.session import JointSession
from cues_kafka.workers.joint.share import Share
from tests.proof.simulation.strands import Killed, Lock

if TYPE_CHECKING:
    from tests.proof.simulation.run import Simulation

LOOK_S = 2.0
"""How long a strand waits at most before it looks again."""


class Condition:
    """In place of a condition: others go on while a strand waits, and it gives up the lock for that."""

    def __init__(self, simulation: Simulation, lock: Lock | None = None) -> None:
        self._simulation = simulation
        self._lock = lock

    def __enter__(self) -> None:
        """No strand stands still within: no task is called there, and so no hook."""

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None:
        """Who waits looks again by itself."""

    def wait(self, timeout: float) -> bool:
        """Let others go on; what they did is for the caller to see. One of them may have killed this process."""
        process = self._simulation.process
        if self._lock:
            self._lock.lend(lambda: self._simulation.elapse(min(timeout, LOOK_S)))
        else:
            self._simulation.elapse(min(timeout, LOOK_S))
        if process is not None and not process.alive:
            raise Killed
        return True

    def wait_for(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Until it holds, or time is up."""
        clock = self._simulation.clock
        deadline = clock.monotonic() + timeout
        while not holds() and clock.monotonic() < deadline:
            self.wait(deadline - clock.monotonic())
        return holds()


def locks_of(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[Lock]:
    """The locks that a job will take."""
    about = (getattr(fn, "__self__", None), *args)
    found: list[Any] = [one.interpreter.lock for one in about if isinstance(one, Lane | Share)]
    return found


def wakes_of(session: JointSession) -> list[float]:
    """When a session has something to do although no task asks."""
    wakes = [at for at, *_ in session._delays]
    return [*wakes, session._renew_at_s] if session._shares and session._state.renews else wakes
