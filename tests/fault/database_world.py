"""The graph that writes to a database and is killed, and the body of the processes that run it (see test_databases)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from cues_kafka import Graph, Json, Kafka, Processor, Source, Sql, Topic, start
from cues_kafka.runtime import CommitPolicy
from cues_kafka.sinks.dialect import INTO_OUTBOX
from cues_kafka.sinks.postgres import Postgres
from tests.fault.killing import Killing, Point, die

PARTITIONS = 2
BAD, DOUBLE, NIL = 7, 4, 3
"""Of ten numbers: one is refused behind its row, one violates a constraint, one has a row and no message."""

TABLES = (
    "CREATE TABLE one (n integer PRIMARY KEY, twice integer); CREATE TABLE many (n integer PRIMARY KEY, twice integer)"
)


def one(n: int, db: Any) -> int | None:
    """A row and a message."""
    db.execute("INSERT INTO one VALUES (%s, %s)", (n, 2 * n))
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 == DOUBLE:
        db.execute("INSERT INTO one VALUES (%s, %s)", (n, 2 * n))
    return None if n % 10 == NIL else n


def many(numbers: list[int], db: Any) -> list[int | None]:
    """The same for a list, by `COPY`."""
    db.insert("many", ["n", "twice"], [(n, 2 * n) for n in numbers])
    for n in numbers:
        if n % 10 == BAD:
            raise ValueError(f"bad {n}")
        if n % 10 == DOUBLE:
            db.execute("INSERT INTO many VALUES (%s, %s)", (n, 2 * n))
    return [None if n % 10 == NIL else n for n in numbers]


class Ahead(Killing):
    """
    Kills also at the moment `ahead`: behind a `Call`, or at a `Commit`, while the two are under way at once (P7).

    Each commit waits for a call then, for there may be one, so that it does not matter which thread is quicker.
    """

    def __init__(self, point: Point | None) -> None:
        super().__init__(point)
        self._waits = point is not None and point[0] == "ahead"
        self._committing: set[str] = set()
        self._called: dict[str, threading.Event] = defaultdict(threading.Event)

    def __call__(self, moment: str, effect: str) -> None:
        """What the interpreter and the lane call, on the threads of the processor."""
        super().__call__(moment, effect)
        processor = threading.current_thread().name.partition("-")[0]
        match moment, effect:
            case "before", "Begin":
                self._called[processor].clear()
                self._committing.add(processor)
            case "after", "Call" if processor in self._committing:
                self._called[processor].set()
                self._die_at(effect)
            case "before", "Commit" if self._waits and self._called[processor].wait(0.5):
                self._die_at(effect)
            case "after", "Commit":
                self._committing.discard(processor)

    def _die_at(self, effect: str) -> None:
        if self.at("ahead", effect):
            die()


def graph(prefix: str, url: str, partitions: int = PARTITIONS) -> Graph:
    """
    Two processors with one database.

    Quarantine is off: kills from outside may meet one message three times, and it would become an error (I11).
    """
    shared: dict[str, Any] = {
        "inputs": f"{prefix}.numbers",
        "effects": {"db": Sql(url)},
        "quarantine_after": None,
    }
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(one, outputs=f"{prefix}.one", errors=f"{prefix}.failed-one", **shared),
        Processor(many, outputs=f"{prefix}.many", errors=f"{prefix}.failed-many", batch=True, **shared),
        defaults=Topic(value=Json(), partitions=partitions),
    )


def run(bootstrap: str, prefix: str, url: str, point: Point | None, partitions: int = PARTITIONS) -> None:
    """Run until idle, or be killed at the nth time at a point; `inside` is while the commit is under way."""
    hook = Ahead(point)
    finish = Postgres.finish

    def finish_and_die(
        self: Postgres, connection: Any, statements: Sequence[tuple[str, Sequence[Any]]], rows: Sequence[Sequence[Any]]
    ) -> None:
        if not hook.at("inside", "CommitTarget"):
            finish(self, connection, statements, rows)
            return
        connection.execute("RELEASE SAVEPOINT cues")
        for statement, parameters in statements:
            self.execute(connection, statement, parameters)
        for row in rows:
            self.execute(connection, INTO_OUTBOX, row)
        connection.pgconn.send_query(b"COMMIT")
        connection.pgconn.flush()
        die()

    Postgres.finish = finish_and_die  # type: ignore[method-assign]
    policy = CommitPolicy(max_messages=4)
    shop = graph(prefix, url, partitions)
    with start(shop, Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=hook) as running:
        running.wait_idle(timeout_s=60)


def rows(url: str, table: str) -> list[tuple[int, int]]:
    """The rows of a table, in order."""
    with psycopg.connect(url) as connection:
        return [(row[0], row[1]) for row in connection.execute(f"SELECT n, twice FROM {table} ORDER BY n")]


def kept(numbers: Iterable[int]) -> list[int]:
    """Those that have a row."""
    return sorted(n for n in numbers if n % 10 not in (BAD, DOUBLE))
