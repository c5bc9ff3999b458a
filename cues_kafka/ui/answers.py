"""The questions of the pages, by path, and what answers each."""

from __future__ import annotations

from cues_kafka.brokers.options import Options
from cues_kafka.graph.definition import Graph
from cues_kafka.ports.broker import Broker
from cues_kafka.ui.errors import ErrorAnswers
from cues_kafka.ui.lineage import LineageAnswers
from cues_kafka.ui.messages import MessageAnswers
from cues_kafka.ui.server import Question
from cues_kafka.ui.stores import StoreAnswers


def questions(graph: Graph, broker: Broker, cluster: Options, errors: ErrorAnswers) -> dict[str, Question]:
    """
    What asks the cluster when a page asks.

    Args:
        graph: the graph.
        broker: where it runs.
        cluster: its settings.
        errors: answers about error messages.
    """
    messages = MessageAnswers(graph, broker, cluster)
    paths = LineageAnswers(graph, broker)
    stores = StoreAnswers(graph, broker, cluster)
    return {
        "/api/errors": lambda _: errors.causes(),
        "/api/error": lambda given: errors.show(given.get("place", "")),
        "/api/topics": lambda _: messages.topics(),
        "/api/messages": messages.newest,
        "/api/path": lambda given: paths.path(given.get("place", "")),
        "/api/stores": lambda _: stores.stores(),
        "/api/entry": stores.look_up,
    }
