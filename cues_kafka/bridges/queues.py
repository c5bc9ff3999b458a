"""What declarations of queues have in common: sources that are read behind a ledger, and their parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cues_kafka.bridges.ledger import Ledger
from cues_kafka.errors import GraphError

if TYPE_CHECKING:
    from cues_kafka.bridges.acked import Acked
    from cues_kafka.graph.message import Message


class LedgeredSource(ABC):
    """A declared source that is read by an `Acked`, which its `open` gives."""

    __slots__ = ()

    @abstractmethod
    def open(self) -> Acked:
        """Make what a process reads from. It connects when it is first read."""

    @abstractmethod
    def shown(self, message: str) -> str:
        """A message for people."""

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """See `ReplayableSource`; it is read by what `open` gives."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The message, counted from the first one that the feed has taken."""
        return self.shown(f"message {Ledger.read(place).taken}")


def several(given: str | Sequence[str], where: str) -> tuple[str, ...]:
    """
    One text or several, one for each part.

    Args:
        given: as it is declared; empty: none.
        where: the argument, for the error.

    Raises:
        GraphError: one of several is empty, or comes twice.
    """
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (None,)
    if not all(isinstance(one, str) for one in found) or len({*found}) < len(found):
        raise GraphError(f"{where}: takes a text, or several that differ.")
    if not isinstance(given, str) and not all(found):
        raise GraphError(f"{where}: one of them is empty. Leave it out.")
    return tuple(one for one in found if one)


def read_by(part: int, queues: Sequence[str], selectors: Sequence[str]) -> tuple[str, str]:
    """The queue and the selector of a part; the selector may be empty. There is one queue, or one selector at most."""
    return queues[part if len(queues) > 1 else 0], (selectors or ("",))[part if len(selectors) > 1 else 0]
