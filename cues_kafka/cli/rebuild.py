"""``cues-kafka rebuild``: rebuild the stores of a processor from its input."""

from __future__ import annotations

import socket
import sys
from contextlib import closing, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.bars import progress_bar
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import begin
from cues_kafka.cli.maintenance import Name
from cues_kafka.cli.options import BROKEN, Target, Yes
from cues_kafka.cli.printing import say
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.operate.move.rebuild import Rebuild

"""Exit code after Ctrl-C, as shells have it."""

epilog = """
\b
Examples:
  # say how the entries of each task would change
  cues-kafka rebuild bank:graph add
  cues-kafka rebuild bank:graph add --yes
  # retention has deleted the oldest messages
  cues-kafka rebuild bank:graph add --allow-missing --yes
  cues-kafka rebuild bank:graph add --from 2026-11-01T00:00:00Z --yes

Stop the workers of the processor first. Exits with 1 if entries differ and
nothing was done, and with 2 if the graph or a setting is wrong.
"""


def rebuild(
    target: Target,
    processor: Name,
    *,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="earliest, or a time: leave messages before it out."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Continue without messages that are gone from the input.")
    ] = False,
    allow_strays: Annotated[
        bool,
        typer.Option("--allow-strays", help="Continue although messages wait in partitions that their keys have left."),
    ] = False,
    pure: Annotated[bool, typer.Option("--pure", help="Call the function even if it has effects or retries.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen, and exit with 0.")] = False,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Rebuild the stores of a processor from its input.

    Use it after the function was fixed, or the input got more partitions. The function is called for all messages
    that were delivered, and its outputs are discarded. Each task keeps its old entries until it has the new ones.
    """
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.move.rebuild import Rebuild
    from cues_kafka.task.making.system import System

    if yes and dry_run:
        raise ConfigError("--yes and --dry-run exclude each other")
    kafka = cluster.kafka()
    with opened(target, cluster) as (graph, broker):
        used = graph.processors[processor].call.context.items() if processor in graph.processors else ()
        factories = {name: graph.system[name] for name, place in used if place == "system"}
        with closing(System(factories)) as system:
            tool = Rebuild(
                *(graph, broker, processor),
                who=f"rebuild on {socket.gethostname()}",
                since=since,
                allow_missing=allow_missing,
                allow_strays=allow_strays,
                pure=pure,
                system=system.values,
                cluster=kafka,
            )
            with tool:
                differing = _run(tool, yes=yes)
    if yes:
        say(f"{processor}: {count(differing, 'task')} rebuilt")
    elif not differing:
        say(f"{processor}: nothing to do, the entries are what the function makes of the input")
    else:
        say("Nothing was changed. Add --yes to do it.", err=True)
        if not dry_run:
            raise typer.Exit(BROKEN)


def _run(tool: Rebuild, *, yes: bool) -> int:
    """Say what becomes of each task, and do it with `yes`; gives the number of tasks that differ, or were written."""
    found, told = 0, 0
    with progress_bar("reading") as tool.progress:
        if yes:
            begin()
            tool.hold()
        groups = tool.look()
        while True:
            with redirect_stdout(sys.stderr):  # what the function prints is no part of the report
                group = next(groups, None)
            for note in tool.notes[told:]:
                say(note)
            told = len(tool.notes)
            if group is None:
                return found
            for one in group:
                say(one.line)
            found += tool.write(group) if yes else sum(one.due for one in group)
