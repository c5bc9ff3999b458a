"""``cues-kafka lineage``: the messages that a message was made of, or those that were made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import as_tools_of, at_least
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.broker import Broker
    from cues_kafka.ports.log import TopicPartition

epilog = """
\b
Examples:
  cues-kafka lineage shop.bills/0@17
  cues-kafka lineage shop.errors/2@4711 --json | jq .inputs
  cues-kafka lineage shop.totals/0@9 --most 20 --bootstrap localhost:9092
  # also the changed entries of stores, and the effects
  cues-kafka lineage shop.bills/0@17 --changes --graph shop:graph
  # the other way: what became of a message
  cues-kafka lineage shop.orders/0@17 --forward --graph shop:graph
  # on a secured cluster, as the user of a verifier
  cues-kafka lineage shop.bills/0@17 --graph shop:graph --profile verifier

The command finds the ancestors by the provenance headers of the messages, so it
needs no graph. --changes reads the records and changelogs of the tasks; with
--graph also the graph's databases and stores of files. --forward looks for the
headers that name the message, in all topics that the graph writes; it does not
find what a timer or a replay made later. On a secured cluster, log in as the
verifier of the graph that --graph names. Exits with 2 if the message does not
exist, and with 1 if the cluster cannot be read.
"""


def lineage(
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC/P@OFFSET", hidden=True, help="The message: orders/3@17 is offset 17 of partition 3."
        ),
    ],
    *,
    most: Annotated[
        int, typer.Option("--most", metavar="N", callback=at_least(1), help="Look at this many messages at most.")
    ] = 1_000,
    graph: Annotated[str, typer.Option(metavar="MODULE:GRAPH", help="Read as the verifier of this graph.")] = "",
    changes: Annotated[
        bool, typer.Option("--changes", help="Also show changed entries of stores and, with --graph, effects.")
    ] = False,
    forward: Annotated[
        bool, typer.Option("--forward", help="Show what became of the message instead; needs --graph.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tree as JSON.")] = False,
    cluster: ClusterOptions,
) -> None:
    """
    Show where a message comes from.

    Prints a tree of the messages that it was made of, back to the sources.
    An ancestor that was deleted since is shown with its place.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.look.lineage import parse_place
    from cues_kafka.task.making.patterns import on_cluster

    if forward and (changes or not graph):
        raise ConfigError("--forward needs --graph, whose tasks are followed, and does not go with --changes.")
    topic, offset = parse_place(place)
    declared = load_graph(graph) if graph else None
    broker = open_broker(cluster.kafka())
    try:
        declared = on_cluster(declared, broker) if declared else None
        with as_tools_of(graph):
            if forward and declared is not None:
                data, lines = _became(broker, topic, offset, most, declared)
            else:
                data, lines = _came(broker, topic, offset, most, declared, changes=changes)
    finally:
        broker.close()
    if as_json:
        say_lines(json.dumps(data, indent=2))
    else:
        for line in lines:
            say(line)


def _came(
    broker: Broker, topic: TopicPartition, offset: int, most: int, graph: Graph | None, *, changes: bool
) -> tuple[dict[str, Any], Iterable[str]]:
    """Where a message comes from, as data and as lines."""
    from cues_kafka.operate.look.lineage import lineage as walk
    from cues_kafka.operate.look.lineage_lines import tree

    root = walk(broker, topic, offset, most=most, graph=graph, changes=changes)
    return root.to_dict(), tree(root)


def _became(
    broker: Broker, topic: TopicPartition, offset: int, most: int, graph: Graph
) -> tuple[dict[str, Any], Iterable[str]]:
    """What became of a message, as data and as lines."""
    from cues_kafka.operate.look.descendants import Effort, descendants
    from cues_kafka.operate.look.lineage_lines import descent_tree

    found = descendants(broker, graph, topic, offset, Effort(most))
    return {**found.root.to_dict(), "ended": found.ended}, descent_tree(found)
