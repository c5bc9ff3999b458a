"""The verbs of the page of tasks: pause and resume, as the commands do them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.cli.pause import held_lines, pause_lines, resume_lines
from cues_kafka.operate.pausing import Pausing
from cues_kafka.ui.actions import JobOutcome, JobWork, RunningJob, Verb, only, text_of

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.plan.topics import Sides
    from cues_kafka.ports.broker import Broker

WAIT_S: Final = 60.0
"""How long a job waits until tasks have paused; the default of the command."""


class PauseVerbs:
    """
    Pauses processors, and resumes them.

    Args:
        graph: the graph.
        broker: where it runs.
        sides: what the settings of the cluster say.
    """

    def __init__(self, graph: Graph, broker: Broker, sides: Sides) -> None:
        self._graph, self._broker, self._sides = graph, broker, sides

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """The verbs of this page, by name."""
        return {"pause": self._pause, "resume": self._resume}

    def _pause(self, given: Mapping[str, Any], who: str) -> JobWork:
        processor = _processor(given)

        def run(tool: Pausing, job: RunningJob) -> JobOutcome:
            left = tool.pause(processor, timeout_s=WAIT_S, tell=job.say, ended=job.ended)
            return JobOutcome(pause_lines(self._graph.name, processor, left), not left)

        return self._work(f"pause of {processor or 'all processors'}", who, run)

    def _resume(self, given: Mapping[str, Any], who: str) -> JobWork:
        processor = _processor(given)

        def run(tool: Pausing, _: RunningJob) -> JobOutcome:
            done = tool.resume(processor)
            lines = resume_lines(self._graph.name, tool.names, done)
            return JobOutcome([*lines, *held_lines(self._graph.name, done)], not done.held)

        return self._work(f"resume of {processor or 'all processors'}", who, run)

    def _work(self, what: str, who: str, do: Callable[[Pausing, RunningJob], JobOutcome]) -> JobWork:
        def run(job: RunningJob) -> JobOutcome:
            by = f"{getpass.getuser()}@{socket.gethostname()} for {who} in the browser view"
            with closing(Pausing(self._graph, self._broker, who=by, sides=self._sides)) as tool:
                return do(tool, job)

        return JobWork(what, run)


def _processor(given: Mapping[str, Any]) -> str | None:
    only(given, "processor")
    return text_of(given, "processor")
