"""The books of `verify` for what state handlers held back.

Such a message names none of an input. Its provenance header says that it is number i of the n that an attempt drained,
and the totals of the task's newest record say how many there are in all.
"""

from __future__ import annotations

from cues_kafka.verify.ledger import OUTPUT, Marks, Track
from cues_kafka.verify.seen_parts import SeenParts


class Drains:
    """
    The drained messages of one task.

    Attributes:
        known: sequence number of its newest record; messages of later attempts are not judged.
        count: how many were seen, each once.
        duplicated: how many were seen again, or name another number of messages than the others of their attempt.
    """

    def __init__(self, known: int) -> None:
        self.known = known
        self.count = self.duplicated = 0
        self._seen: dict[int, tuple[int, SeenParts]] = {}  # by sequence: the number of messages, and those seen

    def track(self, sequence: int, strays: Marks) -> Track:
        """Where to note the drained messages of one attempt; headers that make no sense are among the strays."""
        return _Drained(self, sequence, strays)

    def note(self, sequence: int, index: int, count: int) -> None:
        """Note a message."""
        if sequence > self.known:
            return
        of, seen = self._seen.setdefault(sequence, (count, SeenParts()))
        if of != count or not seen.note(index):
            self.duplicated += 1
            return
        self.count += 1


class _Drained(Track):
    """The drained messages of one attempt in one partition of one topic."""

    __slots__ = ("_drains", "_sequence")

    def __init__(self, drains: Drains, sequence: int, strays: Marks) -> None:
        super().__init__(strays, OUTPUT, (0,))  # `ends`: every message goes through `several`
        self._drains, self._sequence = drains, sequence

    def several(self, part: bytes, where: bytes) -> None:
        """Note a message."""
        index, _, count = part.partition(b"/")
        if where != b"-" or not 0 <= int(index) < int(count):
            raise ValueError(part)
        self._drains.note(self._sequence, int(index), int(count))
