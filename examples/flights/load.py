"""Send the flights and the weather, up to a limit that the demo raises."""

from __future__ import annotations

import threading
from itertools import islice

from cues_kafka import Kafka, Message, connect
from examples.flights import data, independent
from examples.flights.graph import Weather, graph

CHUNK_ROWS = 5_000
"""Rows of one transaction, of which readers see all or none."""


class Loader(threading.Thread):
    """
    Sends rows while workers work, and adds each row to the expected results.

    Attributes:
        expected: the expected results of the rows that were sent.
        sent: number of flights that were sent.
        error: the exception that ended it; None: it did not fail.
    """

    def __init__(self, bootstrap: str, rows: int, *, weather: bool) -> None:
        """
        Args:
            bootstrap: the cluster.
            rows: number of flights.
            weather: whether to send the weather too.
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
        """Allow it to send up to this many rows in all."""
        with self._more:
            self._allowed = max(self._allowed, rows)
            self._more.notify()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self.is_alive()

    def run(self) -> None:
        """Send all rows."""
        try:
            self._run()
        except BaseException as error:
            self.error = error
            raise

    def _run(self) -> None:
        lines = enumerate(data.flights(self._rows))
        airports = data.airports()
        weather = list(data.weather()) if self._weather else []
        sent_weather = 0
        with connect(Kafka(self._servers), graph) as client:
            while self.sent < self._rows:
                with self._more:
                    self._more.wait_for(lambda: self._allowed > self.sent)
                    size = min(CHUNK_ROWS, self._allowed - self.sent)
                chunk = list(islice(lines, size))
                for number, line in chunk:
                    self.expected.add(line, number, airports)
                self.sent += client.send_many("flights.raw", [message(line, number) for number, line in chunk])
                # The weather is sorted in another way, so that for some hours flights come first, for others weather.
                share = weather[sent_weather : len(weather) * self.sent // self._rows]
                for line in share:
                    self.expected.see(line)
                sent_weather += client.send_many("flights.weather", [seen(line) for line in share]) if share else 0


def message(line: str, number: int) -> Message[bytes]:
    """A line with its tail number as the key; lines without one go to the partitions in turn."""
    tail = line.split(",", data.TAIL + 1)[data.TAIL]
    if tail == "NA":
        return Message(line.encode(), partition=number % independent.PARTITIONS)
    return Message(line.encode(), key=tail)


def seen(line: str) -> Weather:
    """A line of the table of weather, with None for "NA"."""
    row = dict(zip(data.WEATHER, line.split(","), strict=True))
    temp, wind_speed, precip, visib = (
        None if row[name] == "NA" else float(row[name]) for name in ("temp", "wind_speed", "precip", "visib")
    )
    return Weather(row["origin"], row["time_hour"], temp, wind_speed, precip, visib)
