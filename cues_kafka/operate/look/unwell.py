"""What tools that are also asked while no worker runs take from the verdict on a graph: `plan --records`, `verify`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from cues_kafka.errors import BrokerError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.look.seen import GraphStatus
from cues_kafka.operate.look.status import StatusView
from cues_kafka.plan.topics import Sides
from cues_kafka.plan.wellness import Unwell, is_well
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.words import at_address

SHUT_DOWN: Final = ("left", "no worker")
"""Kinds that are well after a shutdown, where nothing waits."""


DEADLY: Final = "killed its process at least"
"""In the text of a task that stopped at a message which killed its process, and that no errors topic takes (Q3)."""


class UnwellNow(NamedTuple):
    """
    What the verdict says to such a tool.

    Attributes:
        unwell: what is unwell now, whatever is deployed next.
        unseen: what could not be looked at, in full sentences.
        at_messages: the tasks that have stopped at a message that their function did not deliver.
    """

    unwell: tuple[Unwell, ...]
    unseen: tuple[str, ...] = ()
    at_messages: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; what may pass by itself counts as well."""
        return is_well(self.unwell)

    def of_processors(self, names: Collection[str]) -> UnwellNow:
        """What is about these processors, or about the graph as a whole."""
        whole = ("unreachable", "refused")
        kept = (one for one in self.unwell if one.kind in whole or one.name.partition("/")[0] in names)
        return self._replace(unwell=tuple(kept))

    def at(self, address: str) -> UnwellNow:
        """The same with the address of the cluster in the commands of its texts."""
        return self._replace(
            unwell=tuple(
                one._replace(what=at_address(one.what, address), remedy=at_address(one.remedy, address))
                for one in self.unwell
            )
        )

    def before_a_start(self, stops: Collection[str] = ()) -> UnwellNow:
        """
        What stands against a start of other code: a task that has stopped at a message does not.

        The code or the declaration to be started may be what lets it go on, which only a run shows. So it is a note.
        Whether a task goes on that has stopped at a message which killed its process, its record and the declaration
        show.

        Args:
            stops: the tasks that would stop with the declaration to be started, by their records.
        """
        return self._replace(unwell=tuple(self._before_a_start(one, stops) for one in self.unwell))

    def _before_a_start(self, one: Unwell, stops: Collection[str]) -> Unwell:
        if one.kind != "stopped" or one.name in stops:
            return one
        if one.name in self.at_messages:
            return one._replace(remedy=f"{one.remedy}; only a run shows whether it goes on", severity="note")
        if DEADLY in one.what:
            return one._replace(remedy="start what this plan is of: the task goes on with it", severity="note")
        return one

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each thing that is unwell, and for what was not seen."""
        return (*map(str, self.unwell), *self.unseen)


def ask(graph: Graph, broker: Broker, *, sides: Sides, clock: Clock | None = None) -> UnwellNow:
    """
    Ask what is unwell with a graph now.

    These are no faults to such a tool: a task without a worker for which no message waits (it was shut down), and a
    processor that never started (it is new).

    Raises:
        BrokerError: the cluster does not answer.
    """
    try:
        with StatusView(graph, broker, sides=sides, clock=clock) as view:
            seen = view.look()
    except BrokerError as error:
        if not error.forbidden:
            raise
        return UnwellNow((), (f"Not looked at: whether the graph is well now: {error}",))
    stopped = frozenset(one.task for one in seen.tasks if one.state == "stopped" and one.hash)
    return UnwellNow(tuple(_of(seen)), seen.unseen, stopped)


def _of(seen: GraphStatus) -> Iterator[Unwell]:
    tasks = {one.task: one for one in seen.tasks}
    for one in seen.unwell:
        task = tasks.get(one.name)
        explained = task is not None and bool(task.missing)
        waits = task is not None and bool(task.lag)
        if one.kind in SHUT_DOWN and not (explained or waits):
            continue
        if one.kind == "never started" and not explained:
            continue
        yield one
