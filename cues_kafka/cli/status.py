"""``cues-kafka status``: show the state of a graph from any machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Target, interrupts, pasteable
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.cli.tables import WIDTH, aligned, fits, paragraph
from cues_kafka.graph.times import shown_time
from cues_kafka.observe.throttling import REMEDY
from cues_kafka.operate.look.summary import words
from cues_kafka.plan.wellness import LONG_OPEN_S
from cues_kafka.words import at_address, count

if TYPE_CHECKING:
    from cues_kafka.operate.look.seen import GraphStatus, SeenTask

NOT_WELL: Final = 1
"""Exit code: something is wrong, as `plan.wellness` says."""

UNREACHABLE: Final = 3
"""Exit code: the cluster does not answer."""

EVERY_S: Final = 2.0
"""How often --watch looks."""

RECENT_S: Final = 3_600.0
"""An error message that is older is not named; the column counts it."""

SHOWN: Final = 3
"""Tasks that a line names."""

CLEAR: Final = "\x1b[H\x1b[J"
"""The terminal's codes for: to the top, and clear the rest."""

epilog = f"""
\b
Examples:
  cues-kafka status shop:graph
  cues-kafka status shop:graph --watch
  cues-kafka status path/shop.py:graph --json | jq '.tasks[] | select(.ok | not)'
  # wait until everything runs
  until cues-kafka status shop:graph; do sleep 5; done

The command joins no group and stops nothing. It reads positions and lag from
the cluster, and the rest from the graph's status topic, to which workers report
every 5 s. A task that has not reported for three such periods is shown as `not
heard of`.

Exits with 0 if all is well; a paused task is well. Exits with {NOT_WELL} if a task is
stopped, not heard of, run by no worker, never started, or blocked by a
transaction that has been open for a minute, and if `plan` would refuse the
graph. Exits with {UNREACHABLE} if the cluster does not answer, and with 2 if the graph or
a setting is wrong.
"""


def status(
    target: Target,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every 2 s, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch one line each time.")] = False,
    cluster: ClusterOptions,
) -> None:
    """Show the state and the lag of each task."""
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.look.status import StatusView
    from cues_kafka.plan.topics import Sides
    from cues_kafka.task.making.patterns import on_cluster

    settings = cluster.load()
    kafka = settings.kafka()
    broker = open_broker(kafka)
    try:
        graph = on_cluster(load_graph(target), broker)
        with interrupts() as ended, StatusView(graph, broker, sides=Sides.of(kafka)) as view:
            while True:
                seen = view.look()
                if as_json:
                    say_lines(json.dumps(seen.to_dict(), indent=None if watch else 2))
                else:
                    if watch and sys.stdout.isatty():
                        typer.echo(CLEAR, nl=False)
                    show(seen, address=settings.address, bootstrap=settings["bootstrap"])
                if not watch or ended.wait(EVERY_S):
                    break
    finally:
        broker.close()
    raise typer.Exit(UNREACHABLE if seen.unreachable else 0 if seen.ok else NOT_WELL)


def show(seen: GraphStatus, *, address: str, bootstrap: str) -> None:
    """
    Print a status for people: a table, a line for each thing that is worth reading, and a sentence on the whole.

    Args:
        seen: the status.
        address: of the cluster, with where it came from.
        bootstrap: of the cluster, for commands.
    """
    if seen.tasks:
        for line in table(seen, width=shutil.get_terminal_size((WIDTH, 24)).columns):
            say(line)
    for line in lines(seen, bootstrap=bootstrap):
        say(pasteable(at_address(line, bootstrap)))
    colour = "green" if seen.ok else "red"
    say(f"{seen.graph} on {address}, {_clock(seen.at_s)}: {words(seen)}", fg=colour)


SHOWN_AS_TOLD: Final = ("blocked", "silent", "refused")
"""Kinds of the verdict whose lines stand below the table as they are."""


def table(seen: GraphStatus, *, width: int) -> list[str]:
    """
    One row for each task. Where the rows are wider than the screen, the owner goes; where they still are, each task is
    a paragraph of its own.

    Args:
        seen: the status.
        width: of the screen, in characters.
    """
    titles = ["task", "state", "lag", "oldest", "rate/s", "errors", "retries", "commit", "owner"]
    rows = [_row(one, seen.at_s) for one in seen.tasks]
    whole = aligned([titles, *rows], left=(0, 1, 8))
    if fits(whole, width):
        return whole
    narrow = aligned([row[:-1] for row in (titles, *rows)], left=(0, 1))
    if fits(narrow, width):
        return [*narrow, *_owners(seen)]
    return [
        line
        for row in rows
        for line in paragraph(f"{row[0]}: {row[1]}", list(zip(titles[2:], row[2:], strict=True)), width)
    ]


def _row(one: SeenTask, at_s: float) -> list[str]:
    return [
        one.task,
        one.state,
        "-" if one.lag is None else f"{one.lag:,}",
        _span(one.waiting_s),
        "-" if one.rate is None else f"{one.rate:,.0f}" if one.rate >= 10 else f"{one.rate:.1f}",
        f"{one.errors:,}",
        "-" if one.retries is None else f"{one.retries:,}",
        _span(at_s - one.committed_s if one.committed_s else None, " ago"),
        one.owner or "-",
    ]


def _owners(seen: GraphStatus) -> Iterator[str]:
    """Which process has which tasks."""
    owners: dict[str, list[str]] = {}
    for one in seen.tasks:
        owners.setdefault(one.owner, []).append(one.task)
    for owner, tasks in owners.items():
        if owner:
            yield f"{owner}: {_some(tasks)}"


def _some(tasks: Sequence[str]) -> str:
    more = f" and {count(len(tasks) - SHOWN, 'more task')}" if len(tasks) > SHOWN else ""
    return ", ".join(tasks[:SHOWN]) + more


def lines(seen: GraphStatus, *, bootstrap: str = "BOOTSTRAP") -> Iterator[str]:
    """
    What is worth reading: why tasks stand still or are slow, what to do, and what could not be seen.

    Args:
        seen: the status.
        bootstrap: of the cluster, for commands.
    """
    held: dict[str, list[str]] = {}
    for one in seen.tasks:
        told = f", not heard of since {_clock(one.told_s)}" if one.state == "not heard of" else ""
        left = f", left at {_clock(one.told_s)}" if one.state == "left" else ""
        if one.stopped:
            since = f" since {_clock(one.stopped_s)}" if one.stopped_s else ""
            message = f" (message {one.at}, hash {one.hash})" if one.at else ""
            yield f"{one.task} stopped{since}{told}{left}: {one.stopped}{message}; remedy: {one.remedy}"
        elif told or left:
            yield f"{one.task}{told or left}: its process was {one.owner}"
        if one.held:
            held.setdefault(one.held, []).append(one.task)
        for note in one.notes:
            yield f"{one.task}: {note}"
        yield from _open_transactions(one)
        if one.missing:
            yield f"{one.task} {one.state}: {one.missing}; remedy: {one.missing_remedy}"
        if one.error and seen.at_s - one.error_s < RECENT_S:
            yield f"{one.task}: the newest error, {_clock(one.error_s)}: {one.error}"
    yield from (at_address(str(one), bootstrap) for one in seen.unwell if one.kind in SHOWN_AS_TOLD)
    yield from (f"{why}: {_some(tasks)}" for why, tasks in held.items())
    yield from _throttled(seen, bootstrap)
    yield from seen.unseen


def _throttled(seen: GraphStatus, bootstrap: str) -> Iterator[str]:
    """A line for each process that brokers hold back."""
    tasks: dict[str, list[SeenTask]] = {}
    for one in (one for one in seen.tasks if one.throttled_s):
        tasks.setdefault(one.owner, []).append(one)
    for owner, of_owner in tasks.items():
        for_s = max(one.throttled_s for one in of_owner)
        yield (
            f"throttled by a quota: in the last minute brokers held back answers to {owner} for {_span(for_s)} in all "
            f"({_some([one.task for one in of_owner])}); remedy: {at_address(REMEDY, bootstrap)}"
        )


def _open_transactions(one: SeenTask) -> Iterator[str]:
    if one.open_s is not None and one.open_s >= LONG_OPEN_S:
        yield f"{one.task}: its own transaction has been open for {_span(one.open_s)}"


def _span(seconds: float | None, behind: str = "") -> str:
    """A time span as people say it: 0.3 s, 12 s, 5 min, 3 h, 2 d."""
    if seconds is None:
        return "-"
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}{behind}"
    return f"{seconds:.0f} s{behind}" if seconds >= 10 else f"{seconds:.1f} s{behind}"


def _clock(at_s: float) -> str:
    return shown_time(at_s * 1000)
