"""The graph: `clean` -> `route` -> `ledger`.

::

    cues-kafka run examples.flights.graph:graph --workers 2
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cues_kafka import Graph, Json, Out, Processor, Raw, Source, Topic
from examples.flights.data import COLUMNS, airports

if TYPE_CHECKING:
    from cues_kafka.runtime.step import Step

LATE_MIN = 15
"""Minutes from which on the authorities call a flight delayed."""


@dataclass(frozen=True, slots=True)
class Flight:
    """
    A flight that took off.

    Attributes:
        date: ISO.
        scheduled: departure, local time as hhmm.
        dep_delay: minutes; negative: early.
        arr_delay: None: it did not arrive where it should have.
        tail: None: not known.
        distance: miles.
    """

    date: str
    scheduled: int
    carrier: str
    number: int
    tail: str | None
    origin: str
    dest: str
    dep_delay: int
    arr_delay: int | None
    distance: int


class UnknownAirport(ValueError):
    """The airports table lacks this destination. Add it to the table, and replay the error."""


def clean(line: bytes, airports: frozenset[str]) -> Flight | None:
    """A line of the table as a flight; nothing where it never took off."""
    row = dict(zip(COLUMNS, line.decode().split(","), strict=True))
    if row["dep_time"] == "NA":
        return None
    if row["dest"] not in airports:
        raise UnknownAirport(f"{row['dest']!r} is not in the airports table")
    return Flight(
        date=f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}",
        scheduled=int(row["sched_dep_time"]),
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail=None if row["tailnum"] == "NA" else row["tailnum"],
        origin=row["origin"],
        dest=row["dest"],
        dep_delay=int(row["dep_delay"]),
        arr_delay=None if row["arr_delay"] == "NA" else int(row["arr_delay"]),
        distance=int(row["distance"]),
    )


def route(flight: Flight) -> Iterator[Out[Literal["all", "delayed", "on_time"]]]:
    """Every flight to `all`, and by its delay on arrival (else on departure) to one of the others: both or none."""
    yield Out("all", flight)
    delay = flight.dep_delay if flight.arr_delay is None else flight.arr_delay
    yield Out("delayed" if delay >= LATE_MIN else "on_time", flight)


def ledger(flights: list[Flight], step: list[Step], db: sqlite3.Connection) -> None:
    """
    Book every flight once, although Kafka's transaction does not reach into SQLite.

    The delivery hash is the same whenever a flight is delivered again, so its row is there already.
    """
    booked = [
        (s.hash, f.date, f.carrier, f.number, f.origin, f.dest, f.distance) for f, s in zip(flights, step, strict=True)
    ]
    with db:
        db.executemany("INSERT OR IGNORE INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", booked)


def open_ledger() -> sqlite3.Connection:
    """The ledger in the file that FLIGHTS_LEDGER names; all workers write the same file."""
    db = sqlite3.connect(os.environ.get("FLIGHTS_LEDGER", "flights.db"), timeout=60.0, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")  # the row must be on the disk before Kafka commits that it is booked
    db.execute(
        "CREATE TABLE IF NOT EXISTS ledger (hash TEXT PRIMARY KEY, date TEXT, carrier TEXT, number INT, origin TEXT, "
        "dest TEXT, distance INT) WITHOUT ROWID"
    )
    return db


graph = Graph(
    "flights",
    Source("flights.raw"),
    Processor(clean, inputs="flights.raw", outputs="flights.clean"),
    Processor(
        route,
        inputs="flights.clean",
        outputs={"all": "flights.all", "delayed": "flights.delayed", "on_time": "flights.on_time"},
    ),
    Processor(ledger, inputs="flights.all", batch=True),
    errors="flights.errors",
    defaults=Topic(value=Json(Flight), partitions=4),
    topics={"flights.raw": Topic(value=Raw())},
    system={"airports": airports, "db": open_ledger},
)
