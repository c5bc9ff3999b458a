"""``cues-kafka plan``: what a graph is on the cluster, before anything is created."""

from __future__ import annotations

from typing import Annotated

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile

epilog = """Examples:\n\n
    cues-kafka plan shop:graph\n\n
    cues-kafka plan path/shop.py:graph --offline\n\n
    Exits with 1 when the graph must not run on this cluster."""


def plan(
    target: Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="shop:graph, or path/shop.py:graph.")],
    offline: Annotated[bool, typer.Option("--offline", help="Ask no cluster.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """Print tasks, names, topics to create, and the permissions that are needed."""
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan import plan as plan_graph
    from cues_kafka.plan import topics_to_ask

    graph = load_graph(target)
    facts = None
    if not offline:
        from cues_kafka.brokers.open import open_broker

        broker = open_broker(load({"bootstrap": bootstrap}, profile=profile, file=file).kafka())
        try:
            facts = broker.facts(topics_to_ask(graph))
        finally:
            broker.close()
    planned = plan_graph(graph, facts)
    typer.echo(str(planned))
    if planned.refusals:
        raise typer.Exit(1)
