"""What stands still and what waits, in a run that has one thread and virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.proof.simulation.run import Simulation


class Killed(BaseException):
    """Unwinds a strand of a process that is gone; nothing of it runs any more."""


class Lock:
    """
    In place of an interpreter's lock: held by a strand.

    Waiting for a strand that stands still below has no success: that is the same as a timeout.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._holder: object = None
        self._depth = 0

    @property
    def free(self) -> bool:
        """Whether no strand holds it."""
        return self._depth == 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, or have waited for it."""
        if self._depth and self._holder is not self._simulation.strand:
            assert not blocking or timeout >= 0, "a strand would wait for ever"
            self._simulation.clock.advance(timeout if blocking else 0.0)
            return False
        self._holder = self._simulation.strand
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back."""
        self._depth -= 1

    def lend(self, wait: Callable[[], None]) -> None:
        """Give it back while the strand waits, and take it again."""
        held, self._depth = self._depth, 0
        wait()
        assert not self._depth, "a strand that went on meanwhile has kept it"
        self._holder, self._depth = self._simulation.strand, held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
