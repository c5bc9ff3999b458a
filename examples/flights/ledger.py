"""The ledger: a row of a database for each flight, with the running totals of its aircraft.

The database's address is in FLIGHTS_DATABASE. This makes the two tables::

    FLIGHTS_DATABASE=sqlite:////tmp/flights.db python -m examples.flights.ledger
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cues_kafka import Sql
from cues_kafka.graph.effects import dialect_of
from cues_kafka.sinks.lookup import dialect

if TYPE_CHECKING:
    from cues_kafka.sinks.connection import Database
    from examples.flights.graph import Flight

ADDRESS: Final = "FLIGHTS_DATABASE"
"""The environment variable that holds the database's address."""

INSPECTION_MILES: Final = 10_000
"""After each so many miles an aircraft is due for an inspection."""

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS ledger (
        tail text NOT NULL, nth integer NOT NULL, date text NOT NULL, carrier text NOT NULL, number integer NOT NULL,
        origin text NOT NULL, dest text NOT NULL, distance integer NOT NULL, miles integer NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS aircraft (tail text PRIMARY KEY, flights integer NOT NULL, miles integer NOT NULL)",
)
"""The tables. No key of `ledger` forbids a second booking, so a step that is committed twice would be seen."""

COLUMNS: Final = ("tail", "nth", "date", "carrier", "number", "origin", "dest", "distance", "miles")

ROWS: Final = {"postgresql": "json_array_elements(%s::json)", "sqlite": "json_each(?)"}
"""For each database, what makes rows of one parameter, an array in JSON. One statement takes a whole batch so."""

READ: Final = "SELECT tail, flights, miles FROM aircraft WHERE tail IN (SELECT value ->> 0 FROM {rows})"

WRITE: Final = """
    INSERT INTO aircraft (tail, flights, miles)
    SELECT value ->> 0, CAST(value ->> 1 AS integer), CAST(value ->> 2 AS integer) FROM {rows} WHERE true
    ON CONFLICT (tail) DO UPDATE SET flights = excluded.flights, miles = excluded.miles
    """


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    An aircraft is due for an inspection.

    Attributes:
        flights: number of its flights so far.
        miles: their miles, by which it has passed another `INSPECTION_MILES`.
    """

    tail: str
    flights: int
    miles: int


def ledger(flights: list[Flight], db: Database, rows: str) -> list[Inspection | None]:
    """
    Book flights with the running totals of their aircraft, and send a message when an aircraft is due.

    The rows, the messages and the place in the input are committed together, or not at all. A flight that was lost or
    booked twice would leave a gap or a repetition in the numbers of its aircraft's flights, and wrong miles from there
    on. All flights of an aircraft have one key, so one task has all of them, in their order. A flight without a tail
    number belongs to no aircraft and is not booked.
    """
    tails = {flight.tail for flight in flights if flight.tail}
    found = db.execute(READ.format(rows=rows), [json.dumps([[tail] for tail in tails])])
    totals: dict[str, tuple[int, int]] = {tail: (nth, miles) for tail, nth, miles in found}
    booked: list[tuple[str | int, ...]] = []
    due: list[Inspection | None] = []
    for f in flights:
        inspection = None
        if f.tail:
            nth, miles = totals.get(f.tail, (0, 0))
            now = totals[f.tail] = nth + 1, miles + f.distance
            booked.append((f.tail, now[0], f.date, f.carrier, f.number, f.origin, f.dest, f.distance, now[1]))
            if now[1] // INSPECTION_MILES > miles // INSPECTION_MILES:
                inspection = Inspection(f.tail, *now)
        due.append(inspection)
    db.insert("ledger", COLUMNS, booked)
    db.execute(WRITE.format(rows=rows), [json.dumps([(tail, *now) for tail, now in totals.items()])])
    return due


def rows_of_json() -> str:
    """What makes rows of an array in the database that FLIGHTS_DATABASE names; empty where no ledger runs."""
    address = os.environ.get(ADDRESS)
    return ROWS[dialect_of(address)] if address else ""


def create_tables(declared: Sql) -> None:
    """
    Make the ledger's tables where they are missing.

    Raises:
        ConfigError: the address is missing, or the database refuses.
        RetriableError: the database does not answer.
    """
    talk = dialect(declared)
    connection = talk.connect()
    try:
        for statement in TABLES:
            talk.execute(connection, statement)
    finally:
        talk.close(connection)


if __name__ == "__main__":
    create_tables(Sql(env=ADDRESS))
