"""What a task tells the log of single messages: which one became an error, is called again, or is given up.

An error message is told when its batch is committed, so a batch that is called again is told once. Of a batch no more
is kept than the log may say (`observe.log.LINES`), and nothing is done for a message that succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cues_kafka.core.hashing import delivery_hash
from cues_kafka.observe.log import LINES, Logger, Sparing
from cues_kafka.ports import Coordinates, WireMessage
from cues_kafka.runtime.calling.failures import Failure, location, show

if TYPE_CHECKING:
    from cues_kafka.runtime.calling.batch import Batch

MOST_TEXT = 500
"""Characters of an exception's text in a line; its error message has more of it."""


def place(taken: Sequence[tuple[int, WireMessage]]) -> str:
    """Where the messages of a step stand: ``orders/3 at 17``, with commas between those of a join."""
    return ", ".join(f"{m.topic()}/{m.partition()} at {m.offset()}" for _, m in taken)


def note(failure: Failure, error: BaseException, consumed: Sequence[Coordinates]) -> dict[str, Any]:
    """Keys and values that say which step failed, and how."""
    spec = failure.batch.spec
    return {
        "at": place(failure.taken),
        "hash": delivery_hash(spec.graph, spec.processor, consumed).hex(),
        "kind": failure.kind,
        "error": show(error)[:MOST_TEXT],
        "where": location(error),
    }


class Teller:
    """Writes the lines of one task."""

    __slots__ = ("_log", "_sparing")

    def __init__(self, log: Logger, task: str) -> None:
        self._log = log.bind(task=task)
        self._sparing = Sparing(self._log)

    def committed(self, batch: Batch, now_s: float) -> None:
        """These steps ended, and their error messages are there to be read."""
        lost = [one for one in batch.notes if one["kind"] == "quarantine"]
        for one in lost:
            self._log.error("quarantined", at=one["at"], hash=one["hash"], deaths=batch.starts)
        if others := batch.errors - len(lost):
            self._sparing.warning("error message", [one for one in batch.notes if one not in lost], others, now_s)

    def retry(self, about: Mapping[str, Any], attempt: int, pause_s: float, now_s: float) -> None:
        """A step is called again after a pause."""
        self._sparing.info("retry", {**about, "attempt": attempt, "again_in_s": round(pause_s, 3)}, now_s)

    def catch_up(self, now_s: float, *, at_once: bool = False) -> None:
        """Say what was left out, where it is time for that."""
        if self._sparing.held:
            self._sparing.catch_up(now_s, at_once=at_once)


__all__ = ["LINES", "Teller", "note"]
