"""``cues-kafka rename``: rename a processor, so that it continues under another name."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Target, Yes, say_first
from cues_kafka.cli.printing import say

epilog = """
\b
Examples:
  # say where each task would continue
  cues-kafka rename shop:graph check verdict
  cues-kafka rename shop:graph check verdict --yes

First shut the workers of the processor down gracefully, and declare its new
name: Processor(fn, name="verdict", renamed_from="check", ...). If the command
is interrupted, run it again. Exits with 1 if nothing was done, and with 2 if
the graph is wrong.
"""


def rename(
    target: Target,
    old: Annotated[str, typer.Argument(metavar="OLD", hidden=True, help="The current name of the processor.")],
    new: Annotated[str, typer.Argument(metavar="NEW", hidden=True, help="Its new name, as declared in this graph.")],
    *,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Rename a processor, so that it continues under another name.

    Its tasks keep their positions and counts, and nothing is delivered again. Until the command has finished,
    tasks of the old and the new version stop if they are started, and their error names this command.
    """
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.move.rename import Renaming

    with opened(target, cluster) as (graph, broker):
        tool = Renaming(graph, broker, old, new, who=f"rename on {socket.gethostname()}")
        planned = tool.plan(tell=say)
        if planned.done:
            say(f"{new}: nothing to do, all tasks of {old} go on under this name already")
            return
        say_first(planned.notes, yes=yes)
        tool.carry_out(planned)
        say(f"{old}: goes on as {new}")
