"""``python -m examples.flights``: load, kill, check, print; the exit code is 1 if anything differs."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.errors import CuesError
from examples.flights.check import TOPICS, Result, check
from examples.flights.database import LEDGER, NAMES, NONE, POSTGRES, NotStarted, opened
from examples.flights.demo import BESIDE, ROWS, Demo, Failed
from examples.flights.picture import draw
from examples.flights.table import Bars, print_result
from examples.flights.view import NoView, target, watched

PICTURE = Path(__file__).with_name("flights.png")


def main(arguments: list[str] | None = None) -> int:
    """Run the demo, and return its exit code."""
    args = _options(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 110)
    logging.getLogger("cues_kafka").addHandler(logging.NullHandler())  # the bars and the table show the kills
    seed = args.seed if args.seed is not None else random.randrange(2**32)
    rows = min(args.limit, ROWS)
    began = time.monotonic()
    try:
        with (
            _cluster(args.bootstrap, console) as (bootstrap, directory),
            opened(args.database, directory) as database,
            _view(args, bootstrap, console, database.kind),
        ):
            if database.why:
                console.print(f"The ledger is in SQLite. No PostgreSQL was started: {database.why}", markup=False)
            console.print(
                f"{rows:,} flights, {_where(args)}, {_kills(args)}, seed {seed}, ledger in {NAMES[database.kind]}, "
                f"Kafka at {bootstrap} (started in {time.monotonic() - began:.1f} s)",
                soft_wrap=True,
            )
            processors = [name for name in TOPICS if name != LEDGER or database.kind != NONE]
            with Bars(console, rows, processors) as bars:
                demo = Demo(
                    bootstrap,
                    directory,
                    database=database,
                    rows=rows,
                    kills=args.kills,
                    server_kills=args.server_kills,
                    workers=args.workers,
                    native=args.native,
                    seed=seed,
                    show=bars.show,
                )
                try:
                    outcome = demo.run()
                except Failed:
                    console.print(demo.log_tail(), markup=False, highlight=False)
                    raise
            console.print("Reading everything back ...")
            expected = demo.loader.expected
            result = check(bootstrap, database.url, expected, outcome.totals, hourly=outcome.hourly)
            if result.differences:
                console.print(demo.log_tail(), markup=False, highlight=False)
    except (Failed, NotStarted, NoView, CuesError) as error:
        console.print(f"[red]failed[/]: {error}", highlight=False)
        return 1
    print_result(console, result, outcome, loaded=rows, database=NAMES[database.kind])
    if result.hours:
        console.print(f"picture       {_picture(result, args.picture)}", highlight=False, soft_wrap=True)
    for difference in result.differences:
        console.print(f"[red]unequal[/]: {difference}", highlight=False)
    verdict = "[red]NOT exactly once" if result.differences else "[green]every flight exactly once"
    console.print(f"{verdict}[/] ({time.monotonic() - began:.0f} s in all)")
    return 1 if result.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights",
        description="Send all flights of 2013 through a graph while its processes are killed, and check every message.",
    )
    parser.add_argument("--kills", type=int, default=10, help="number of SIGKILLs (10)")
    parser.add_argument(
        "--database",
        choices=list(NAMES),
        help="where the ledger is; none: without it (postgres where one can be started, else sqlite)",
    )
    parser.add_argument(
        "--server-kills", type=int, default=0, metavar="KILLS", help="number of SIGKILLs to the PostgreSQL (0)"
    )
    parser.add_argument("--limit", type=int, default=ROWS, metavar="ROWS", help="number of flights to send (all)")
    parser.add_argument("--native", action="store_true", help="run all processors in native workers, none on Spark")
    parser.add_argument("--workers", type=int, default=2, help="number of native worker processes (2)")
    parser.add_argument("--ui", action="store_true", help="show the run in a browser, and print the address")
    parser.add_argument("--bootstrap", help="address of a cluster without the graph's topics; default: start a broker")
    parser.add_argument(
        "--picture",
        type=Path,
        default=PICTURE,
        metavar="FILE",
        help="file for the picture (flights.png beside the demo)",
    )
    parser.add_argument("--seed", type=int, help="seed of the random moments and targets of the kills")
    return parser


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """The options; kills of a server need a server."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.server_kills:
        args.database = args.database or POSTGRES
        if args.database != POSTGRES:
            parser.error(f"--server-kills goes with --database {POSTGRES}, not with {args.database}")
    return args


def _where(args: argparse.Namespace) -> str:
    native = f"{args.workers} native workers"
    return native if args.native else f"clean, route and hourly on Spark, {', '.join(BESIDE)} on {native}"


def _kills(args: argparse.Namespace) -> str:
    server = f" and {args.server_kills} of the database's server" if args.server_kills else ""
    return f"{args.kills} kills{server}"


def _view(args: argparse.Namespace, bootstrap: str, console: Console, database: str) -> AbstractContextManager[object]:
    """The browser view of what runs, if it is wanted."""
    if not args.ui:
        return nullcontext()
    graph = target(native=args.native, database=database)
    return watched(graph, bootstrap, lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))


def _picture(result: Result, file: Path) -> str:
    """Draw the picture; its file, or why there is no picture."""
    try:
        draw(result.hours, file)
    except ImportError as error:
        return f"not drawn: {error.name} is not installed. Install it: pip install 'cues-kafka[demo]'"
    return str(file)


@contextmanager
def _cluster(bootstrap: str | None, console: Console) -> Iterator[tuple[str, Path]]:
    """
    A cluster, and a directory for the run.

    If the demo starts the broker, the directory is inside the broker's, which is removed also after a kill.
    """
    if bootstrap is not None:
        with temporary_directory("cues-kafka-flights-") as directory:
            yield bootstrap, directory
        return
    with LocalBroker(say=lambda text: console.print(text, markup=False)) as broker:
        inside = broker.directory / "flights"
        inside.mkdir()
        yield broker.bootstrap, inside


if __name__ == "__main__":
    sys.exit(main())
