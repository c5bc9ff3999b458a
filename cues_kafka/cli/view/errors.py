"""The page of error messages."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.cli.options import pasteable
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Options
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.broker import Broker

KEPT_S: Final = 5.0
"""How long the count of error messages serves all pages: it reads their topics as a whole."""


class ErrorAnswers:
    """
    Answers about error messages, one at a time, as the commands `errors list` and `errors show` do.

    Args:
        target: what the user gave for MODULE:GRAPH.
        graph: the graph.
        broker: where it runs.
        cluster: its settings, for codecs with a registry.
    """

    def __init__(self, target: str, graph: Graph, broker: Broker, cluster: Options) -> None:
        self._target, self._graph, self._broker, self._cluster = target, graph, broker, cluster
        self._alone = threading.Lock()
        self._counted: tuple[float, dict[str, Any]] | None = None

    def causes(self) -> dict[str, Any]:
        """
        The causes of open error messages; those that were counted some seconds ago serve all pages.

        Raises:
            ConfigError: the graph has no errors topic.
            BrokerError: the cluster does not answer.
        """
        from cues_kafka.operate.repair.ask import Repairs
        from cues_kafka.operate.repair.filed import ALL
        from cues_kafka.ui.views import cause_rows

        with self._alone:
            if self._counted is None or time.monotonic() - self._counted[0] > KEPT_S:
                with Repairs(self._graph, self._broker) as tool:
                    found = {"causes": cause_rows(tool.causes(ALL)), "unreadable": tool.unreadable}
                self._counted = time.monotonic(), found
            return self._counted[1]

    def show(self, place: str) -> dict[str, Any]:
        """
        One error message, in the lines of `errors show`.

        Raises:
            ConfigError: there is no such error message of this graph.
            BrokerError: the cluster does not answer.
        """
        from cues_kafka.cli.errors import lines, payload_text
        from cues_kafka.operate.look.lineage import parse_place
        from cues_kafka.operate.repair.ask import Repairs

        if not place:
            raise ConfigError("name an error message, such as shop.errors/0@17.")
        at, offset = parse_place(place)
        with self._alone, Repairs(self._graph, self._broker) as tool:
            one = tool.show(at.topic, at.partition, offset)
        shown = lines(one, payload_text(one.message, self._graph, self._cluster))
        return {"lines": [pasteable(line, self._target) for line in shown]}
