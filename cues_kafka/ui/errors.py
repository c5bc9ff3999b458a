"""Open error messages by cause, and one of them, as `cues-kafka errors list` and `errors show` say them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from cues_kafka.brokers.options import Options
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.look.lineage import parse_place
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import ALL
from cues_kafka.operate.repair.shown import lines, payload_text
from cues_kafka.ports.broker import Broker
from cues_kafka.ui.turns import Turns
from cues_kafka.ui.views import Spreads, cause_rows

KEPT_S: Final = 5.0
"""How long the count of error messages serves all pages: it reads their topics as a whole."""


class ErrorAnswers:
    """
    Answers about error messages: one count at a time, and beside it one message, which need not wait for the count.

    Args:
        graph: the graph.
        broker: where it runs.
        cluster: its settings, for codecs with a registry.
        text: makes commands name the graph and the cluster.
    """

    def __init__(self, graph: Graph, broker: Broker, cluster: Options, text: Callable[[str], str]) -> None:
        self._graph, self._broker, self._cluster, self._text = graph, broker, cluster, text
        self._counting, self._showing = Turns(), Turns()
        self._lock, self._changes = threading.Lock(), 0
        self._counted: tuple[float, dict[str, Any]] | None = None

    def causes(self) -> dict[str, Any]:
        """
        The causes of open error messages; those that were counted some seconds ago serve all pages.

        Raises:
            ConfigError: the graph has no errors topic.
            BrokerError: the cluster does not answer.
            TooMany: others ask as well.
        """
        with self._counting:
            with self._lock:
                counted, changes = self._counted, self._changes
            if counted is not None and time.monotonic() - counted[0] <= KEPT_S:
                return counted[1]
            spreads = Spreads()
            with Repairs(self._graph, self._broker) as tool:
                causes = tool.causes(ALL, seen=spreads.add)
                found = {"causes": cause_rows(causes, spreads), "unreadable": tool.unreadable}
            with self._lock:
                if changes == self._changes:
                    self._counted = time.monotonic(), found
            return found

    def forget(self) -> None:
        """Count again at the next question: something was replayed or dropped. It waits for no count under way."""
        with self._lock:
            self._counted = None
            self._changes += 1

    def show(self, place: str) -> dict[str, Any]:
        """
        One error message, in the lines of `errors show`, and whether it can be replayed and dropped.

        Raises:
            ConfigError: there is no such error message of this graph.
            BrokerError: the cluster does not answer.
            TooMany: others ask as well.
        """
        if not place:
            raise ConfigError("name an error message, such as shop.errors/0@17.")
        at, offset = parse_place(place)
        with self._showing, Repairs(self._graph, self._broker) as tool:
            one = tool.show(at.topic, at.partition, offset)
        payload = payload_text(one.message, self._graph, self._cluster)
        waits = one.settled is None and one.asked is None
        return {
            "lines": list(lines(one, payload, text=self._text)),
            "replay": waits and not one.obstacle,
            "drop": waits and (one.droppable or not one.obstacle),
        }
