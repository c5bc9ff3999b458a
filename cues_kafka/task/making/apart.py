"""Databases and stores of files that do not answer at a start: their processors wait, and all others work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.errors import CuesError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.observer import BatchReport, RunFacts

log = get_logger("cues_kafka.start")

AT_START_S: Final = 10.0
"""For how long a start waits for a database or a store before its processors wait alone, in seconds."""

AGAIN_FIRST_S: Final = 1.0
AGAIN_MAX_S: Final = 15.0
"""How long the processors wait between two questions, in seconds: doubling from the first to the second."""


@dataclass(frozen=True, slots=True)
class Away:
    """
    A database or a store that has not answered.

    Attributes:
        where: how texts name it: the first processor that uses it, and the name there.
        processors: all processors of this process that use it.
        database: whether it is a database; else a store of files.
        why: what it, or the way to it, has said.
    """

    where: str
    processors: tuple[str, ...]
    database: bool
    why: str

    @property
    def what(self) -> str:
        """Why its processors wait, without a full stop."""
        return f"{self.where}: {self.why}"

    @property
    def remedy(self) -> str:
        """What to do."""
        what = "database" if self.database else "store"
        return f"bring the {what} back, or fix what it refuses; the processor then starts by itself"


class Apart:
    """
    Holds back the processors of databases and stores that do not answer, and prepares these as soon as they do.

    It takes part in a run as an observer that hears of its beginning and its end. Workers ask it from their threads.
    """

    def __init__(self, prepare: Callable[[Away, Collection[str]], None]) -> None:
        """`prepare` gets one that may answer by now, and the topics that the start has created; see `prepared`."""
        self._prepare = prepare
        self._created: Collection[str] = ()
        self._away: dict[str, Away] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.changed: Callable[[], None] = lambda: None

    def put(self, away: Away) -> None:
        """A start has asked this one, and it has not answered."""
        with self._lock:
            self._away[away.where] = away
        log.warning("held back", processors=", ".join(away.processors), why=away.what, remedy=away.remedy)

    def others(self, names: Sequence[str] | None, graph: Graph, created: Collection[str]) -> Sequence[str] | None:
        """Those of the processors that need not wait; None: all of the graph."""
        self._created = created
        with self._lock:
            waiting = {name for one in self._away.values() for name in one.processors}
        return [name for name in names or graph.all_processors if name not in waiting] if waiting else names

    def away(self, processor: str) -> Away | None:
        """What a processor waits for; None: it does not."""
        with self._lock:
            return next((one for one in self._away.values() if processor in one.processors), None)

    def over(self, held: Callable[[str], str]) -> Callable[[str], str]:
        """What holds processors back for any reason: this one, or those that `held` knows."""
        return lambda processor: one.what if (one := self.away(processor)) else held(processor)

    def began(self, run: RunFacts) -> None:
        del run
        if self._away:
            self._thread = threading.Thread(target=self._ask, name="apart", daemon=True)
            self._thread.start()

    def ended(self, failures: Mapping[str, str], *, abandoned: bool) -> None:
        """See `ports.RunObserver`. A question that is under way is not waited for: it ends with its time-out."""
        del failures, abandoned
        self._stopping.set()

    def _ask(self) -> None:
        again_s = AGAIN_FIRST_S
        while not self._stopping.wait(again_s):
            again_s = min(again_s * 2, AGAIN_MAX_S)
            for away in list(self._away.values()):
                self._ask_once(away)
            if not self._away:
                return

    def _ask_once(self, away: Away) -> None:
        try:
            self._prepare(away, self._created)
        except CuesError as error:
            said = Away(away.where, away.processors, away.database, cause_of(error))
            with self._lock:
                self._away[away.where] = said
            if said != away:
                log.warning("held back", processors=", ".join(away.processors), why=said.what, remedy=said.remedy)
        else:
            with self._lock:
                del self._away[away.where]
            log.warning("goes on", processors=", ".join(away.processors), why=f"{away.where} answers")
        self.changed()

    # What tasks do is not asked for.

    def committed(self, task: str, batch: BatchReport) -> None: ...

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None: ...

    def failed(self, task: str, why: str, round_: int) -> None: ...

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None: ...

    def recovered(self, task: str, after_s: float) -> None: ...


def cause_of(error: CuesError) -> str:
    """What the database or store has said, without the advice of a start that ends there."""
    cause = error.__cause__ if isinstance(error, RetriableError) else None
    return str(cause or error).rstrip(".")
