"""Slots whose processor writes to a database: rows, messages and errors are those of a native worker (E1, D3, D5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Sink, Source, Sql
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.client import Client
from cues_kafka.core.records import Attempt
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.ports.log import TopicPartition
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from tests.unit.sinks.test_own import KEPT, STORED, Shelves

IN = TopicPartition("in", 0)
COUNT = 20
BAD, DOUBLE, NIL = 7, 4, 3
"""Of ten numbers: one is refused behind its row, one violates a constraint, one has a row and no message."""

EFFECTS = ("AskTarget", "Begin", "Call", "Commit", "CommitTarget", "Flush", "Init", "Produce", "SendOffsets")


class Killed(BaseException):
    """Ends a slot as SIGKILL would: nothing of it runs any more."""


def book(n: int, db: Any) -> int | None:
    """A row and a message."""
    db.execute("INSERT INTO booked VALUES (?)", (n,))
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    if n % 10 == DOUBLE:
        db.execute("INSERT INTO booked VALUES (?)", (n,))
    return None if n % 10 == NIL else n


def quiet(n: int, db: Any) -> None:
    """A row alone, so that the database may commit several parts before Kafka (E1)."""
    db.execute("INSERT INTO booked VALUES (?)", (n,))


class World:
    """One processor with a database over one partition, and slots on it."""

    def __init__(self, into: Any, made: Callable[[Any], Processor]) -> None:
        self.processor = made(into)
        self.graph = Graph("g", Source("in"), self.processor, errors="errors")
        self.broker = MemoryBroker()
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.client = Client(self.broker, self.graph, name="test")
        self.identity = Identity.of_process("spark", "query")
        self._attempts = 0

    def slot(self, hook: Hook | None = None, most: int = 3) -> Slot:
        """Another Spark task attempt."""
        self._attempts += 1
        who = replace(self.identity, incarnation=f"run.{self._attempts}")
        spec = replace(spec_of(self.graph, self.planned, self.processor, 1, who)(0), slot=True)
        caller = caller_of(self.graph, self.processor, self.facts, {}, 1_000_000)
        policy = CommitPolicy(max_messages=most)
        return Slot(spec, caller, broker=self.broker, clock=SystemClock(), hook=hook, policy=policy)

    def killed(self, moment: str, effect: str, nth: int) -> bool:
        """Run a slot that dies there; its connections end with it. Whether it came there."""
        left = nth

        def die(when: str, what: str) -> None:
            nonlocal left
            left -= (when, what) == (moment, effect)
            if not left:
                raise Killed

        slot = self.slot(die)
        slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
        try:
            slot.deliver(self.ends, first=False)
        except Killed:
            return True
        finally:
            for part in slot._lane._desk.at.close:
                part.close(orderly=False)
        return False

    @property
    def ends(self) -> dict[str, int]:
        """The last stable offset of the input."""
        return {"in": self.broker.watermarks([IN])[IN].stable}

    def steps(self) -> list[int]:
        """Where the attempts of Kafka end."""
        records = records_of(list(read_all(self.broker, f"g.{self.processor.name}.backing", 1)))
        return [one.step for one in records if isinstance(one, Attempt)]


class Local(World):
    """On SQLite."""

    def __init__(self, path: Path, made: Callable[[Sql], Processor]) -> None:
        self.path = path / "shop.db"
        with sqlite3.connect(self.path) as opened:
            opened.execute("CREATE TABLE booked (n INTEGER PRIMARY KEY)")
        super().__init__(Sql(f"sqlite:///{self.path}"), made)

    def rows(self) -> list[int]:
        """What readers of the database see."""
        with sqlite3.connect(self.path) as opened:
            return [row[0] for row in opened.execute("SELECT n FROM booked ORDER BY n")]


def booking(into: Sql) -> Processor:
    return Processor(book, inputs="in", outputs="out", effects={"db": into}, quarantine_after=None)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_slot_that_dies_at_any_effect_leaves_one_outcome_of_each_message(
    effect: str, moment: str, tmp_path: Path
) -> None:
    """The next slot asks the database, publishes what it is ahead with, and goes on; each has its row once."""
    world = Local(tmp_path, booking)
    world.client.send_many("in", list(range(COUNT)))
    killed = [world.killed(moment, effect, nth) for nth in (1, 2, 4)]
    assert killed[0], "a point that no slot passes proves nothing"
    outcome = world.slot().deliver(world.ends, first=True)

    assert (outcome.kind, outcome.positions) == ("", world.ends)
    kept = [n for n in range(COUNT) if n % 10 not in (BAD, DOUBLE)]
    assert world.rows() == kept
    assert [one.value for one in world.client.messages("out")] == [n for n in kept if n % 10 != NIL]
    errors = [one.value.exception for one in world.client.messages("errors")]
    assert sorted(errors) == ["IntegrityError"] * 2 + ["ValueError"] * 2
    assert outcome.totals.deliveries == COUNT


def test_declared_sink_is_written_by_slots_and_a_row_that_is_refused_becomes_an_error(tmp_path: Path) -> None:
    """As natively: the row is of its message alone."""
    world = Local(tmp_path, lambda into: Sink("rows", inputs="in", into=into.table("booked", columns=["n"])))
    world.client.send_many("in", [{"n": n} for n in (1, 2, 2, 3)])

    outcome = world.slot().deliver(world.ends, first=False)

    assert (outcome.kind, outcome.counts.deliveries, outcome.counts.errors) == ("", 4, 1)
    assert world.rows() == [1, 2, 3]
    [error] = world.client.messages("errors")
    assert "refuses a row" in error.value.text


def test_parts_of_the_database_come_before_one_transaction_of_kafka(tmp_path: Path, monkeypatch: Any) -> None:
    """E1: a slot does not move over markers while a batch is open, also where a part has taken the last message."""
    world = Local(tmp_path, lambda into: Processor(quiet, inputs="in", effects={"db": into}))
    world.client.send_many("in", list(range(9)))
    held: list[int] = []
    commit = SqlTarget.commit

    def noting(target: SqlTarget, attempt: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        held.append(attempt.step)
        commit(target, attempt, records)

    monkeypatch.setattr(SqlTarget, "commit", noting)

    outcome = world.slot().deliver(world.ends, first=False)

    assert outcome.positions == world.ends
    assert world.rows() == list(range(9))
    assert len(held) > len(world.steps()), "else no part was committed"
    assert world.steps()[-1] == 9


def test_slot_that_sleeps_through_another_one_commits_nothing(tmp_path: Path) -> None:
    """D5, E1: the other owner has the row; what this slot has called is void in the database too."""
    world = Local(tmp_path, booking)
    world.client.send_many("in", list(range(COUNT)))
    twin: list[Any] = []

    def overtaken(when: str, what: str) -> None:
        if (when, what) == ("before", "Commit") and len(world.rows()) >= 3 and not twin:
            twin.append(world.slot().deliver(world.ends, first=True))

    outcome = world.slot(overtaken).deliver(world.ends, first=False)

    assert twin
    assert (outcome.kind, outcome.positions) == ("", world.ends)
    assert world.rows() == [n for n in range(COUNT) if n % 10 not in (BAD, DOUBLE)]
    assert outcome.totals.deliveries == COUNT


def shelve(n: int, db: Any) -> int:
    """Something in a target of this process, and a message."""
    db.write(n)
    return n


@pytest.mark.parametrize("moment", [("after", "Call"), ("before", "CommitTarget")])
def test_slot_that_hears_of_its_later_owner_from_the_target_never_takes_the_id_again(moment: tuple[str, str]) -> None:
    """D5: else each of two slots would void what the other one calls, in turn; another slot delivers the range."""
    world = World(Shelves(), lambda into: Processor(shelve, inputs="in", outputs="out", effects={"db": into}))
    world.client.send_many("in", list(range(COUNT)))
    twin: list[Any] = []
    inits: list[str] = []

    def overtaken(when: str, what: str) -> None:
        if twin and what == "Init":
            inits.append(when)
        if (when, what) == moment and not twin:
            twin.append(world.slot().deliver(world.ends, first=True))

    try:
        outcome = world.slot(overtaken).deliver(world.ends, first=False)
        stored = list(STORED)
    finally:
        KEPT.clear()
        STORED.clear()

    assert (outcome.kind, outcome.positions, outcome.fenced) == ("", world.ends, True)
    assert inits == []
    assert stored == [one.value for one in world.client.messages("out")] == list(range(COUNT))
