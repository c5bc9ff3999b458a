"""``cues-kafka plan``: what a graph is on the cluster, before anything is created."""

from __future__ import annotations

from typing import Annotated

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.errors import ConfigError

epilog = """Examples:\n\n
    cues-kafka plan shop:graph\n\n
    cues-kafka plan path/shop.py:graph --offline\n\n
    cues-kafka plan shop:graph --apply           # create topics, add partitions to the framework's own\n\n
    Exits with 1 when the graph must not run on this cluster."""


def plan(
    target: Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="shop:graph, or path/shop.py:graph.")],
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no cluster.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Create topics and add partitions as printed.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """Print tasks, names, topics to create, and the permissions that are needed."""
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan import plan as plan_graph
    from cues_kafka.plan import topics_to_ask

    if offline and apply:
        raise ConfigError("--apply needs the cluster. Drop --offline.")
    graph = load_graph(target)
    if offline:
        typer.echo(str(plan_graph(graph)))
        return
    from cues_kafka.brokers.open import open_broker

    broker = open_broker(load({"bootstrap": bootstrap}, profile=profile, file=file).kafka())
    try:
        planned = plan_graph(graph, broker.facts(topics_to_ask(graph)), listed=broker.partitions())
        typer.echo(str(planned))
        if planned.refusals:
            raise typer.Exit(1)
        if apply:
            from cues_kafka.runtime.maintenance import apply_plan

            apply_plan(planned, broker)
            typer.echo(f"\nApplied: {len(planned.create)} topics created, {len(planned.grow)} given more partitions.")
    finally:
        broker.close()
