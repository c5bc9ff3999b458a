"""``cues-kafka delete``: delete the topics and groups of a graph or a processor."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import begin
from cues_kafka.cli.options import BROKEN, WRONG, Target
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.operate.deleting import Deleting, Deletion

epilog = f"""
\b
Examples:
  # say what the graph has on the cluster; delete it if you type its name
  cues-kafka delete shop:graph
  cues-kafka delete shop:graph --confirm shop
  # one processor, also one that the graph no longer declares
  cues-kafka delete shop:graph check --confirm shop
  # all leftovers of removed processors and stores
  cues-kafka delete shop:graph --unused --confirm shop
  cues-kafka delete shop:graph --topic shop.clean --confirm shop

Stop the workers first. If the command is interrupted, run it again. Exits with
{BROKEN} if nothing was deleted, and with {WRONG} if the graph or a setting is
wrong.
"""


def delete(
    target: Target,
    processor: Annotated[
        str | None,
        typer.Argument(metavar="[PROCESSOR]", hidden=True, help="Only the topics and the group of this processor."),
    ] = None,
    *,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only this topic that the graph uses.")] = None,
    unused: Annotated[
        bool, typer.Option("--unused", help="Only leftovers of processors and stores that are no longer declared.")
    ] = False,
    data: Annotated[
        bool,
        typer.Option("--data", help="With the whole graph: also the topics that it writes or declares, with messages."),
    ] = False,
    confirm: Annotated[
        str | None, typer.Option(metavar="GRAPH", help="Delete it; the name of the graph, as typed at the prompt.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what would be deleted as JSON, and delete nothing.")
    ] = (False),
    cluster: ClusterOptions,
) -> None:
    """
    Delete what a graph has on the cluster.

    Prints the topics and groups first, and what stays. Then it asks for the name of the graph. The topics that your
    functions read and write stay, unless --data or --topic names them.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.deleting import Deleting
    from cues_kafka.task.making.patterns import on_cluster

    given = [name for name, one in (("PROCESSOR", processor), ("--topic", topic), ("--unused", unused)) if one]
    if len(given) > 1 or (given and data):
        raise ConfigError(f"{' and '.join([*given, *(['--data'] if data else [])])} exclude each other.")
    graph, found = load_graph(target), cluster.load()
    if confirm not in (None, graph.name):
        raise ConfigError(f"--confirm {confirm}: the graph's name is {graph.name!r}.")
    if not found.named:
        raise ConfigError(f"No cluster is named, so nothing is deleted at {found.address}. Name it with --bootstrap.")
    broker = open_broker(found.kafka())
    try:
        tool = Deleting(on_cluster(graph, broker), broker)
        planned = _planned(tool, processor, topic, unused=unused, data=data)
        if as_json:
            say_lines(json.dumps(planned.to_dict(), indent=2))
            return
        if planned.empty:
            say(f"{graph.name}: nothing to delete on {found.address}")
            return
        say_lines(f"Graph {graph.name} on {found.address}, to delete:\n")
        say_lines("\n".join(planned.lines()).replace("MODULE:GRAPH", target))
        if confirm is None and not _typed(graph.name):
            say_lines(f"\nNothing was deleted. Add --confirm {graph.name} to do it.", err=True)
            raise typer.Exit(BROKEN)
        _carry_out(tool, planned)
    finally:
        broker.close()


def _carry_out(tool: Deleting, planned: Deletion) -> None:
    begin()
    tool.carry_out(planned, tell=say)


def _planned(tool: Deleting, processor: str | None, topic: str | None, *, unused: bool, data: bool) -> Deletion:
    if processor is not None:
        return tool.processor(processor)
    if topic is not None:
        return tool.topic(topic)
    return tool.unused() if unused else tool.whole(data=data)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _typed(name: str) -> bool:
    """Whether a person at a terminal types the name."""
    if not _at_a_terminal():
        return False
    return str(typer.prompt(f"\nType {name} to delete all of this", default="", show_default=False)) == name
