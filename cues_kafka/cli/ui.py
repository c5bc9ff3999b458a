"""``cues-kafka ui``: show a graph in a browser."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from cues_kafka.brokers.secrets import without_user
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Target, interrupts, pasteable
from cues_kafka.cli.printing import say
from cues_kafka.words import at_address

epilog = """
\b
Examples:
  cues-kafka ui shop:graph
  cues-kafka ui shop:graph --port 8080 --bootstrap localhost:9092
  # on another machine, through SSH
  ssh -L 8080:127.0.0.1:8080 server cues-kafka ui shop:graph --port 8080
  # behind a proxy with TLS
  cues-kafka ui shop:graph --host 0.0.0.0 --port 8080 --behind-proxy

The command prints an address with a token, which opens the view until the
command ends. It only reads, as `status`, `errors list`, `tail` and `lineage` do: it
joins no group and changes nothing.

Exits with 0 at Ctrl-C or SIGTERM, with 1 if the cluster cannot be reached at the
start and the graph has patterns, and with 2 if the graph or a setting is wrong.
"""


def ui(
    target: Target,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen here.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Listen on this port; 0 takes a free one.")] = 0,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy with TLS is in front, so other addresses are allowed.")
    ] = False,
    cluster: ClusterOptions,
) -> None:
    """
    Show a running graph in a browser.

    The view has the graph with its lag, the tasks and their last hour, the open
    error messages, messages with their lineage, and entries of stores.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.look.status import StatusView
    from cues_kafka.plan.topics import Sides
    from cues_kafka.task.making.patterns import on_cluster
    from cues_kafka.ui.answers import questions
    from cues_kafka.ui.folding import folded
    from cues_kafka.ui.layout import picture
    from cues_kafka.ui.poller import Poller
    from cues_kafka.ui.server import Address, ViewServer

    address = Address(host, port, behind_proxy)
    settings = cluster.load()
    kafka = settings.kafka()
    bootstrap = without_user(str(settings["bootstrap"]))

    def text(line: str) -> str:
        return pasteable(at_address(line, bootstrap), target)

    with closing(open_broker(kafka)) as broker:
        graph = on_cluster(load_graph(target), broker)
        drawn = picture(graph)
        with (
            StatusView(graph, broker, sides=Sides.of(kafka)) as view,
            closing(Poller(drawn, view.look, text)) as poller,
        ):
            asked = questions(graph, broker, kafka, text)
            asked |= {
                "/api/graph": lambda given: folded(drawn, given.get("fold", "").split(",")),
                "/api/history": lambda given: poller.history.of(given.get("task", "")),
            }
            with interrupts() as ended, closing(ViewServer(address, poller.newest, asked)) as server:
                poller.start()
                server.start()
                say(f"{graph.name} on {settings.address}: {server.url}")
                ended.wait()
