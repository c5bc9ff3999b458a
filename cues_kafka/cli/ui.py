"""``cues-kafka ui``: show a graph in a browser."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cues_kafka.brokers.secrets import without_user
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Target, interrupts, pasteable
from cues_kafka.cli.printing import say
from cues_kafka.errors import ConfigError
from cues_kafka.observe.log import get_logger
from cues_kafka.words import at_address

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Options
    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports.broker import Broker
    from cues_kafka.ui.memory import ViewMemory
    from cues_kafka.ui.passes import Passes
    from cues_kafka.ui.server import Address, ViewServer

log = get_logger("cues_kafka.ui")

epilog = """
\b
Examples:
  cues-kafka ui shop:graph
  cues-kafka ui shop:graph --port 8080 --bootstrap localhost:9092
  # on another machine, through SSH
  ssh -L 8080:127.0.0.1:8080 server cues-kafka ui shop:graph --port 8080
  # for others, with TLS
  cues-kafka ui shop:graph --host 0.0.0.0 --port 8443 --certificate cert.pem --key key.pem
  # behind a proxy with TLS
  cues-kafka ui shop:graph --host 0.0.0.0 --port 8080 --behind-proxy

The command prints an address with a token, which opens the view until the
command ends. A page that is open then comes back by itself when you start the
command again in the same way within a day; --log-out refuses it. The pages show
what `status`, `errors list`, `tail` and `lineage` show. They replay and drop
error messages, pause and resume, as these commands do, unless the view is
read-only: with --read-only, or where other machines reach it and
--allow-changes is missing. Ctrl-C ends the wait of a job: requests remain, and the
command says what was done and what was not. It ends at the latest half a minute
after the signal.

Exits with 0 at Ctrl-C or SIGTERM, with 1 if the cluster cannot be reached at the
start and the graph has patterns, and with 2 if the graph or a setting is wrong.
"""


def ui(
    target: Target,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen here.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Listen on this port; 0 takes a free one [default: that of the last time, or a free one].",
        ),
    ] = None,
    read_only: Annotated[
        bool | None,
        typer.Option(
            "--read-only/--allow-changes",
            help="Whether pages may change anything [default: they may, where only this machine reaches the view].",
        ),
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy with TLS is in front, so other addresses are allowed.")
    ] = False,
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="Answer with TLS: a certificate in PEM form, with those of its issuers.")
    ] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="The key of the certificate, in PEM form.")] = "",
    log_out: Annotated[bool, typer.Option("--log-out", help="Refuse pages that were opened before.")] = False,
    cluster: ClusterOptions,
) -> None:
    """
    Show a running graph in a browser.

    The view has the graph with its lag, the tasks and their last hour, the open
    error messages, messages with their lineage, and entries of stores.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.task.making.patterns import on_cluster
    from cues_kafka.ui.actions import READ_ONLY
    from cues_kafka.ui.memory import ViewMemory, memory_file
    from cues_kafka.ui.server import Address

    address = Address(host, port or 0, behind_proxy, certificate, key)
    closed = read_only if read_only is not None else not address.private
    settings = cluster.load()
    kafka = settings.kafka()
    bootstrap = without_user(str(settings["bootstrap"]))
    _log_to_stderr()

    def text(line: str) -> str:
        return pasteable(at_address(line, bootstrap), target)

    with closing(open_broker(kafka)) as broker:
        graph = on_cluster(load_graph(target), broker)
        # A page that may only look does not come back to a view that acts.
        kind = "" if address.private else "others", "read-only" if closed else ""
        memory = ViewMemory(memory_file(graph.name, bootstrap, host, *kind), forget=log_out)
        name = f"{graph.name} on {settings.address}"
        opening = _Opening(address, memory, port is not None)
        _serve(graph, broker, kafka, opening, text, name=name, refusal=READ_ONLY if closed else "")


class _Opening(NamedTuple):
    """
    Where the view listens, and what it keeps from one start to the next.

    Attributes:
        address: where.
        memory: what it keeps.
        chosen: whether the user gave the port; if not, it is that of the last time, or a free one.
    """

    address: Address
    memory: ViewMemory
    chosen: bool

    def listen(self, make: Callable[[Address, Passes], ViewServer]) -> ViewServer:
        """
        The server that `make` gives, which listens.

        Raises:
            ConfigError: it cannot listen there.
        """
        from cues_kafka.ui.passes import Passes

        passes = Passes(self.memory.secret)
        try:
            server = make(self.address if self.chosen else replace(self.address, port=self.memory.port), passes)
        except ConfigError:
            if self.chosen or not self.memory.port:
                raise
            server = make(self.address, passes)
        self.memory.remember(server.port)
        if self.memory.trouble:
            log.warning("open pages will not come back after a restart", why=self.memory.trouble)
        return server


def _serve(
    graph: Graph,
    broker: Broker,
    kafka: Options,
    opening: _Opening,
    text: Callable[[str], str],
    *,
    name: str,
    refusal: str,
) -> None:
    """
    Answer until SIGINT or SIGTERM, and then wait a bounded time for the job that runs; pages see its end.

    Args:
        graph: the graph.
        broker: where it runs.
        kafka: its settings.
        opening: where to listen.
        text: makes commands name the graph and the cluster.
        name: of graph and cluster, for people.
        refusal: why nothing is changed; empty: things are.
    """
    from cues_kafka.cli.view.pauses import PauseVerbs
    from cues_kafka.cli.view.repairs import RepairVerbs
    from cues_kafka.operate.look.status import StatusView
    from cues_kafka.plan.topics import Sides
    from cues_kafka.ui.actions import Actions, last_words
    from cues_kafka.ui.answers import questions
    from cues_kafka.ui.errors import ErrorAnswers
    from cues_kafka.ui.folding import folded
    from cues_kafka.ui.layout import picture
    from cues_kafka.ui.poller import Poller
    from cues_kafka.ui.server import ViewServer

    drawn, sides = picture(graph), Sides.of(kafka)
    with (
        StatusView(graph, broker, sides=sides) as view,
        closing(Poller(drawn, view.look, text, left=lambda: view.left)) as poller,
    ):
        errors = ErrorAnswers(graph, broker, kafka, text)
        repairs, pauses = RepairVerbs(graph, broker, errors.forget), PauseVerbs(graph, broker, sides)
        actions = Actions({**repairs.verbs, **pauses.verbs}, refusal=refusal, text=text)
        asked = questions(graph, broker, kafka, errors)
        asked |= {
            "/api/graph": lambda given: folded(drawn, given.get("fold", "").split(",")),
            "/api/commands": lambda _: {verb: text(f"cues-kafka {verb} MODULE:GRAPH") for verb in pauses.verbs},
            "/api/history": lambda given: poller.history.of(given.get("task", "")),
        }

        def server_at(address: Address, passes: Passes) -> ViewServer:
            return ViewServer(address, poller.newest, asked, actions=actions, passes=passes)

        with interrupts() as ended, closing(actions), closing(opening.listen(server_at)) as server:
            poller.start()
            server.start()
            say(f"{name}: {server.url}")
            ended.wait()
            for line in last_words(actions.close()):
                say(text(line), err=True)


def _log_to_stderr() -> None:
    """Print who opens the view, who is refused, and who changes what."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"))
    log = logging.getLogger("cues_kafka.ui")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
