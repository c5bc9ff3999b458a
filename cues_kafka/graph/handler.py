"""State that a processor holds in objects of its own: what they do, and how they are declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Raw, Store

MAX_RESETS = 5
TIMEOUT_S = 180.0


class StateHandler(ABC):
    """
    An object that holds the state of one task: a model, a window, an index in a library's own memory.

    The function gets it by name, and changes it as it likes. Its methods are called on the thread that calls the
    function, never while the function runs, and never inside a transaction. IBM Streams calls this a state handler of a
    consistent region.
    """

    @abstractmethod
    def checkpoint(self) -> Iterable[tuple[bytes, bytes | None]]:
        """
        Give what has changed since the last call, as keys and values; None deletes the key.

        The changes are committed with the outputs and the place of the messages that made them. If that fails, `reset`
        comes next.
        """

    @abstractmethod
    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """
        Forget everything, and become what these entries say: all that was committed, in the order of the keys' bytes.

        It is called when the task comes to this process, when a transaction failed, and when the function raised.
        """

    def reset_to_initial(self) -> None:
        """Become what a task is that has committed nothing. Without a method of your own: `reset` with no entries."""
        self.reset(())

    def drain(self) -> Iterable[Any]:
        """
        Give what is held back, as the function would return it: before each commit, and before `checkpoint`.

        Such outputs name no message: `Totals.drained` counts them.
        """
        return ()

    def retire(self, sequence: int) -> None:  # noqa: B027 - who does not need it leaves it out
        """Learn that what the last `checkpoint` gave is committed, as the attempt with this sequence number."""


@known_arguments()
@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Handler(Store):
    """
    Declares a `StateHandler`: ``state={"model": Handler(Model)}``.

    Its entries are in a changelog, as those of a `Store`, and in memory, so that a reset need not read them again.

    Attributes:
        make: makes one for each task; a class without parameters, or a function.
        max_resets: how often in a row it is reset without a commit in between, before the task stops. A stopped task is
            tried again after a pause that doubles up to a minute.
        drain_timeout_s: how long `drain` and `checkpoint` together may take.
        reset_timeout_s: how long a reset may take. A method that takes longer has failed: it is not interrupted, but
            nothing of its batch is committed.
    """

    make: Callable[[], StateHandler]
    max_resets: int
    drain_timeout_s: float
    reset_timeout_s: float

    def __init__(
        self,
        make: Callable[[], StateHandler],
        *,
        max_bytes: int = 1024**3,
        per_task: bool = False,
        max_resets: int = MAX_RESETS,
        drain_timeout_s: float = TIMEOUT_S,
        reset_timeout_s: float = TIMEOUT_S,
    ) -> None:
        Store.__init__(self, Raw(), key=Raw(), max_bytes=max_bytes, per_task=per_task)
        given = {
            "make": make,
            "max_resets": max_resets,
            "drain_timeout_s": drain_timeout_s,
            "reset_timeout_s": reset_timeout_s,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        if not callable(make):
            raise GraphError(f"Handler({make!r}): takes a class, or a function, that makes a StateHandler.")
        if isinstance(make, type):
            if not issubclass(make, StateHandler):
                raise GraphError(
                    f"Handler({make.__name__}): is not a StateHandler. Write class {make.__name__}(StateHandler)."
                )
            if missing := sorted(getattr(make, "__abstractmethods__", ())):
                raise GraphError(f"Handler({make.__name__}): lacks {' and '.join(missing)}. Define it in the class.")
        if type(max_resets) is not int or max_resets < 1:
            raise GraphError(f"Handler(max_resets={max_resets!r}): takes a number of resets, such as {MAX_RESETS}.")
        for name in ("drain_timeout_s", "reset_timeout_s"):
            seconds = given[name]
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
                raise GraphError(f"Handler({name}={seconds!r}): takes seconds above 0, such as {TIMEOUT_S:g}.")
