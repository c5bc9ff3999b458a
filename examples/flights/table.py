"""The output of the demo: progress bars during the run, tables at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.check import Counts, Result
from examples.flights.demo import Demo, Kill, Outcome

LINE_S = 10.0
"""Seconds between two printed lines if bars cannot be drawn."""


class Bars:
    """A bar for each processor, from its tasks' own counters."""

    def __init__(self, console: Console, rows: int, processors: Iterable[str]) -> None:
        columns = [TextColumn("{task.description:>11}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
        self._console = console
        self._printed_s = self._changed_s = time.monotonic()
        self._line = ""
        self._progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=console, refresh_per_second=2)
        self._sent = self._progress.add_task("sent", total=rows, note="")
        self._tasks = {name: self._progress.add_task(name, total=rows, note="") for name in processors}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _news(self, line: str, kills: Sequence[Kill], now_s: float) -> str:
        """The line; where no number has changed since the last one, what is waited for."""
        if line != self._line:
            self._line, self._changed_s = line, now_s
            return line
        last = kills[-1] if kills else None
        if last is not None and last.recovered_s is None:
            return f"waiting for the {last.kind} that replaces the killed one, {now_s - last.at_s:.0f} s"
        return f"waiting for the next commit, {now_s - self._changed_s:.0f} s"

    def show(self, demo: Demo) -> None:
        """Draw the progress."""
        kills = len(demo.outcome.kills)
        if not self._console.is_terminal and time.monotonic() - self._printed_s > LINE_S:
            now = self._printed_s = time.monotonic()
            done = ", ".join(f"{name} {total.deliveries:,}" for name, total in demo.outcome.totals.items())
            if demo.outcome.hourly:
                done += f", hourly {demo.outcome.hourly.outputs:,}"
            line = f"sent {demo.loader.sent:,}, {done}, {kills} kills"
            self._console.print(self._news(line, demo.outcome.kills, now), highlight=False, soft_wrap=True)
        self._progress.update(self._sent, completed=demo.loader.sent, note=f"{kills} kills")
        took_off = demo.rows - demo.loader.expected.never - demo.loader.expected.unknown.total()
        for name, bar in self._tasks.items():
            total = demo.rows if name == "clean" else took_off
            if name in demo.outcome.totals:
                self._progress.update(bar, completed=demo.outcome.totals[name].deliveries, total=total)


def print_result(console: Console, result: Result, outcome: Outcome, *, loaded: int, database: str) -> None:
    """Print the table, and the lines below it; `database` is the name of the ledger's."""
    table = Table(title="What the tasks counted, and what plain Python finds in the tables")
    table.add_column("", no_wrap=True)
    for name in ("deliveries", "outputs", "errors", "nil", "lost", "duplicated", "torn", "disorder"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, found in result.processors.items():
        wrong = (found.lost, found.duplicated, found.torn, found.disorder)
        table.add_row(name, *_cells(found.ours), *(f"[{'red' if n else 'green'}]{n:,}" for n in wrong))
        table.add_row("  tables", *_cells(found.tables), style="dim", end_section=True)
    console.print(table)
    _print_kills(console, outcome)
    deliveries = sum(total.deliveries for total in outcome.totals.values())
    if outcome.kills and outcome.calm_s:
        console.print(
            f"before kills  {outcome.calm / outcome.calm_s:,.0f} deliveries/s, from the first commit to the first kill "
            f"({outcome.calm_s:.1f} s)"
        )
    console.print(
        f"throughput    {deliveries / outcome.seconds:,.0f} deliveries/s, {loaded / outcome.seconds:,.0f} flights/s, "
        f"start-up and kills included ({outcome.seconds:.1f} s)"
    )
    console.print(f"read back     {result.messages:,} messages and rows; each one was compared with the tables")
    if result.booked:
        console.print(f"ledger        {result.booked:,} rows in {database}, with the running totals of each aircraft")
    console.print(f"punctuality   totals of {result.airlines:,} pairs of an airline and an airport, after each flight")
    if outcome.hourly:
        console.print(
            f"hourly        {len(result.hours):,} hours of an airport with their weather, in {result.published:,} "
            f"messages; {result.without:,} hours have no weather"
        )


def _print_kills(console: Console, outcome: Outcome) -> None:
    """Print which processes were killed, and how soon others took over."""
    table = Table(title="Killed processes")
    table.add_column("SIGKILL to", no_wrap=True)
    hourly = ["hourly publishing"] if outcome.hourly else []
    for name in ("kills", "in a transaction", *hourly, "next commit after", "at most"):
        table.add_column(name, justify="right", no_wrap=True)
    for kind in sorted({kill.kind for kill in outcome.kills}):
        kills = [kill for kill in outcome.kills if kill.kind == kind]
        times = [kill.recovered_s for kill in kills if kill.recovered_s is not None]
        hit = sum(bool(kill.open_tasks) for kill in kills)
        seconds = [f"{median(times):.2f} s", f"{max(times):.2f} s"] if times else ["", ""]
        published = [str(sum(bool(kill.publishing) for kill in kills)) for _ in hourly]
        table.add_row(kind, str(len(kills)), str(hit), *published, *seconds)
    if table.row_count:
        console.print(table)
    lost = f", {outcome.lost} Spark tasks retried" if outcome.lost else ""
    opened = sum(len(kill.open_tasks) for kill in outcome.kills)
    parts = sum(len(kill.publishing) for kill in outcome.kills)
    due = f", {parts} parts of hourly were announced but not published" if outcome.hourly else ""
    console.print(
        f"kills         {len(outcome.kills)} by SIGKILL: {opened} transactions were open{due}, {outcome.restarts} "
        f"processes restarted{lost}"
    )


def _cells(counts: Counts) -> list[str]:
    return [f"{n:,}" for n in (counts.deliveries, counts.outputs, counts.errors, counts.nil)]
