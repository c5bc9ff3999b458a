"""``cues-kafka verify``: compare what a graph has read with what it has written, while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile

if TYPE_CHECKING:
    from rich.table import Table

    from cues_kafka.graph.definition import Graph
    from cues_kafka.ports import Broker
    from cues_kafka.runtime.verify import Report

WRONG = 3
"""Exit code: something is lost, torn, duplicated, out of order, or does not add up."""

NOT_VERIFIABLE = 4
"""Exit code: nothing wrong was seen, but not everything can be seen."""

INCOMPLETE = 5
"""Exit code with --complete: all that was delivered is verified, but not everything is delivered yet."""

epilog = f"""Examples:\n\n
    cues-kafka verify shop:graph\n\n
    cues-kafka verify shop:graph --processor check --processor route\n\n
    cues-kafka verify path/shop.py:graph --json | jq .anomalies\n\n
    cues-kafka verify shop:graph --complete      # is everything delivered, too?\n\n
    Exits with 0 when everything below the positions is verified and nothing is wrong, {WRONG} when something is wrong,
    {NOT_VERIFIABLE} when nothing wrong was seen but not everything can be verified, {INCOMPLETE} with --complete when
    not everything is delivered yet, 1 when it could not look."""

_COLUMNS = (
    ("steps", "steps"),
    ("outputs", "outputs"),
    ("errors", "errors"),
    ("nil", "nils"),
    ("lost", "lost"),
    ("torn", "torn"),
    ("duplicated", "duplicated"),
    ("out of order", "out_of_order"),
    ("unfounded", "unfounded"),
    ("ahead", "ahead"),
    ("behind", "behind"),
)


def verify(
    target: Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="shop:graph, or path/shop.py:graph.")],
    *,
    processor: Annotated[
        list[str] | None, typer.Option("--processor", metavar="NAME", help="Look at this one only; may be repeated.")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help=f"Exit with {INCOMPLETE} while something is not delivered yet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """Say which messages are lost, torn, duplicated or out of order. Reads only; the graph may run meanwhile."""
    import json

    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph

    graph = load_graph(target)
    broker = open_broker(load({"bootstrap": bootstrap}, profile=profile, file=file).kafka())
    try:
        report = _look(graph, broker, processor or None)
    finally:
        broker.close()
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        show(report)
    if not report.ok:
        raise typer.Exit(WRONG if report.anomalies else NOT_VERIFIABLE)
    if complete and not report.complete:
        raise typer.Exit(INCOMPLETE)


def _look(graph: Graph, broker: Broker, processors: list[str] | None) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from cues_kafka.runtime.verify import verify as look

    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        return look(
            graph,
            broker,
            processors=processors,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def show(report: Report) -> None:
    """Print a report for people: a table, and below it a line for each thing that is worth reading."""
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 160, highlight=False, soft_wrap=True)
    console.print(table(report))
    for line in report.lines:
        typer.echo(line)
    colour = {"ok": "green", "WRONG": "red"}.get(report.verdict, "yellow")
    typer.secho(f"{report.graph}: {words(report)} ({report.scanned:,} messages in {report.seconds:.1f} s)", fg=colour)


def words(report: Report) -> str:
    """The verdict as a sentence; what is not delivered yet is never called verified."""
    below = (
        "everything is verified, nothing is wrong" if report.complete else "everything below the positions is verified"
    )
    verdict = {
        "ok": below,
        "WRONG": f"WRONG: {report.anomalies} anomalies",
        "not verifiable": "nothing wrong was seen, but not everything can be verified",
    }[report.verdict]
    if report.complete:
        return verdict
    return f"{verdict}; {report.behind:,} offsets of {len(report.waiting)} tasks are not delivered yet"


def table(report: Report) -> Table:
    """One row for each processor."""
    from rich.table import Table

    made = Table("processor", "kind")
    for title, _ in _COLUMNS:
        made.add_column(title, justify="right")
    made.add_column("verdict")
    for one in report.processors:
        counts = {**one.totals._asdict(), **{name: getattr(one, name) for _, name in _COLUMNS if name != "nils"}}
        made.add_row(one.name, one.kind, *(f"{counts[name]:,}" for _, name in _COLUMNS), one.verdict)
    return made
