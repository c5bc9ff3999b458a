"""`connect`: sends and reads without running a graph."""

from __future__ import annotations

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.graph.definition import Graph
from cues_kafka.runtime.client import Client


class Connection(Client):
    """A `Client` that owns its broker."""

    def close(self) -> None:
        """Release the clients and the broker."""
        super().close()
        self._broker.close()


def connect(options: Kafka | Memory, graph: Graph | None = None) -> Connection:
    """Make a client for programs that run no graph. It uses the codecs of `graph`; without one, JSON."""
    return Connection(open_broker(options), graph, cluster=options)
