"""The graph: `clean` -> `route` -> `ledger`, and two ways from `clean`: to totals, and to a join with the weather.

The ledger is in a database. The totals are those of `by_airline` -> `punctuality`, in a store. The join is `hourly`.

::

    export FLIGHTS_DATABASE=sqlite:////tmp/flights.db
    python -m examples.flights.ledger
    cues-kafka run examples.flights.graph:plain --workers 2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cues_kafka import (
    Avro,
    DataFrameProcessor,
    Graph,
    Json,
    Out,
    Processor,
    Raw,
    Source,
    Sql,
    State,
    Store,
    Topic,
    rekey,
)
from examples.flights.data import COLUMNS, airports
from examples.flights.ledger import ADDRESS, Inspection, ledger, rows_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = Path(__file__).parents[2] / "schemas" / "flight.avsc"
"""The Avro schema of `Flight`; each message carries its fingerprint, so there is no registry."""

LATE_MIN = 15
"""From this many minutes on, the authorities call a flight delayed."""


@dataclass(frozen=True)
class Flight:
    """
    A flight that took off: a record of ``schemas/flight.avsc``.

    Attributes:
        date: local date of the departure, ISO.
        scheduled: local time of the departure, as hhmm.
        dep_delay: in minutes; negative: early.
        arr_delay: in minutes; None: it did not arrive at its destination.
        tail: tail number; None: not known.
        distance: in miles.
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
    The weather at an airport in one hour. None: not measured.

    Attributes:
        hour: its begin, UTC, ISO, as in the table.
        temp: in degrees Fahrenheit.
        wind_speed: in miles per hour.
        precip: in inches.
        visib: in miles.
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
    The flights of one hour at one airport, and its weather; the newest message of a key counts.

    Attributes:
        hour: its begin, UTC, ISO.
        flights: number of flights that were scheduled in this hour and took off.
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


@dataclass(frozen=True, slots=True)
class Punctuality:
    """
    The flights of an airline from an airport so far.

    Attributes:
        flights: number of flights that took off.
        delay: the sum of their delays on departure, in minutes.
    """

    carrier: str
    origin: str
    flights: int
    delay: int


class UnknownAirport(ValueError):
    """This destination is not in the airports table. Add it to the table, and replay the error."""


def clean(line: bytes, airports: frozenset[str]) -> Flight | None:
    """A line of the table as a flight; None if it did not take off."""
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
    """Send each flight to `all`, and by its delay on arrival, or else on departure, to one of the others."""
    yield Out("all", flight)
    delay = flight.dep_delay if flight.arr_delay is None else flight.arr_delay
    yield Out("delayed" if delay >= LATE_MIN else "on_time", flight)


def airline(flight: Flight) -> str:
    """The key of a flight's totals: its airline and its airport."""
    return f"{flight.carrier} {flight.origin}"


def punctuality(flight: Flight, so_far: State[Punctuality]) -> Punctuality:
    """
    Add a flight to the totals of its airline and airport, and send the new totals.

    A flight that was lost or counted twice would leave a gap or a repetition in the numbers of flights.
    """
    key = airline(flight)
    last = so_far.get(key)
    flights, delay = (last.flights, last.delay) if last else (0, 0)
    now = Punctuality(flight.carrier, flight.origin, flights + 1, delay + flight.dep_delay)
    so_far[key] = now
    return now


YEAR = "366 days"
"""
How late a message of `hourly` may be, by its own time.

The table is not sorted: October follows January, and September is last. With a shorter watermark Spark would drop
flights, depending on the micro-batches. With this one no message of 2013 is late.
"""


def hourly(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """
    Join flights with the weather of their hour, and sum up their delays for each hour and airport.

    In `update` mode Spark writes a row for each hour that a micro-batch has changed, so no row waits for a watermark or
    for the end of the stream. Flights wait for the weather of their hour, and the weather for flights. An hour without
    weather has no row; a value that was not measured (NA) is null.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - native workers do not need it

    scheduled = f.format_string("%s %04d America/New_York", "date", "scheduled")
    left = flights.select("origin", f.to_timestamp(scheduled, "yyyy-MM-dd HHmm VV").alias("at"), "dep_delay")
    right = weather.drop("_cues").withColumnsRenamed({"origin": "station"}).withColumn("since", f.to_timestamp("hour"))
    # The equality gives the keys of the state, and the range bounds how long Spark keeps it.
    same = "origin = station AND date_trunc('HOUR', at) = since AND at >= since AND at < since + INTERVAL 1 HOUR"
    both = left.withWatermark("at", YEAR).join(right.withWatermark("since", YEAR), f.expr(same))
    seen = ("temp", "wind_speed", "precip", "visib")
    hours = both.groupBy("origin", "hour", *seen, f.window("at", "1 hour"))
    summed = hours.agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("delay"))
    key = f.concat_ws(" ", "origin", "hour").alias("_key")
    return summed.select("origin", "hour", "flights", "delay", *seen, key)


# The demo kills the processes, now and then six times at the same message. No message is to blame for that:
# quarantine_after=None.
plain = Graph(
    "flights",
    Source("flights.raw"),
    Processor(clean, inputs="flights.raw", outputs="flights.clean", quarantine_after=None),
    Processor(
        route,
        inputs="flights.clean",
        outputs={"all": "flights.all", "delayed": "flights.delayed", "on_time": "flights.on_time"},
        quarantine_after=None,
    ),
    Processor(
        ledger,
        inputs="flights.all",
        outputs="flights.inspections",
        batch=True,
        effects={"db": Sql(env=ADDRESS)},
        quarantine_after=None,
    ),
    rekey(
        "by_airline",
        inputs="flights.clean",
        outputs="flights.by_airline",
        by=airline,
        quarantine_after=None,
    ),
    Processor(
        punctuality,
        inputs="flights.by_airline",
        outputs="flights.punctuality",
        state={"so_far": Store(Json(Punctuality))},
        quarantine_after=None,
    ),
    errors="flights.errors",
    defaults=Topic(value=Avro(SCHEMA, Flight), partitions=4),
    topics={
        "flights.raw": Topic(value=Raw()),
        "flights.inspections": Topic(value=Json(Inspection)),
        "flights.punctuality": Topic(value=Json(Punctuality)),
    },
    system={"airports": airports, "rows": rows_of_json},
)
"""The part of the graph that native workers can run."""

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
"""
The whole graph. Spark runs `hourly`, and native workers run `punctuality`, which has a store. Either runs the others.
"""
