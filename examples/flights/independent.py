"""What must come out, computed from the tables by plain Python, and what did, read by a plain consumer.

Nothing here imports cues_kafka: it is the other opinion.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from examples.flights.data import Row

PARTITIONS = 4
LATE_MIN = 15

Streams = dict[str, list[bytes]]
"""The messages of one topic in order, by what must keep its order: the key, or where there is none the partition."""


@dataclass
class Expected:
    """
    The outcome by the tables.

    Attributes:
        topics: the messages of each output topic, as JSON.
        unknown: destinations that are not in the airports table, and how many flights took off to them.
        never: flights that did not take off.
        booked: rows of the ledger and how often each must be there.
        rows: rows of the table.
    """

    topics: dict[str, Streams] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    unknown: Counter[str] = field(default_factory=Counter)
    never: int = 0
    booked: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    rows: int = 0

    def count(self, topic: str) -> int:
        """Messages of a topic."""
        return sum(map(len, self.topics[topic].values()))

    def add(self, row: Row, number: int, airports: frozenset[str]) -> None:
        """Follow one row of the table, the `number`-th from 0."""
        self.rows += 1
        if row["dep_time"] == "NA":
            self.never += 1
        elif row["dest"] not in airports:
            self.unknown[row["dest"]] += 1
        else:
            stream = place(row, number)
            late = row["arr_delay"] if row["arr_delay"] != "NA" else row["dep_delay"]
            message = _message(row)
            self.topics["flights.clean"][stream].append(message)
            self.topics["flights.all"][stream].append(message)
            self.topics["flights.delayed" if int(late) >= LATE_MIN else "flights.on_time"][stream].append(message)
            self.booked[_booking(row)] += 1


def place(row: Row, number: int) -> str:
    """The stream of a row: its tail number; without one the partition that it was sent to, by turns."""
    return row["tailnum"] if row["tailnum"] != "NA" else f"partition {number % PARTITIONS}"


def _message(row: Row) -> bytes:
    flight = {
        "date": "-".join((row["year"], row["month"].zfill(2), row["day"].zfill(2))),
        "scheduled": int(row["sched_dep_time"]),
        "carrier": row["carrier"],
        "number": int(row["flight"]),
        "tail": row["tailnum"] if row["tailnum"] != "NA" else None,
        "origin": row["origin"],
        "dest": row["dest"],
        "dep_delay": int(row["dep_delay"]),
        "arr_delay": int(row["arr_delay"]) if row["arr_delay"] != "NA" else None,
        "distance": int(row["distance"]),
    }
    return json.dumps(flight, separators=(",", ":"), ensure_ascii=False).encode()


def _booking(row: Row) -> tuple[Any, ...]:
    date = "-".join((row["year"], row["month"].zfill(2), row["day"].zfill(2)))
    return date, row["carrier"], int(row["flight"]), row["origin"], row["dest"], int(row["distance"])


def read_topic(bootstrap: str, topic: str) -> Streams:
    """All committed messages of a topic."""
    found: Streams = defaultdict(list)
    for message in _read(bootstrap, topic):
        key = message.key()
        stream = key.decode() if key is not None else f"partition {message.partition()}"
        found[stream].append(message.value())
    return found


def read_unknown(bootstrap: str, topic: str) -> Counter[str]:
    """The destinations that the messages of the errors topic complain of; "?": of something else."""
    found: Counter[str] = Counter()
    for message in _read(bootstrap, topic):
        text = re.search(rb"'(\w+)' is not in the airports table", message.value())
        found[text[1].decode() if text else "?"] += 1
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
    What a topic has against what it must have.

    Attributes:
        lost: messages that are missing.
        added: messages that are too many: duplicates, or never expected.
        reordered: streams with the right messages in the wrong order.
        example: the first one, for people.
    """

    lost: int = 0
    added: int = 0
    reordered: int = 0
    example: str = ""

    def __bool__(self) -> bool:
        return bool(self.lost or self.added or self.reordered)


def compare(expected: Streams, found: Streams) -> Difference:
    """Message by message, stream by stream."""
    lost = added = reordered = 0
    example = ""
    for stream in expected.keys() | found.keys():
        want, have = expected.get(stream, []), found.get(stream, [])
        if want == have or (len(want) == len(have) and _same(want, have)):
            continue
        missing, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
        lost += missing.total()
        added += more.total()
        reordered += not (missing or more)
        example = example or f"{stream}: missing {list(missing)[:1]}, too many {list(more)[:1]}"
    return Difference(lost, added, reordered, example)


def _same(want: list[bytes], have: list[bytes]) -> bool:
    """The same values, although written in another way."""
    return [json.loads(one) for one in want] == [json.loads(one) for one in have]


def read_ledger(path: Path) -> tuple[int, Counter[tuple[Any, ...]]]:
    """How many different hashes the ledger has, and its rows."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = Counter(db.execute("SELECT date, carrier, number, origin, dest, distance FROM ledger"))
        [hashes] = db.execute("SELECT count(DISTINCT hash) FROM ledger").fetchone()
    return hashes, rows
