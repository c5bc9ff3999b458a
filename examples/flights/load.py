"""Sends the flights, as far as it is allowed to, and the weather beside them."""

from __future__ import annotations

import threading
from itertools import islice

from cues_kafka import Kafka, Message, connect
from examples.flights import data, independent
from examples.flights.graph import Weather, graph

CHUNK_ROWS = 5_000
"""In one transaction: readers see all of them or none."""


class Loader(threading.Thread):
    """
    Sends rows while workers work, and tells the independent opinion of each.

    Attributes:
        expected: what must come out of the rows that were sent.
        sent: rows.
        error: why it failed.
    """

    def __init__(self, bootstrap: str, rows: int, *, weather: bool) -> None:
        """
        Args:
            bootstrap: the cluster.
            rows: how many flights.
            weather: whether to send that too.
        """
        super().__init__(name="loader", daemon=True)
        self.expected = independent.Expected()
        self.sent = 0
        self.error: BaseException | None = None
        self._servers = bootstrap
        self._rows = rows
        self._weather = weather
        self._allowed = 0
        self._more = threading.Condition()

    def allow(self, rows: int) -> None:
        """Send up to so many rows in all."""
        with self._more:
            self._allowed = max(self._allowed, rows)
            self._more.notify()

    @property
    def done(self) -> bool:
        """Whether all was sent."""
        return not self.is_alive()

    def run(self) -> None:
        """Send."""
        try:
            self._run()
        except BaseException as error:
            self.error = error
            raise

    def _run(self) -> None:
        lines = enumerate(data.flights(self._rows))
        airports = data.airports()
        weather = list(data.weather()) if self._weather else []
        told = 0
        with connect(Kafka(self._servers), graph) as client:
            while self.sent < self._rows:
                with self._more:
                    self._more.wait_for(lambda: self._allowed > self.sent)
                    size = min(CHUNK_ROWS, self._allowed - self.sent)
                chunk = list(islice(lines, size))
                for number, line in chunk:
                    self.expected.add(line, number, airports)
                self.sent += client.send_many("flights.raw", [message(line, number) for number, line in chunk])
                # Its table is in another order, so that sometimes the flights come first and sometimes the weather.
                share = weather[told : len(weather) * self.sent // self._rows]
                for line in share:
                    self.expected.see(line)
                told += client.send_many("flights.weather", [seen(line) for line in share]) if share else 0


def message(line: str, number: int) -> Message[bytes]:
    """A line with its tail number as the key; without one it goes to the partitions by turns."""
    tail = line.split(",", data.TAIL + 1)[data.TAIL]
    if tail == "NA":
        return Message(line.encode(), partition=number % independent.PARTITIONS)
    return Message(line.encode(), key=tail)


def seen(line: str) -> Weather:
    """A line of the table of weather; "NA" is None."""
    row = dict(zip(data.WEATHER, line.split(","), strict=True))
    temp, wind_speed, precip, visib = (
        None if row[name] == "NA" else float(row[name]) for name in ("temp", "wind_speed", "precip", "visib")
    )
    return Weather(row["origin"], row["time_hour"], temp, wind_speed, precip, visib)
