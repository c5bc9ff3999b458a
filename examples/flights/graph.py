"""The graph: `clean` -> `route` -> `ledger`; and `hourly`, of DataFrames, behind `clean` and beside the weather.

::

    cues-kafka run examples.flights.graph:plain --workers 2
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cues_kafka import DataFrameProcessor, Graph, Json, Out, Processor, Raw, Source, Topic
from examples.flights.data import COLUMNS, airports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cues_kafka.runtime.calling.step import Step

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


@dataclass(frozen=True, slots=True)
class Weather:
    """
    What it was at an airport in one hour. None: the station did not say.

    Attributes:
        hour: when it begins, as the table has it: UTC, ISO.
        temp: Fahrenheit.
        wind_speed: miles per hour.
        precip: inches.
        visib: miles.
    """

    origin: str
    hour: str
    temp: float | None
    wind_speed: float | None
    precip: float | None
    visib: float | None


@dataclass(frozen=True, slots=True)
class Hour:
    """
    What is known by now of one hour at one airport: the newest message of a key is the one that counts.

    Attributes:
        hour: when it begins, UTC, ISO.
        flights: how many took off that were scheduled in this hour.
        delay: the sum of their delays on departure, in minutes.
        temp, wind_speed, precip, visib: see `Weather`.
    """

    origin: str
    hour: str
    flights: int
    delay: int
    temp: float | None
    wind_speed: float | None
    precip: float | None
    visib: float | None


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


YEAR = "366 days"
"""
How late a message may be by its own time, for `hourly`.

The table goes from January to October and ends with September, so a watermark that is narrower than the table drops
flights, and which ones would depend on how they are cut into micro-batches. With this one nothing of 2013 is ever late.
"""


def hourly(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """
    Flights and their delay in each hour, at each airport, beside the weather of that hour: a join of two streams, and
    an aggregate of what it gives.

    In `update` mode a row goes out for each hour that a micro-batch has changed, so the last hour needs no end of the
    stream to be seen, and nothing waits for a watermark. A flight waits for the weather, and the weather for flights,
    whichever comes first. An hour without weather has no row; weather that is not known (NA) is null, and has one.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - native workers have no need of it

    scheduled = f.format_string("%s %04d America/New_York", "date", "scheduled")
    left = flights.select("origin", f.to_timestamp(scheduled, "yyyy-MM-dd HHmm VV").alias("at"), "dep_delay")
    right = weather.drop("_cues").withColumnsRenamed({"origin": "station"}).withColumn("since", f.to_timestamp("hour"))
    # Equality makes the keys of the state; the range says when it may be forgotten.
    same = "origin = station AND date_trunc('HOUR', at) = since AND at >= since AND at < since + INTERVAL 1 HOUR"
    both = left.withWatermark("at", YEAR).join(right.withWatermark("since", YEAR), f.expr(same))
    seen = ("temp", "wind_speed", "precip", "visib")
    hours = both.groupBy("origin", "hour", *seen, f.window("at", "1 hour"))
    summed = hours.agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("delay"))
    key = f.concat_ws(" ", "origin", "hour").alias("_key")
    return summed.select("origin", "hour", "flights", "delay", *seen, key)


def open_ledger() -> sqlite3.Connection:
    """
    The ledger in the file that FLIGHTS_LEDGER names; all workers write the same file.

    Workers open it one at a time. SQLite's timeout does not cover the change to WAL: of two connections that change
    a new file at the same moment, one gets "database is locked" at once.
    """
    path = os.environ.get("FLIGHTS_LEDGER", "flights.db")
    with open(f"{path}.lock", "w") as lock:  # noqa: PTH123 - a descriptor to lock; its file stays empty
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed, also by a kill
        db = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")  # the row must be on the disk before Kafka commits that it is booked
        db.execute(
            "CREATE TABLE IF NOT EXISTS ledger (hash TEXT PRIMARY KEY, date TEXT, carrier TEXT, number INT, origin "
            "TEXT, dest TEXT, distance INT) WITHOUT ROWID"
        )
    return db


plain = Graph(
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
"""What native workers can run by themselves."""

_topics = {
    **plain.topics,
    "flights.weather": Topic(value=Json(Weather), key="origin"),
    "flights.hours": Topic(value=Json(Hour)),
}

graph = Graph(
    plain.name,
    *plain.parts,
    Source("flights.weather"),
    DataFrameProcessor(
        hourly,
        inputs={"flights": "flights.clean", "weather": "flights.weather"},
        outputs="flights.hours",
        output_mode="update",
    ),
    **plain.settings() | {"topics": _topics},
)
"""All of it: Spark runs `hourly`, and `clean` and `route`, or native workers do."""
