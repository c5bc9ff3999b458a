"""The verbs of the page of error messages: replay and drop, as the commands do them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.cli.errors import Filters, late, told
from cues_kafka.cli.tables import WIDTH
from cues_kafka.errors import ConfigError
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ui.actions import JobOutcome, JobWork, RunningJob, Verb, flag_of, number_of, only, text_of

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.broker import Broker
    from cues_kafka.ports.log import TopicPartition
    from cues_kafka.records.requests import Wish

WAIT_S: Final = 60.0
"""How long a job waits until tasks have settled what was asked for."""


KEPT: Final = 100
"""Dry runs that can still be confirmed."""


class RepairVerbs:
    """
    Replays and drops error messages.

    Args:
        graph: the graph.
        broker: where it runs.
        changed: told that counts of error messages are no longer true.
    """

    def __init__(self, graph: Graph, broker: Broker, changed: Callable[[], None]) -> None:
        self._graph, self._broker, self._changed = graph, broker, changed
        self._numbers = itertools.count(1)
        self._counted: dict[int, Mapping[TopicPartition, int]] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """The verbs of this page, by name."""
        return {
            "replay": lambda given, _: self._work("replay", given),
            "drop": lambda given, _: self._work("drop", given),
        }

    def _work(self, wish: Wish, given: Mapping[str, Any]) -> JobWork:
        """
        What a page wants: one error message by its place, or those of a cause; see `errors replay --help`.

        Raises:
            ConfigError: it is not understood.
        """
        only(given, "place", "processor", "exception", "kind", "counted", "yes")
        place, yes = text_of(given, "place"), flag_of(given, "yes")
        filters = Filters(
            processor=text_of(given, "processor"), kind=text_of(given, "kind"), exception=text_of(given, "exception")
        )
        which = ", ".join(one for one in (place, filters.processor, filters.exception, filters.kind) if one)
        if not which:
            raise ConfigError("name an error message, or a processor, an exception or a kind.")
        wanted, below = filters.selection([place] if place else ()), self._below(number_of(given, "counted"))

        def run(job: RunningJob) -> JobOutcome:
            try:
                with Repairs(self._graph, self._broker) as tool:
                    result = tool.ask(wish, wanted, dry=not yes, progress=job.step("reading"), below=below)
                    done = True
                    if yes and result.open:
                        progress = job.step("settling", cuts=False)
                        done = tool.wait(result, timeout_s=WAIT_S, ended=job.ended, progress=progress)
                    lines = [*told(self._graph, tool, result, yes=yes, waited=yes, width=WIDTH)]
                    counted = None if yes else self._keep(tool.ends)
            finally:
                if yes:
                    self._changed()
            if not done:
                lines += late(self._graph.name, result.open)
            return JobOutcome(lines, done, {"dry": not yes, "asked": result.asked, "counted": counted})

        return JobWork(f"{wish} of {which}{'' if yes else ' (dry run)'}", run)

    def _keep(self, ends: Mapping[TopicPartition, int]) -> int:
        """The number of a dry run, with which a page confirms it. Times would not do: clocks of workers differ."""
        number = next(self._numbers)
        self._counted[number] = ends
        self._counted.pop(number - KEPT, None)
        return number

    def _below(self, counted: int | None) -> Mapping[TopicPartition, int] | None:
        """Where the error messages end that a dry run has counted; None: none is confirmed."""
        if counted is None:
            return None
        if (ends := self._counted.get(counted)) is None:
            raise ConfigError("what was counted is no longer known here. Ask again what would happen.")
        return ends
