"""``cues-kafka drain`` and ``cues-kafka cuts``: cuts of a whole graph, to which it can be reset."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import INTERRUPTED, begin
from cues_kafka.cli.options import Target, interrupts, print_error
from cues_kafka.cli.printing import say
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.times import shown_time
from cues_kafka.words import count

drain_epilog = """
\b
Examples:
  # before an upgrade, while the workers run
  cues-kafka drain shop:graph --cut before-upgrade
  cues-kafka drain shop:graph --cut before-upgrade --timeout 60

The graph must declare how long cuts are kept: Graph(..., cuts="7 days"). `reset
--to cut:NAME` goes back to a cut. After Ctrl-C the workers continue at once,
and if this command is killed, within 30 s. Exits with 1 if no cut was taken,
and with 2 if the graph or a setting is wrong.
"""

cuts_epilog = """
\b
Examples:
  cues-kafka cuts shop:graph
  cues-kafka cuts shop:graph --delete before-upgrade

Exits with 1 if the cluster does not answer, and with 2 if the cut does not
exist, or the graph or a setting is wrong.
"""


def drain(
    target: Target,
    *,
    cut: Annotated[str, typer.Option("--cut", metavar="NAME", help="Name of the new cut.")],
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait until all messages are delivered.")
    ] = 300.0,
    cluster: ClusterOptions,
) -> None:
    """
    Quiesce a graph, take a cut (a snapshot), and resume it.

    Workers pause the processors that read from sources, and deliver the messages between processors. Then the cut is
    written: the position of each task and of its stores. The workers need not stop.
    """
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.cut.drain import Drain

    if not timeout > 0:
        raise ConfigError(f"--timeout {timeout:g}: takes a number of seconds above 0.")
    with opened(target, cluster) as (graph, broker), interrupts() as ended:
        tool = Drain(graph, broker, who=f"drain on {socket.gethostname()}")
        try:
            taken = tool.take(cut, timeout_s=timeout, tell=lambda text: say(f"{graph.name}: {text}"), ended=ended)
        except RecoveryError as error:
            if not ended.is_set():
                raise
            print_error(error)
            raise typer.Exit(INTERRUPTED) from None
        stores = sum(len(one.stores) for one in taken.processors.values())
        say(f"{graph.name}: cut {cut} is taken: {count(taken.tasks, 'task')}, {count(stores, 'store')}")


def cuts(
    target: Target,
    *,
    delete: Annotated[str | None, typer.Option(metavar="NAME", help="Delete this cut.")] = None,
    cluster: ClusterOptions,
) -> None:
    """List the cuts of a graph, or delete one."""
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.cut.control import cuts_of, delete_cut

    with opened(target, cluster) as (graph, broker):
        if delete is not None:
            begin()
            delete_cut(graph, broker, delete)
            say(f"{graph.name}: cut {delete} is deleted")
            return
        found = cuts_of(graph, broker, tell=lambda text: say(f"{graph.name}: {text}", err=True))
        for one in found:
            when, until = shown_time(one.at_ms), shown_time(one.at_ms + one.keeps_ms)
            say(f"{one.name}  {when}  {count(one.tasks, 'task')}  stores until {until}  {one.by}")
        if not found:
            say(f"{graph.name}: no cuts")
