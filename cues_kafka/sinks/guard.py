"""What keeps rows and place together, whatever user code and the database do inside the transaction of a batch (E1)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

FIRST: Final = 64
MOST: Final = 4096
"""How many steps get a transaction of their own after the first one that failed as a whole, and at most."""


class Lone:
    """
    Which steps get a transaction of their own.

    Where a statement takes the whole transaction back, such as `INSERT OR ROLLBACK`, nothing says which of the steps
    before it must be called again, and no savepoint is left. So the batch is void, and the next steps are committed
    one by one. The step that does it again then has nothing beside it in its transaction: its failure is its own.
    """

    def __init__(self) -> None:
        self._until = 0
        self._length = FIRST
        self._refused: tuple[int, str] = 0, ""
        self._late = -1

    def holds(self, step: int) -> bool:
        """Whether the step with this number is the only one of its transaction."""
        return step < self._until

    def suspect(self, step: int, why: str) -> None:
        """A transaction that began at this step has failed as a whole, and no outage explains it."""
        if self.holds(step):
            self._refused = step, why
        else:
            self._until, self._length = step + self._length, min(self._length * 2, MOST)

    def refused(self, step: int) -> str:
        """Why the database did not commit this step when it was alone; empty: it has not refused it."""
        return self._refused[1] if self._refused[0] == step else ""

    def late(self, step: int, why: str) -> bool:
        """
        A statement in the transaction that began at this step took longer than a setting of the database allows.

        Returns:
            Whether the step was alone both now and before: then it always takes too long, and that is its own error.
            A database that is busy for a moment makes no error: the step is tried alone, and once more.
        """
        if not self.holds(step):
            self.suspect(step, why)
            return False
        before, self._late = self._late, step
        return before == step

    def committed(self, step: int) -> None:
        """A transaction that began at this step was committed."""
        if not self.holds(step):
            self._length = FIRST


_PRESENT: ContextVar[object] = ContextVar("cues_call", default=None)


class CallInProgress:
    """
    Which code may use the transaction: that which is called now, and what it hands its context to.

    A thread that a call has left behind would else write into a later step, and its row would be taken back, or kept,
    with that one.
    """

    def __init__(self) -> None:
        self._call = object()  # no code has it

    def begin(self) -> None:
        """The code that this thread calls next, and no other, may use it."""
        self._call = object()
        _PRESENT.set(self._call)

    def end(self) -> None:
        """The code has returned. What it has left behind may not use it either, up to the next call and after."""
        self._call = object()

    def check(self) -> None:
        """
        Raises:
            RuntimeError: the code was called before, or runs in another thread.
        """
        if _PRESENT.get() is not self._call:
            raise RuntimeError(
                "the connection is valid only during the call of the function, in its own thread. A thread that the "
                "function starts and waits for may use it in the context of the call: "
                "contextvars.copy_context().run(...)"
            )
