"""The control topic of a graph, and the cuts that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import control_topic, group_id, quoted, tools_group
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Sender
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.records.control import Control, GraphCut
from cues_kafka.records.scanning import read_all

WRITE_S: Final = 15.0
"""How long a record of the control topic may take."""


class ControlTopic:
    """
    The control topic of a graph, as tools read and write it.

    Args:
        graph: the graph.
        broker: the cluster.
        facts: what the cluster says of it; None: ask.
        for_cuts: the graph must take cuts; else a topic for pauses will do.

    Raises:
        ConfigError: the graph takes no cuts, or its topic does not exist.
    """

    def __init__(
        self, graph: Graph, broker: Broker, facts: ClusterFacts | None = None, *, for_cuts: bool = True
    ) -> None:
        if graph.cuts is None and for_cuts:
            raise ConfigError(
                f'graph {graph.name!r} takes no cuts. Declare Graph(..., cuts="7 days"), then run `cues-kafka plan '
                "MODULE:GRAPH --apply` and restart the workers."
            )
        self.topic = control_topic(graph.name)
        found = (broker.facts([self.topic]) if facts is None else facts).topics
        if self.topic not in found:
            raise ConfigError(
                f"topic {self.topic!r} does not exist. Run `cues-kafka plan MODULE:GRAPH --apply`, then restart the "
                "workers, so that they follow it."
            )
        self._broker = broker
        # Whose rights the worker's role has, or else the operator's.
        self._group = group_id(graph.name, next(iter(graph.processors))) if for_cuts else tools_group(graph.name)
        self._sender: Sender | None = None

    def read(self) -> Control:
        """What it says now."""
        control = Control()
        control.feed(read_all(self._broker, self.topic, 1, group=self._group, passing="a control record"))
        return control

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write a record; None takes it back."""
        self._sender = self._sender or self._broker.sender(self._group)
        self._sender.send([(self.topic, 0, key, value, None, 0)], timeout_s=WRITE_S)

    def close(self) -> None:
        """Release the client."""
        if self._sender is not None:
            self._sender.close()


def cuts_of(graph: Graph, broker: Broker, *, tell: Callable[[str], None] = lambda _: None) -> list[GraphCut]:
    """
    The cuts of a graph, the oldest first; those that cannot be read are left out.

    Args:
        graph: the graph.
        broker: the cluster.
        tell: told of each cut that cannot be read.

    Raises:
        ConfigError: the graph takes no cuts, or its control topic does not exist.
    """
    control = ControlTopic(graph, broker).read()
    found = []
    for name in control.names:
        try:
            one = control.cut(name)
        except CodecError as error:
            tell(f"cut {name!r} cannot be read: {error}. `cues-kafka cuts MODULE:GRAPH --delete NAME` deletes it")
            continue
        found += [one] if one is not None else []
    return found


def delete_cut(graph: Graph, broker: Broker, name: str) -> None:
    """
    Delete a cut.

    Raises:
        ConfigError: there is no such cut, or a reset to it is not complete.
    """
    topic = ControlTopic(graph, broker)
    control = topic.read()
    if name not in control.names:
        raise ConfigError(no_such_cut(name, control))
    if control.resetting and wanted_by(control) == f"cut:{name}":
        raise ConfigError(
            f"a reset to cut {name!r} is not complete, and needs it. Run `cues-kafka reset MODULE:GRAPH --to "
            f"cut:{name} --yes` to its end first."
        )
    try:
        topic.write(control.key_of_cut(name), None)
    finally:
        topic.close()


def no_such_cut(name: str, control: Control) -> str:
    """The message of an error about a cut that a graph does not have."""
    return f"there is no cut {name!r}. The cuts of this graph are {quoted(control.names)}."


def wanted_by(control: Control) -> str:
    """Where a reset that is not complete moves the tasks: ``cut:NAME``."""
    try:
        reset = control.reset()
    except CodecError:
        return "a cut"
    return f"cut:{reset.cut}" if reset else ""
