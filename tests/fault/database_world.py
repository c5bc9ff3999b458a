"""The graph that writes to a database and is killed, and the body of the processes that run it (see test_databases)."""

from __future__ import annotations

import resource
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pymysql.constants import COMMAND

from cues_kafka import Graph, Json, Kafka, Processor, Source, Sql, Topic, start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.sinks.dialect import RELEASE, Dialect, Finish
from cues_kafka.sinks.lookup import dialect
from tests.fault.killing import Killing, Point, die

PARTITIONS = 2
BAD, DOUBLE, NIL = 7, 4, 3
"""Of ten numbers: one is refused behind its row, one violates a constraint, one has a row and no message."""

TABLES = tuple(
    statement
    for name in ("one", "many")
    for statement in (
        f"DROP TABLE IF EXISTS {name}",
        f"CREATE TABLE {name} (n integer PRIMARY KEY, twice integer)",
    )
)

KILLED = (-signal.SIGKILL, -signal.SIGXFSZ)
"""How a process ends that dies at its point. SQLite commits in the process itself; there, a limit on files ends it."""

FRAME: Final = 24 + 4096
"""Bytes that one page takes in the log of SQLite."""


def one(n: int, db: Any) -> int | None:
    """A row and a message."""
    db.execute(f"INSERT INTO one VALUES ({n}, {2 * n})")
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 == DOUBLE:
        db.execute(f"INSERT INTO one VALUES ({n}, {2 * n})")
    return None if n % 10 == NIL else n


def many(numbers: list[int], db: Any) -> list[int | None]:
    """The same for a list; in PostgreSQL by `COPY`."""
    db.insert("many", ["n", "twice"], [(n, 2 * n) for n in numbers])
    for n in numbers:
        if n % 10 == BAD:
            raise ValueError(f"bad {n}")
        if n % 10 == DOUBLE:
            db.execute(f"INSERT INTO many VALUES ({n}, {2 * n})")
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


def _commit_in_postgresql(connection: Any) -> None:
    """Die with the commit on its way to the server."""
    connection.pgconn.send_query(b"COMMIT")
    connection.pgconn.flush()
    die()


def _commit_in_mysql(connection: Any) -> None:
    """Die with the commit on its way to the server."""
    connection._execute_command(COMMAND.COM_QUERY, "COMMIT")
    die()


def _commit_in_sqlite(connection: Any) -> None:
    """Die when the log has one page of the commit, and half of the next one."""
    (path,) = (row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main")
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size + FRAME * 3 // 2, most))
    connection.execute("COMMIT")
    raise AssertionError("the commit wrote less than two pages, so it was not cut")


COMMITS: Final[Mapping[str, Callable[[Any], None]]] = {
    "postgresql": _commit_in_postgresql,
    "mysql": _commit_in_mysql,
    "sqlite": _commit_in_sqlite,
}
"""For each database, how a process begins a commit that it does not see the end of."""


def run(bootstrap: str, prefix: str, url: str, point: Point | None, partitions: int = PARTITIONS) -> None:
    """Run until idle, or be killed at the nth time at a point; `inside` is while the commit is under way."""
    hook = Ahead(point)
    kind: type[Dialect] = type(dialect(Sql(url)))
    finish = kind.finish
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it

    def finish_and_die(self: Dialect, connection: Any, last: Finish) -> None:
        if not hook.at("inside", "CommitTarget"):
            finish(self, connection, last)
            return
        self.execute(connection, RELEASE)
        for statement, parameters in (*last.before, last.advance):
            self.execute(connection, statement, parameters)
        for row in last.rows:
            self.execute(connection, last.fill, row)
        COMMITS[self.name](connection)

    kind.finish = finish_and_die  # type: ignore[method-assign]
    policy = CommitPolicy(max_messages=4)
    shop = graph(prefix, url, partitions)
    with start(shop, Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=hook) as running:
        running.wait_idle(timeout_s=60)


def kept(numbers: Iterable[int]) -> list[int]:
    """Those that have a row."""
    return sorted(n for n in numbers if n % 10 not in (BAD, DOUBLE))
