"""Finds the topics of patterns: when a graph starts, and while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.errors import CuesError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.patterns import expanded, new_copies
from cues_kafka.observe.log import get_logger
from cues_kafka.plan.topics import orphans
from cues_kafka.ports.broker import Broker

log = get_logger("cues_kafka.patterns")


class Resolved(NamedTuple):
    """
    A graph whose patterns are topics.

    Attributes:
        graph: the one that runs.
        only: names of the processors to run, those of copies in the place of templates; None: all.
        new: names of processors that are new, not renamed, those of copies for new topics among them.
    """

    graph: Graph
    only: Sequence[str] | None
    new: Sequence[str]


def on_cluster(graph: Graph, broker: Broker) -> Graph:
    """
    The graph with the topics that are there now in the place of patterns; without a pattern the graph itself.

    Raises:
        BrokerError: the cluster does not answer.
        GraphError: see `Graph.resolve`.
    """
    return graph.resolve(broker.partitions()) if graph.patterns else graph


def resolved(graph: Graph, broker: Broker, only: Sequence[str] | None, new: Sequence[str]) -> Resolved:
    """
    The same for a start, with the names that it was given.

    Raises:
        BrokerError: the cluster does not answer.
        GraphError: see `Graph.resolve`.
    """
    if not graph.patterns:
        return Resolved(graph, only, new)
    listed = broker.partitions()
    found = graph.resolve(listed)
    fresh = new_copies(graph, listed, [*orphans(found, listed).values()])
    chosen = None if only is None else expanded(graph, listed, only)
    return Resolved(found, chosen, [*expanded(graph, listed, new), *fresh])


def resolved_at(graph: Graph, options: Options, only: Sequence[str] | None, new: Sequence[str]) -> Resolved:
    """
    The same, on a cluster that is not open yet.

    Raises:
        BrokerError: the cluster does not answer.
        GraphError: see `Graph.resolve`.
    """
    if not graph.patterns:
        return Resolved(graph, only, new)
    broker = open_broker(options)
    try:
        return resolved(graph, broker, only, new)
    finally:
        broker.close()


class PatternLook:
    """Looks for new topics of a graph's patterns, on a thread of its own, and has workers made for them."""

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        chosen: Sequence[str] | None,
        running: Callable[[], Collection[str]],
        grow: Callable[[], None],
    ) -> None:
        """
        Args:
            graph: the template.
            broker: the cluster.
            chosen: names of the processors that were to run here; None: all.
            running: names of the processors that run here.
            grow: makes workers for the topics that are there now; called when there is a new one.
        """
        self._graph = graph
        self._broker = broker
        self._chosen = graph.all_processors if chosen is None else chosen
        self._running = running
        self._grow = grow
        self._every_s = min(one.look_seconds for one in graph.patterns.values())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="patterns", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for workers that are being made."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Look once. What fails is logged, and tried again at the next look."""
        try:
            wanted = expanded(self._graph, self._broker.partitions(), self._chosen)
            if set(wanted) - set(self._running()):
                self._grow()
        except CuesError as error:
            log.warning("new topics not read", why=str(error))

    def _loop(self) -> None:
        while not self._ended.wait(self._every_s):
            self.look()
