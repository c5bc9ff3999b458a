"""``cues-kafka pause`` and ``cues-kafka resume``: pause processors of a running graph, and resume them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import INTERRUPTED, begin
from cues_kafka.cli.options import BROKEN, Target, interrupts
from cues_kafka.cli.printing import say
from cues_kafka.errors import ConfigError

if TYPE_CHECKING:
    from cues_kafka.operate.pausing import Pausing, Resumed

pause_epilog = """
\b
Examples:
  cues-kafka pause shop:graph
  cues-kafka pause shop:graph check
  cues-kafka pause shop:graph check --timeout 300

A paused task finishes its batch, commits it, and keeps its partition. The pause
lasts until `cues-kafka resume`, also across restarts. Ctrl-C stops waiting, but
the pause stays.

Exits with 0 when every task is paused, 1 if some tasks are not paused in time
(prints their names), and 2 if the graph or a setting is wrong.
"""

resume_epilog = """
\b
Examples:
  # everything that is paused
  cues-kafka resume shop:graph
  cues-kafka resume shop:graph check
  # also end an incomplete reset, if no task was moved yet
  cues-kafka resume shop:graph --reset

Workers continue within a second. Without a processor, the command also deletes
unreadable records on the control topic. Exits with 1 if tasks are still held
back, or the cluster does not answer, and with 2 if the graph or a setting is
wrong.
"""

Which = Annotated[
    str | None, typer.Argument(metavar="PROCESSOR", hidden=True, help="Only this processor [default: all].")
]


def pause(
    target: Target,
    processor: Which = None,
    *,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the tasks.")] = 60.0,
    cluster: ClusterOptions,
) -> None:
    """Pause a running graph, or one of its processors."""
    if not timeout > 0:
        raise ConfigError(f"--timeout {timeout:g}: takes a number of seconds above 0.")
    with _pausing(target, cluster) as (name, tool), interrupts() as ended:
        left = tool.pause(processor, timeout_s=timeout, tell=lambda text: say(f"{name}: {text}"), ended=ended)
        *lines, last = pause_lines(name, processor, left)
        for line in lines:
            say(line)
        if not left:
            say(last)
            return
        say(last, fg="red", err=True)
        raise typer.Exit(INTERRUPTED if ended.is_set() else BROKEN)


def pause_lines(name: str, processor: str | None, left: Mapping[str, str]) -> list[str]:
    """
    What came of a pause, for people.

    Args:
        name: of the graph.
        processor: which one; None: all.
        left: the tasks that have not paused, with the reason.
    """
    what = processor or "all processors"
    if not left:
        return [f"{name}: {what} paused; `cues-kafka resume` lets it go on"]
    return [
        *(f"{task} has not paused: {why}" for task, why in left.items()),
        f"{name}: the pause of {what} stays; not every task has paused yet",
    ]


def resume(
    target: Target,
    processor: Which = None,
    *,
    reset: Annotated[bool, typer.Option("--reset", help="Also cancel an incomplete reset.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --reset: even if tools have moved tasks.")] = False,
    cluster: ClusterOptions,
) -> None:
    """Resume a graph, or one of its processors."""
    if reset and processor is not None:
        raise ConfigError("--reset: a reset holds the whole graph. Leave the processor out.")
    with _pausing(target, cluster) as (name, tool):
        begin()
        done = tool.resume(processor, reset=reset, sure=yes)
        for line in resume_lines(name, tool.names, done):
            say(line)
        for line in held_lines(name, done):
            say(line, fg="red", err=True)
            raise typer.Exit(BROKEN)


def resume_lines(name: str, known: Sequence[str], done: Resumed) -> Iterator[str]:
    """
    What was taken back, for people.

    Args:
        name: of the graph.
        known: its processors.
        done: what `Pausing.resume` gave.
    """
    for hold in done.holds:
        what = hold.processor or "all processors"
        if hold.processor in (None, *known):
            now = "is not paused any longer" if done.held else "goes on"
            yield f"{name}: {what} {now}; it was {hold}"
        else:
            yield f"{name}: the pause of {what!r} is taken back, which the graph does not have; it was {hold}"
    if done.pause is not None:
        yield f"{name}: the pause by {done.pause.by} for cut {done.pause.cut!r} is taken back"
    for one in done.refused:
        yield f"{name}: deleted {one}; it held nothing"
    if done.reset:
        yield f"{name}: the reset that was not complete is taken back"
    if not done.any and not done.held:
        yield f"{name}: nothing is paused"


def held_lines(name: str, done: Resumed) -> list[str]:
    """Why tasks are held still; empty: nothing holds them."""
    return [f"{name}: not everything goes on: {done.held}"] if done.held else []


@contextmanager
def _pausing(target: str, cluster: ClusterOptions) -> Iterator[tuple[str, Pausing]]:
    """The name of the graph, and what pauses it."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.pausing import Pausing
    from cues_kafka.plan.topics import Sides
    from cues_kafka.task.making.patterns import on_cluster

    graph = load_graph(target)
    kafka = cluster.kafka()
    broker = open_broker(kafka)
    try:
        graph = on_cluster(graph, broker)
        tool = Pausing(graph, broker, who=f"{getpass.getuser()}@{socket.gethostname()}", sides=Sides.of(kafka))
        try:
            yield graph.name, tool
        finally:
            tool.close()
    finally:
        broker.close()
