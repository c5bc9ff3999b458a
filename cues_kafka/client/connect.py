"""`connect`: sends and reads without running a graph."""

from __future__ import annotations

from cues_kafka.arguments import known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.client.client import Client
from cues_kafka.client.handles import named
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.task.making.patterns import on_cluster


class Connection(Client):
    """A `Client` that owns its broker."""

    def open(self) -> Connection:
        """Take the ids of the name, if it has one."""
        if self._handles.stable:
            try:
                self._handles.take_id()
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Release the clients and the broker."""
        super().close()
        self._broker.close()


@known_call(ConfigError)
def connect(options: Kafka | Memory, graph: Graph | None = None, *, name: str | None = None) -> Connection:
    """
    Make a client for programs that run no graph. It uses the codecs of `graph`; without one, JSON.

    Args:
        options: the cluster.
        graph: whose codecs, topics and stores it uses.
        name: names the client for good. A run with the same name ends what an earlier one left open, at once, and takes
            its place: the earlier one cannot write transactions any more. So give each program its own. It is needed
            for `sent` and for named tailers. None: readers wait for up to half a minute if the program is killed inside
            of a transaction.

    Raises:
        ConfigError: an argument is not what it takes, or the name has other characters than letters, digits, `_`, `-`
            and dots between them.
        GraphError: the graph has a pattern that matches what it writes.
        BrokerError: with a name, or with a graph that has a pattern: the cluster does not answer, or this user may not
            use the name.
    """
    if graph is not None and not isinstance(graph, Graph):
        raise ConfigError(
            f"connect(..., {graph!r:.80}): the second argument is the graph, not {type(graph).__name__}. Write "
            "connect(Kafka(...), Graph(...)), or leave it out to send and read JSON."
        )
    if name is not None:
        named(name, "connect(name=)")
    broker = open_broker(options)
    try:
        known = on_cluster(graph, broker) if graph else None
    except BaseException:
        broker.close()
        raise
    return Connection(broker, known, name=name, stable=name is not None, cluster=options).open()
