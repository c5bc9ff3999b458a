"""The order of what takes part in a task, with the reasons. The next participant is one file and one row here.

At each moment the participants come in this order, the first one being the outermost. What is ended or taken back goes
the other way round, see `participant`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cues_kafka.task.parts.participant import Participant

ORDER: Final = {
    "Keys": "it looks at messages before anything is told of them, and stops before a misplaced one",
    "Handling": "it calls the steps before a failed one again, so it is around all that counts or undoes steps; what "
    "it held back is added to stores, so before these are sealed",
    "Tracing": "a span is around everything that a step does, its calls too",
    "Tailing": "tailers move as soon as the function is called; where they stand is a copy, before targets commit it",
    "Timing": "timers that are due come before messages (rule F2), and so before replays",
    "ReplayRequests": "requests come where nothing else is due (rule Y3)",
    "Storing": "a recovery reads the task's own state first; the steps of a batch are in it before it is sealed",
    "SinkBatches": "it sends what a batch has collected as late as it can, before Kafka's commit",
    "Following": "a table is read to its end before anything of this task is written in a recovery",
    "Awaiting": "a chunk waits for its tables once all is read, and before a database holds locks for it",
    "JournaledCalls": "the answers of a step are deleted with its outcome, so once that is known",
    "Trailing": "its records are those of all steps of the batch, so a target commits them with it (rule E1)",
    "Undivided": "the same holds for what belongs to all messages of a call",
    "Committing": "a target commits the whole attempt with all records of the batch (rule E1): none is added later",
}
"""By the name of the class, because some of them need the package of an extra."""

_RANKS: Final = {name: rank for rank, name in enumerate(ORDER)}


def arranged(parts: Iterable[Participant | None]) -> tuple[Participant, ...]:
    """These participants in their order; None is left out."""
    return tuple(sorted((one for one in parts if one is not None), key=_rank))


def _rank(part: Participant) -> int:
    return next(_RANKS[kind.__name__] for kind in type(part).__mro__ if kind.__name__ in _RANKS)
