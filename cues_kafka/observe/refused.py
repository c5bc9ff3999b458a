"""Records on topics of ours that a reader has refused, because they are none of ours: named in the log, and counted."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from cues_kafka.observe.log import Sparing, get_logger
from cues_kafka.ports.log import WireMessage

log = get_logger("cues_kafka.records")

EVENT: Final = "record refused"

REMEDY: Final = "find the program that writes to this topic, and revoke its right to write: docs/security.md"

REMEMBERED: Final = 10_000
"""How many records are remembered as named: a reader that reads again does not repeat them."""


class Refused:
    """
    Names each record once in the log, ten in ten seconds at most, and counts them; threads may share it.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sparing = Sparing(log)
        self._seen: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def note(self, message: WireMessage, what: str, why: str, remedy: str = REMEDY) -> None:
        """
        A reader has refused a record, and goes on behind it.

        Args:
            message: the record.
            what: it should be, with an article.
            why: it is none.
            remedy: what to do next.
        """
        self.note_at((message.topic() or "", message.partition() or 0, message.offset() or 0), what, why, remedy)

    def note_at(self, place: tuple[str, int, int], what: str, why: str, remedy: str = REMEDY) -> None:
        """The same by topic, partition and offset, for what the client does not give."""
        with self._lock:
            if place in self._seen:
                return
            self._seen[place] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            self._counts[place[0]] += 1
        at = f"{place[0]}/{place[1]} at {place[2]}"
        values = {"at": at, "is_not": what, "why": why, "remedy": remedy}
        self._sparing.warning(EVENT, [values], 1, self._clock())

    def forget(self) -> None:
        """Name each record again that is met again; the counts stay. For tests."""
        with self._lock:
            self._seen.clear()
            self._sparing = Sparing(log)

    @property
    def total(self) -> int:
        """How many records were refused."""
        with self._lock:
            return self._counts.total()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many records were refused, by topic."""
        with self._lock:
            return dict(self._counts)


REFUSED: Final = Refused()
"""That of this process, whose readers share it."""
