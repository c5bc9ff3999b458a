"""The graph that drivers run whose slots write to a database, and what must come out of it (E1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cues_kafka import Graph, Out, Sql
from tests.fault.support import Setup, _avro, _task_records, check_chain, committed_all, outcomes
from tests.integration.databases import Shop
from tests.spark.drivers import SINKS, Numbers
from tests.spark.fault_driver import BAD, NIL, PARTITIONS

GRAPH = "tests.spark.database_driver:graph"

DOUBLE = 5
"""Of ten numbers: the one whose row the database refuses."""


def book(n: int, db: Any) -> Iterator[Out]:
    """A row, and one output or two; one number raises behind its row, one violates a constraint, one is quiet."""
    db.execute("INSERT INTO shop (id, text) VALUES (%s, %s)", (n, f"number {n}"))
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 == DOUBLE:
        db.execute("INSERT INTO shop (id, text) VALUES (%s, %s)", (n, "again"))
    if n % 10 != NIL:
        yield Out("all", n)
        if n % 2 == 0:
            yield Out("even", n)


def graph(name: str, url: str) -> Graph:
    """
    One fork with a database. Quarantine is off: many kills from outside may meet one message (I11).

    Args:
        name: of the graph, and prefix of its topics.
        url: of the database.
    """
    outputs = {binding: f"{name}.{binding}" for binding in SINKS}
    effects = {"db": Sql(url)}
    return Setup("", name).graph(book, outputs=outputs, partitions=PARTITIONS, quarantine_after=None, effects=effects)


class Booked(Numbers):
    """What goes in, and what readers of Kafka and of the database see."""

    def __init__(self, setup: Setup, shop: Shop) -> None:
        super().__init__(setup)
        self.shop = shop

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What the database has."""
        return self.shop.query("SELECT id, text FROM shop ORDER BY id")

    def check(self, **more: int) -> None:
        """Each number has its row and its messages, or one error message and nothing else."""
        assert not more
        setup = self.setup
        found = committed_all(
            setup.bootstrap, [*(f"{setup.name}.{sink}" for sink in SINKS), setup.errors, setup.backing]
        )
        kept = [n for n in range(self.count) if n % 10 not in (BAD, DOUBLE)]
        assert self.rows == [(n, f"number {n}") for n in kept]
        sent = [n for n in kept if n % 10 != NIL]
        everything, even, failed, own = found.values()
        self._check_order(everything, sent)
        self._check_order(even, [n for n in sent if n % 2 == 0])
        errors = Counter(_avro(one.value() or b"", "error")["exception"] for one in failed)
        refused = {"postgresql": "UniqueViolation", "mysql": "IntegrityError"}[self.shop.name]
        assert errors == {"ValueError": self.of(BAD), refused: self.of(DOUBLE)}
        seen = outcomes([*everything, *even, *failed])
        assert set(seen.values()) == {1}
        assert len(seen) == self.count - self.of(NIL)
        records = _task_records(own)
        check_chain(records)
        assert sum(partition[-1]["totals"]["deliveries"] for partition in records) == self.count
        self.verify(graph(setup.name, self.shop.url))

    def of(self, digit: int) -> int:
        """How many numbers end so."""
        return sum(n % 10 == digit for n in range(self.count))

    def ahead(self) -> bool:
        """Whether a row of the database is ahead of its task's newest record."""
        steps = dict(self.shop.query("SELECT part, step FROM cues_task"))
        records = _task_records(committed_all(self.setup.bootstrap, [self.setup.backing])[self.setup.backing])
        return any(steps.get(part, 0) > own[-1]["step"] for part, own in enumerate(records))
