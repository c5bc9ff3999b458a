"""``cues-kafka reset`` and ``cues-kafka accept-loss``: move tasks that refuse to go on, on purpose."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.runtime.maintenance import Maintenance, Move

Target = Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="shop:graph, or path/shop.py:graph.")]
Name = Annotated[str, typer.Argument(metavar="PROCESSOR", help="Whose tasks to move.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this it is only said what would happen.")]

reset_epilog = """Examples:\n\n
    cues-kafka reset shop:graph check                            # say what would be repeated\n\n
    cues-kafka reset shop:graph check --yes                      # deliver all that is there again\n\n
    cues-kafka reset shop:graph check --to latest --partition 2 --yes\n\n
    Stop the workers of the processor, or its query on Spark, first. Exits with 1 when nothing was done."""

accept_loss_epilog = """Examples:\n\n
    cues-kafka accept-loss shop:graph check\n\n
    cues-kafka accept-loss shop:graph check --yes\n\n
    Stop the workers of the processor first. Exits with 1 when something is lost and nothing was done."""


def reset(
    target: Target,
    processor: Name,
    *,
    to: Annotated[Literal["earliest", "latest"], typer.Option(help="earliest repeats, latest skips.")] = "earliest",
    partition: Annotated[int | None, typer.Option(min=0, help="Of one task only.")] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """
    Let the tasks of a processor begin anew. Outputs repeat (earliest) or messages are skipped (latest).

    DataFrames that shuffle or keep state begin anew as a whole, and with a new checkpoint.
    """
    _act(
        target, processor, lambda tool: tool.reset(to=to, partition=partition),
        who="reset", yes=yes, bootstrap=bootstrap, profile=profile, file=file,
    )  # fmt: skip


def accept_loss(
    target: Target,
    processor: Name,
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """Let tasks whose next messages are gone from the log go on at the first one that is there."""
    _act(
        target, processor, lambda tool: tool.accept_loss(),
        who="accept-loss", yes=yes, bootstrap=bootstrap, profile=profile, file=file,
    )  # fmt: skip


def _act(
    target: str,
    processor: str,
    moves_of: Callable[[Maintenance], list[Move]],
    *,
    who: str,
    yes: bool,
    bootstrap: str | None,
    profile: str | None,
    file: Path | None,
) -> None:
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.runtime.maintenance import Maintenance

    graph = load_graph(target)
    broker = open_broker(load({"bootstrap": bootstrap}, profile=profile, file=file).kafka())
    try:
        tool = Maintenance(graph, broker, processor, who=f"{who} on {socket.gethostname()}")
        moves = moves_of(tool)
        if not moves:
            typer.echo(f"{processor}: nothing to do, all tasks stand there already")
            return
        for move in moves:
            for note in move.notes:
                typer.echo(f"{move.spec.name}: {note}")
        if not yes:
            typer.echo("Nothing was changed. Add --yes to do it.", err=True)
            raise typer.Exit(1)
        tool.carry_out(moves)
        typer.echo(f"{processor}: {count(len(moves), 'task')} moved")
        if tool.staged:
            typer.echo(
                f"Now delete the checkpoint of its query (<checkpoint>/{graph.name}.{processor}), or give another "
                "directory: the processor goes on with a new checkpoint only."
            )
    finally:
        broker.close()
