"""Write every report of a flight to a database table, and keep the newest one of each flight in another.

The database is a SQLite file; PostgreSQL and MariaDB take the same graph. Both tables get each report exactly once.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/latest.py``.
"""

import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cues_kafka import Graph, Json, Kafka, Message, Received, Sink, Source, Sql, Topic, start


@dataclass(frozen=True)
class Report:
    """Where a flight is. A message without a value says that it has landed."""

    flight: str
    minute: int
    altitude: int


TABLES = """
CREATE TABLE report (flight TEXT, minute INTEGER, altitude INTEGER);
CREATE TABLE latest (flight TEXT PRIMARY KEY, minute INTEGER, altitude INTEGER,
    cues_source VARCHAR(40), cues_offset BIGINT, cues_deleted BOOLEAN NOT NULL DEFAULT FALSE);
"""
COLUMNS = ["flight", "minute", "altitude"]


def in_the_air(received: Received) -> bool:
    """Whether a message has a value."""
    return received.value is not None


def radar(database: Sql) -> Graph:
    """Two sinks without a function."""
    return Graph(
        "radar",
        Source("radar.reports"),
        Sink("report", inputs="radar.reports", into=database.table("report", columns=COLUMNS), filter=in_the_air),
        Sink("latest", inputs="radar.reports", into=database.upsert("latest", key="flight", columns=COLUMNS)),
        errors="radar.errors",
        defaults=Topic(value=Json(Report), key="flight", partitions=2),
    )


if __name__ == "__main__":
    path = Path(tempfile.mkdtemp()) / "radar.db"
    with sqlite3.connect(path) as made:
        made.executescript(TABLES)
    with start(radar(Sql(f"sqlite:///{path}")), Kafka("localhost:9092")) as running:
        running.send_many("radar.reports", [Report("UA1", 0, 300), Report("B62", 0, 500), Report("UA1", 1, 1500)])
        running.send("radar.reports", Message(None, key="B62"))
        running.wait_idle(timeout_s=30)
    with sqlite3.connect(path) as made:
        print(made.execute("SELECT count(*) FROM report").fetchone())
        print(made.execute("SELECT flight, minute, altitude FROM latest WHERE NOT cues_deleted").fetchall())
