"""What a task waits for before it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Awaited(Protocol):
    """
    What a task waits for before each chunk of calls.

    Attributes:
        missed: how often it was not there in time, since the task is in this process.
    """

    missed: int

    def wait(self, given_up: Callable[[], bool]) -> None:
        """
        Wait, on the thread that calls the function, after the messages of the chunk were fetched.

        Args:
            given_up: whether the task is leaving the process; then the wait ends.

        Raises:
            RetriableError: it is not there, and the calls may not begin without it: the task goes back to R1.
        """
        ...
