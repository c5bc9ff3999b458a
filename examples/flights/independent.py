"""The expected results, which plain Python computes from the tables, and the real ones, which a plain consumer reads.

This module does not import cues_kafka, so that it is an independent check. It writes Avro by hand.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

PARTITIONS = 4
LATE_MIN = 15
INSPECTION_MILES = 10_000

MARK = b"\xc3\x01" + bytes.fromhex("78c278577742a09d")
"""Begins each message in single-object encoding: two bytes, and the fingerprint of ``schemas/flight.avsc``."""

Hour = tuple[str, str]
"""An airport, and the begin of an hour in UTC."""

Airline = tuple[str, str]
"""A carrier, and an airport."""

Streams = dict[str, list[bytes]]
"""The messages of one topic in order, by key; those without a key by partition."""


@dataclass
class Expected:
    """
    The expected results by the tables.

    Attributes:
        topics: the messages of each output topic, as Avro.
        unknown: destinations that are missing in the airports table, with the number of flights that took off to them.
        never: flights that did not take off.
        booked: the rows of the ledger; each must be there once.
        aircraft: by tail number, the number of its flights, and their miles.
        rows: rows of the table.
        delays: by airport and hour, the number of flights that took off, and the sum of their delays in minutes.
        airlines: by carrier and airport, the number of flights that took off, and the sum of their delays in minutes.
        weather: the weather by airport and hour.
    """

    topics: dict[str, Streams] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    unknown: Counter[str] = field(default_factory=Counter)
    never: int = 0
    booked: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    aircraft: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: int = 0
    delays: dict[Hour, tuple[int, int]] = field(default_factory=dict)
    airlines: dict[Airline, tuple[int, int]] = field(default_factory=dict)
    weather: dict[Hour, dict[str, float | None]] = field(default_factory=dict)

    def count(self, topic: str) -> int:
        """The number of messages of a topic."""
        return sum(map(len, self.topics[topic].values()))

    def add(self, line: str, number: int, airports: frozenset[str]) -> None:
        """Add one line of the table, the `number`-th from 0."""
        self.rows += 1
        year, month, day, departed, scheduled, dep_delay, _, _, arr_delay, *rest = line.split(",")
        carrier, flight, tail, origin, dest, _, distance = rest[:7]
        if departed == "NA":
            self.never += 1
            return
        if dest not in airports:
            self.unknown[dest] += 1
            return
        date = f"{year}-{month.zfill(2)}-{day.zfill(2)}"
        arrived, known = arr_delay != "NA", tail != "NA"
        message = avro(
            *(date, int(scheduled), carrier, int(flight), *optional(tail if known else None), origin, dest),
            *(int(dep_delay), *optional(int(arr_delay) if arrived else None), int(distance)),
        )
        late = int(arr_delay if arrived else dep_delay) >= LATE_MIN
        for topic in ("flights.clean", "flights.all", "flights.delayed" if late else "flights.on_time"):
            self.topics[topic][tail if known else f"partition {number % PARTITIONS}"].append(message)
        self.topics["flights.by_airline"][f"{carrier} {origin}"].append(message)
        if known:
            self._book(tail, (date, carrier, int(flight), origin, dest), int(distance))
        hour = origin, line.rpartition(",")[2]
        flights, delay = self.delays.get(hour, (0, 0))
        self.delays[hour] = flights + 1, delay + int(dep_delay)
        flights, delay = self.airlines.get((carrier, origin), (0, 0))
        self.airlines[carrier, origin] = flights + 1, delay + int(dep_delay)

    def _book(self, tail: str, flight: tuple[Any, ...], distance: int) -> None:
        """Add a row of the ledger, and a message where its aircraft is due for an inspection."""
        nth, before = self.aircraft.get(tail, (0, 0))
        nth, miles = nth + 1, before + distance
        self.aircraft[tail] = nth, miles
        self.booked[tail, nth, *flight, distance, miles] += 1
        if miles // INSPECTION_MILES > before // INSPECTION_MILES:
            text = json.dumps({"tail": tail, "flights": nth, "miles": miles}, separators=(",", ":"))
            self.topics["flights.inspections"][tail].append(text.encode())

    def see(self, line: str) -> None:
        """Add one line of the table of weather."""
        columns = line.split(",")
        seen = dict(zip(("temp", "wind_speed", "precip", "visib"), (columns[n] for n in (5, 9, 11, 13)), strict=True))
        known = {name: None if text == "NA" else float(text) for name, text in seen.items()}
        self.weather[columns[0], columns[-1]] = known

    def hours(self) -> dict[Hour, dict[str, Any]]:
        """The expected last message of each hour that has both flights and weather."""
        return {
            hour: {"origin": hour[0], "hour": hour[1], "flights": flights, "delay": delay, **self.weather[hour]}
            for hour, (flights, delay) in self.delays.items()
            if hour in self.weather
        }


def avro(*values: str | int) -> bytes:
    """
    A flight as a message in single-object encoding, written by hand.

    Args:
        values: its fields in the order of the schema; see `optional` for those that may be null.
    """
    return MARK + b"".join([_text(one) if isinstance(one, str) else _number(one) for one in values])


@cache
def _number(number: int) -> bytes:
    """Avro's whole number: seven bits a byte, the lowest ones first; the sign is the lowest bit."""
    rest, found = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


@cache
def _text(text: str) -> bytes:
    """Avro's text: the length in bytes, and UTF-8."""
    return _number(len(text.encode())) + text.encode()


def optional(value: str | int | None) -> tuple[str | int, ...]:
    """A field that may be null: the number of the type in the schema, and the value."""
    return (0,) if value is None else (1, value)


def read_topic(bootstrap: str, topic: str) -> Streams:
    """All committed messages of a topic."""
    found: Streams = defaultdict(list)
    for message in _read(bootstrap, topic):
        key = message.key()
        stream = key.decode() if key is not None else f"partition {message.partition()}"
        found[stream].append(message.value())
    return found


ERROR_BYTES = 400
"""Of an error that nobody expects, that many are shown."""


def read_unknown(bootstrap: str, topic: str) -> Counter[str]:
    """The unknown destinations in the messages of the errors topic; of another error what can be read of it."""
    found: Counter[str] = Counter()
    for message in _read(bootstrap, topic):
        text = re.search(rb"'(\w+)' is not in the airports table", message.value())
        found[text[1].decode() if text else re.sub(rb"[^ -~]+", b" ", message.value()[:ERROR_BYTES]).decode()] += 1
    return found


def _read(bootstrap: str, topic: str) -> Iterable[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        open_partitions = set(range(PARTITIONS))
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
        while open_partitions:
            batch = consumer.consume(10_000, 0.2)
            for message in batch:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its codes are named so
                    open_partitions.discard(message.partition())
                else:
                    raise SystemExit(f"reading {topic}: {error}")
    finally:
        consumer.close()


@dataclass(frozen=True)
class Difference:
    """
    The differences between the messages of a topic and the expected ones.

    Attributes:
        lost: missing messages.
        added: messages too many: duplicates, or messages that were not expected.
        reordered: streams with the right messages in the wrong order.
        example: the first difference, as a text.
    """

    lost: int = 0
    added: int = 0
    reordered: int = 0
    example: str = ""

    def __bool__(self) -> bool:
        return bool(self.lost or self.added or self.reordered)


def compare(expected: Streams, found: Streams, *, ordered: bool = True) -> Difference:
    """Compare all messages of all streams; and their order, unless `ordered` is false."""
    lost = added = reordered = 0
    example = ""
    for stream in expected.keys() | found.keys():
        want, have = expected.get(stream, []), found.get(stream, [])
        if want == have:
            continue
        missing, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
        if not (missing or more or ordered):
            continue
        lost += missing.total()
        added += more.total()
        reordered += not (missing or more)
        example = example or f"{stream}: missing {list(missing)[:1]}, too many {list(more)[:1]}"
    return Difference(lost, added, reordered, example)


def read_hours(bootstrap: str, topic: str) -> dict[Hour, list[dict[str, Any]]]:
    """The messages about each hour, oldest first."""
    found: dict[Hour, list[dict[str, Any]]] = defaultdict(list)
    for message in _read(bootstrap, topic):
        row = json.loads(message.value())
        found[row["origin"], row["hour"]].append(row)
    return found


def compare_hours(expected: dict[Hour, dict[str, Any]], found: dict[Hour, list[dict[str, Any]]]) -> Difference:
    """
    Check that the last row of each hour is the expected one, and that each row counts more flights than the one before.

    The rows before the last depend on the micro-batches. But a row is published only if its hour has changed, and then
    it counts more flights. So a row that was published twice, or after a newer one, is found.
    """
    lost = added = reordered = 0
    example = ""
    for hour in expected.keys() | found.keys():
        want, rows = expected.get(hour), found.get(hour, [])
        counts = [row["flights"] for row in rows]
        repeated, unsorted = len(counts) - len(set(counts)), counts != sorted(counts)
        wrong = want is not None and (not rows or rows[-1] != want)
        unknown = len(rows) if want is None else 0
        lost, added, reordered = lost + wrong, added + (unknown or repeated), reordered + unsorted
        if wrong or unknown or repeated or unsorted:
            example = example or f"{hour}: expected {want}, found {rows[-3:]}"
    return Difference(lost, added, reordered, example)


def read_punctuality(bootstrap: str, topic: str) -> dict[Airline, list[tuple[int, int]]]:
    """The totals of each carrier and airport, oldest first: the number of flights, and the sum of their delays."""
    found: dict[Airline, list[tuple[int, int]]] = defaultdict(list)
    for message in _read(bootstrap, topic):
        row = json.loads(message.value())
        found[row["carrier"], row["origin"]].append((row["flights"], row["delay"]))
    return found


def compare_punctuality(
    expected: dict[Airline, tuple[int, int]], found: dict[Airline, list[tuple[int, int]]]
) -> Difference:
    """
    Check that the flights of each carrier and airport count 1, 2, 3 to the expected number, and the last sum of delays.

    The flights come in an order that is not known before, so the sums in between are not compared. A wrong last sum is
    one message lost and one too many.
    """
    lost = added = reordered = 0
    example = ""
    for airline in expected.keys() | found.keys():
        flights, delay = expected.get(airline, (0, 0))
        rows = found.get(airline, [])
        want, have = list(range(1, flights + 1)), [row[0] for row in rows]
        wrong = flights in have and (flights, delay) not in rows
        if want == have and not wrong:
            continue
        missing, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
        lost, added = lost + missing.total() + wrong, added + more.total() + wrong
        reordered += have != sorted(have)
        at = next((n for n in range(len(have)) if want[n : n + 1] != have[n : n + 1]), len(have))
        example = example or f"{airline}: expected {flights, delay} in the end, found {rows[max(0, at - 1) : at + 2]}"
    return Difference(lost, added, reordered, example)


def read_ledger(url: str) -> tuple[Counter[tuple[Any, ...]], dict[str, tuple[int, int]]]:
    """The rows of the ledger, and the totals of each aircraft, in the database at this address."""
    columns = "tail, nth, date, carrier, number, origin, dest, distance, miles"
    with closing(_connected(url)) as db:
        booked = Counter(map(tuple, db.execute(f"SELECT {columns} FROM ledger")))  # noqa: S608
        found = {
            tail: (flights, miles) for tail, flights, miles in db.execute("SELECT tail, flights, miles FROM aircraft")
        }
    return booked, found


def _connected(url: str) -> Any:
    if url.startswith("sqlite:///"):
        return sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)
    import psycopg  # noqa: PLC0415 - SQLite needs no driver

    return psycopg.connect(url)


def compare_ledger(
    expected: Expected, booked: Counter[tuple[Any, ...]], aircraft: dict[str, tuple[int, int]]
) -> Difference:
    """Compare all rows of the ledger, and the totals of all aircraft."""
    have, want = Counter(booked), Counter(expected.booked)
    have.update(aircraft.items())
    want.update(expected.aircraft.items())
    missing, more = want - have, have - want
    example = f"missing {list(missing)[:1]}, too many {list(more)[:1]}" if missing or more else ""
    return Difference(missing.total(), more.total(), 0, example)
