"""``cues-kafka verify``: compare the inputs of a graph with its outputs, while it runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cues_kafka.cli.bars import progress_bar
from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import AsJson, Target, pasteable
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.cli.tables import WIDTH, aligned, fits, paragraph
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.operate.look.unwell import UnwellNow
    from cues_kafka.ports.broker import Broker
    from cues_kafka.verify.scan import Report

ANOMALOUS = 3
"""Exit code: something is lost, torn, duplicated, out of order, or does not add up."""

NOT_VERIFIABLE = 4
"""Exit code: nothing wrong was seen, but not everything can be seen."""

INCOMPLETE = 5
"""Exit code with --complete: all that was delivered is verified, but not everything is delivered yet."""

UNWELL = 6
"""Exit code: all that was delivered is verified, but the graph is not well now, as `status` says."""

epilog = f"""
\b
Examples:
  cues-kafka verify shop:graph
  cues-kafka verify shop:graph --processor check --processor route
  cues-kafka verify --state shop:graph
  cues-kafka verify --state --pure add bank:graph
  cues-kafka verify path/shop.py:graph --json | jq .anomalies
  # wait until everything is delivered
  until cues-kafka verify shop:graph --complete; do sleep 5; done

Exits with 0 if everything delivered so far is verified and nothing is wrong,
{ANOMALOUS} if something is wrong, {NOT_VERIFIABLE} if nothing wrong was seen
but not everything can be verified, {INCOMPLETE} with --complete if not
everything is delivered yet, {UNWELL} if the messages are fine but `status`
reports that the graph is not well, 1 if the cluster could not be read, and 2 if
the graph or a setting is wrong.
"""

_COLUMNS = (
    ("steps", "steps"),
    ("replays", "replays"),
    ("outputs", "outputs"),
    ("errors", "errors"),
    ("nil", "nils"),
    ("lost", "lost"),
    ("torn", "torn"),
    ("duplicated", "duplicated"),
    ("out of order", "out_of_order"),
    ("unfounded", "unfounded"),
    ("ahead", "ahead"),
    ("dropped", "dropped"),
    ("accepted", "accepted"),
    ("behind", "behind"),
    ("entries", "entries"),
    ("diverging", "diverging"),
    ("not recomputed", "not_recomputed"),
)
_SUMMED = tuple(name for _, name in _COLUMNS if name != "nils")

FOREIGN: Final = (
    "if another program wrote one of these records, stop that program. No command takes a record out of a topic, so it "
    "counts until the topic no longer holds it: a message until retention or kafka-delete-records has removed it, a "
    "record of a task until compaction has. An entry of a store counts until `cues-kafka rebuild` and compaction. A "
    "processor with another name=, without `cues-kafka rename`, has a count of its own, and begins at its start="
)
"""What ends a finding about a record that no task of the graph wrote."""

TASKS = 10
"""How many tasks that have something to deliver are named."""


def verify(
    target: Target,
    *,
    processor: Annotated[
        list[str] | None, typer.Option("--processor", metavar="NAME", help="Look only at this processor; repeatable.")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help=f"Exit with {INCOMPLETE} if a message is not delivered yet.")
    ] = False,
    state: Annotated[
        bool,
        typer.Option("--state", help="Also recompute the stores, and compare them; this calls your functions."),
    ] = False,
    pure: Annotated[
        list[str] | None,
        typer.Option(
            "--pure",
            metavar="NAME",
            help="With --state: call this processor even if it has effects or retries; repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
    cluster: ClusterOptions,
) -> None:
    """
    Find lost, torn, duplicated or reordered messages.

    Only reads. The graph may keep running.
    """
    import json

    from cues_kafka.cli.loading import opened
    from cues_kafka.operate.look.unwell import ask

    options: dict[str, Any] = {"processors": processor or None}
    if pure and not state:
        raise ConfigError("--pure goes with --state only")
    if state:
        kafka = cluster.kafka()
        options |= {"state": True, "pure": pure or (), "cluster": kafka}
    # What functions print is no part of the report.
    with opened(target, cluster) as (graph, broker), redirect_stdout(sys.stderr):
        report = _look(graph, broker, options)
        found = cluster.load()
        now = ask(graph, broker, sides=found.sides).at(found["bootstrap"])
    now = now.of_processors(processor or list(graph.all_processors))
    if as_json:
        say_lines(json.dumps(report.to_dict() | {"unwell": [one._asdict() for one in now.unwell]}, indent=2))
    else:
        show(report, now)
    if not report.ok:
        raise typer.Exit(ANOMALOUS if report.anomalies else NOT_VERIFIABLE)
    if complete and not report.complete:
        raise typer.Exit(INCOMPLETE)
    if not now.ok:
        raise typer.Exit(UNWELL)


def _look(graph: Graph, broker: Broker, options: Mapping[str, Any]) -> Report:
    from cues_kafka.verify.scan import verify as look

    with progress_bar("reading") as tell:
        return look(graph, broker, **options, progress=tell)


def show(report: Report, now: UnwellNow) -> None:
    """
    Print a report for people: a table, and below it a line for each thing that is worth reading.

    Args:
        report: what was found.
        now: what is unwell with the graph now.
    """
    for line in table(report, width=shutil.get_terminal_size((WIDTH, 24)).columns):
        say(line)
    foreign = [pasteable(FOREIGN)] if report.anomalies else []
    for line in (*report.lines, *foreign, *_waiting(report), *map(pasteable, now.lines)):
        say(line)
    colour = {"ok": "green" if now.ok else "yellow", "WRONG": "red"}.get(report.verdict, "yellow")
    looked = f"{count(report.scanned, 'message')} in {report.seconds:.1f} s"
    say(f"{report.graph}: {words(report, now)} ({looked})", fg=colour)


def words(report: Report, now: UnwellNow) -> str:
    """The verdict as a sentence; what is not delivered yet is never called verified, and no graph well that is not."""
    return _judged(report) + ("" if now.ok else f"; but the graph is not well now: {_kinds(now)}")


def _kinds(now: UnwellNow) -> str:
    """The tasks that are unwell, and how: ``check/0 stopped``."""
    found = [one for one in now.unwell if one.severity == "wrong"]
    wrong = list(dict.fromkeys(_KINDS.get(one.kind, f"{one.name} {one.kind}").format(one.name) for one in found))
    return ", ".join(wrong[:TASKS]) + (f" and {count(len(wrong) - TASKS, 'other')}" if len(wrong) > TASKS else "")


_KINDS: Final = {"left": "{} has no worker", "no worker": "{} has no worker", "refused": "its plan is refused"}
"""Kinds that are said in other words."""


def _judged(report: Report) -> str:
    below = "everything is verified, nothing is wrong" if report.complete else "everything delivered so far is verified"
    verdict = {
        "ok": below,
        "WRONG": f"WRONG: {count(report.anomalies, 'anomaly', 'anomalies')}",
        "not verifiable": "nothing wrong was seen, but not everything can be verified",
    }[report.verdict]
    if report.complete:
        return verdict
    left = f"{count(report.behind, 'offset')} of {count(len(report.waiting), 'task')}"
    return f"{verdict}; {left} {'is' if report.behind == 1 else 'are'} not delivered yet"


def _waiting(report: Report) -> Iterator[str]:
    """The tasks that have something to deliver, the first of them."""
    behind = [task for one in report.processors for task in one.tasks if task.behind]
    for task in behind[:TASKS]:
        yield f"{task.task}: {count(task.behind, 'offset')} not delivered yet"
    if len(behind) > TASKS:
        yield f"and {count(len(behind) - TASKS, 'more task')}; --json has all of them"


def table(report: Report, *, width: int) -> list[str]:
    """
    One row for each processor; columns that are zero everywhere are left out.

    Where the rows are wider than the screen, each processor is a paragraph of its own.

    Args:
        report: what was found.
        width: of the screen, in characters.
    """
    counts = [{"nils": one.totals.nils, **{name: getattr(one, name) for name in _SUMMED}} for one in report.processors]
    shown = [(title, name) for title, name in _COLUMNS if name == "steps" or any(one[name] for one in counts)]
    rows = [
        [one.name, one.kind, *(str(numbers[name]) for _, name in shown), one.verdict]
        for one, numbers in zip(report.processors, counts, strict=True)
    ]
    titles = [title for title, _ in shown]
    whole = [["processor", "kind", *titles, "verdict"], *rows]
    lines = aligned(whole, left=(0, 1, len(titles) + 2))
    if fits(lines, width):
        return lines
    return [
        line
        for name, kind, *numbers, verdict in rows
        for line in paragraph(f"{name} ({kind}): {verdict}", list(zip(titles, numbers, strict=True)), width)
    ]
