"""``cues-kafka reset``, ``adopt``, ``accept-loss``, ``strategy`` and ``migrate``: move or change tasks on purpose."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Target, Yes, at_least, say_first
from cues_kafka.cli.printing import say
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.operate.move.base import Maintenance, PlannedMove

Name = Annotated[str, typer.Argument(metavar="PROCESSOR", hidden=True, help="A processor in this graph.")]

reset_epilog = """
\b
Examples:
  # say what would be repeated
  cues-kafka reset shop:graph check
  # deliver all messages of the input again
  cues-kafka reset shop:graph check --yes
  # skip the messages that one task has not delivered yet
  cues-kafka reset shop:graph check --to latest --partition 2 --yes
  # begin one task at an offset, and all of them at a time
  cues-kafka reset shop:graph check --to 4711 --partition 2 --yes
  cues-kafka reset shop:graph check --to 2026-11-23T10:00:00Z --yes
  # the database was restored from a backup
  cues-kafka reset shop:graph ledger --to database --yes
  # the whole graph, with its stores
  cues-kafka reset shop:graph --to cut:before-upgrade --yes

Stop the workers of the processor, or its query on Spark, first. Exits with 1
if nothing was done, and with 2 if the graph or a setting is wrong.
"""

adopt_epilog = """
\b
Examples:
  # say where each task would begin
  cues-kafka adopt shop:graph check --group legacy-app
  cues-kafka adopt shop:graph check --group legacy-app --yes

Create the graph's topics first: cues-kafka plan shop:graph --apply. Exits with
1 if nothing was done, and with 2 if the graph or a setting is wrong.
"""

accept_loss_epilog = """
\b
Examples:
  # say what would be skipped
  cues-kafka accept-loss shop:graph check
  cues-kafka accept-loss shop:graph check --yes

Stop the workers of the processor first. Exits with 1 if something is lost and
nothing was done, and with 2 if the graph or a setting is wrong.
"""


strategy_epilog = """
\b
Examples:
  # say what would change
  cues-kafka strategy shop:graph notify
  cues-kafka strategy shop:graph notify --yes

Declare the new strategy= first, and stop the workers of the former version. Exits
with 1 if nothing was done, and with 2 if the graph or a setting is wrong.
"""

migrate_epilog = """
\b
Examples:
  # say where the added input would begin
  cues-kafka migrate shop:graph match --add refunds=latest
  cues-kafka migrate shop:graph match --add refunds=latest --yes
  # deliver all messages of the added input
  cues-kafka migrate shop:graph match --add refunds=earliest --yes
  # say which messages of a dropped input are not delivered
  cues-kafka migrate shop:graph match --drop legacy
  # an input is read from another topic now
  cues-kafka migrate shop:graph match --drop orders --add orders=earliest --yes
  # an input has another name now
  cues-kafka migrate shop:graph match --drop input --add orders=input --yes

Stop the workers of the processor and declare its new inputs first. Exits with 1
if nothing was done, and with 2 if the graph or an option is wrong.
"""


def migrate(
    target: Target,
    processor: Name,
    *,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="BINDING=PLACE",
            help="An added input, and where it begins: earliest (its first message), latest (after its last one), or "
            "the former name of an input that is renamed; repeatable.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="BINDING", help="An input that is gone from the declaration; repeatable."),
    ] = None,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Add inputs to a processor, or drop some.

    Inputs that stay continue at their positions. The command first says what an added input skips or delivers, what a
    dropped one will never deliver, and for a join which messages become pairs.
    """
    from cues_kafka.operate.move.migrate import added
    from cues_kafka.operate.move.migrate import migrate as migrate_inputs

    places = added(add or ())
    _act(
        target, processor, lambda tool: migrate_inputs(tool, places, frozenset(drop or ()), tell=say),
        who="migrate", yes=yes, cluster=cluster,
    )  # fmt: skip


def strategy(
    target: Target,
    processor: Name,
    *,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Change the delivery guarantee of a processor.

    The tasks continue at their positions, with the strategy= that the graph declares now. From at-least-once, the
    command first holds the group for two session time-outs, because workers of that strategy have no lock.
    """
    from cues_kafka.operate.move.strategy import change_strategy

    _act(
        target, processor, change_strategy,
        who="strategy", yes=yes, cluster=cluster,
    )  # fmt: skip


def reset(
    target: Target,
    processor: Annotated[
        str | None, typer.Argument(metavar="[PROCESSOR]", hidden=True, help="A processor in this graph.")
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="earliest (repeats outputs), latest (skips messages), an offset (with --partition), a time, "
            "group:NAME, a JSON file of offsets, database or here (if a database and Kafka disagree), or cut:NAME for "
            "the whole graph.",
        ),
    ] = "earliest",
    partition: Annotated[
        int | None, typer.Option(metavar="P", callback=at_least(0), help="Move only the task of this partition.")
    ] = None,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Restart a processor at another position, or a graph at a cut.

    `earliest` starts at the first message, and outputs repeat. `latest` starts after the last message, and skips
    messages that are not delivered yet. A number is an offset; name its partition with --partition. A time means the
    first message of that time or later. group:NAME means the offsets that a consumer group has committed. A JSON file
    holds offsets by topic and partition. DataFrames that shuffle or keep state restart as a whole, with a new
    checkpoint.

    For a processor with a database or a store of files in effects=, `database` goes to the position that the database
    or the store holds, for example after you restored a backup. If it holds no position of the processor, and its data
    are right, `here` keeps the position of the processor and writes it there.

    With cut:NAME, all processors and their stores go back to the state that `drain` saved in the cut. Messages that the
    graph has written since then stay, and the graph writes them again.
    """
    from cues_kafka.operate.move.reset import reset as reset_tasks

    if to.startswith("cut:"):
        if processor is not None or partition is not None:
            raise ConfigError("--to cut:NAME resets the whole graph. Leave out PROCESSOR and --partition.")
        _go_back(target, to.removeprefix("cut:"), yes=yes, cluster=cluster)
        return
    if processor is None:
        raise ConfigError("which processor? Write cues-kafka reset MODULE:GRAPH PROCESSOR, or give --to cut:NAME.")
    _act(
        target, processor, lambda tool: reset_tasks(tool, to=to, partition=partition),
        who="reset", yes=yes, cluster=cluster,
    )  # fmt: skip


def _go_back(target: str, name: str, *, yes: bool, cluster: ClusterOptions) -> None:
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.cut.going_back import GoBack

    with opened(target, cluster) as (graph, broker):
        tool = GoBack(graph, broker, who=f"reset on {socket.gethostname()}")
        planned = tool.plan(name)
        if not planned.all and not planned.unfinished:
            say(f"{graph.name}: nothing to do, all tasks are at cut {name} already")
            return
        say_first(_notes(planned.all), yes=yes)
        tool.carry_out(planned, tell=say)
        say(f"{graph.name}: is at cut {name}")


def adopt(
    target: Target,
    processor: Name,
    *,
    group: Annotated[str, typer.Option(metavar="NAME", help="Consumer group whose offsets the processor takes over.")],
    keep: Annotated[bool, typer.Option("--keep", help="Leave the group's offsets, instead of deleting them.")] = False,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Continue where a consumer group has stopped.

    For a processor that never ran. Stop the group's application first. The group is then deleted, so that the
    application cannot go on there and deliver the same messages; with --keep it stays.
    """
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.move.adopt import adopt as take_over
    from cues_kafka.operate.move.adopt import forget
    from cues_kafka.operate.move.base import Maintenance

    with opened(target, cluster) as (graph, broker):
        tool = Maintenance(graph, broker, processor, who=f"adopt on {socket.gethostname()}")
        moves = take_over(tool, group)
        say_first(map(_begins, moves), yes=yes)
        tool.carry_out(moves, holding=group)
        say(f"{processor}: {count(len(moves), 'task')} took the place of group {group}")
        if not keep:
            say(
                f"group {group} is deleted"
                if forget(tool, group)
                else f"group {group} has offsets of other topics too, so it stays: do not start its application again"
            )


def accept_loss(
    target: Target,
    processor: Name,
    *,
    yes: Yes = False,
    cluster: ClusterOptions,
) -> None:
    """
    Skip messages that are gone from the log.

    Tasks whose next messages were deleted, by retention or by hand, continue at the first message that is there.
    Tasks that had announced a batch, of which compaction took messages, continue with the rest of it.
    """
    from cues_kafka.operate.move.accept_loss import accept_loss as accept_loss_of

    _act(
        target, processor, accept_loss_of,
        who="accept-loss", yes=yes, cluster=cluster,
    )  # fmt: skip


def _act(
    target: str,
    processor: str,
    moves_of: Callable[[Maintenance], list[PlannedMove]],
    *,
    who: str,
    yes: bool,
    cluster: ClusterOptions,
) -> None:
    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.move.base import Maintenance

    with opened(target, cluster) as (graph, broker):
        options = getattr(broker, "options", None)  # a cluster in memory has none
        session_s = getattr(options, "session_timeout_s", 10.0)
        tool = Maintenance(graph, broker, processor, who=f"{who} on {socket.gethostname()}", session_s=session_s)
        moves = moves_of(tool)
        if not moves:
            say(f"{processor}: nothing to do, all tasks are there already")
            return
        say_first(_notes(moves), yes=yes)
        tool.carry_out(moves)
        say(f"{processor}: {count(len(moves), 'task')} moved")
        if tool.staged:
            say(
                f"Now delete the checkpoint of its query (<checkpoint>/{graph.name}.{processor}), or give another "
                "directory: the processor goes on with a new checkpoint only."
            )


def _notes(moves: Iterable[PlannedMove]) -> Iterator[str]:
    """What will be lost or repeated, by task."""
    return (f"{move.spec.name}: {note}" for move in moves for note in move.notes)


def _begins(move: PlannedMove) -> str:
    places = ", ".join(f"{p.topic}/{move.spec.partition} at {p.offset}" for p in move.positions)
    return f"{move.spec.name}: begins at {places}"
