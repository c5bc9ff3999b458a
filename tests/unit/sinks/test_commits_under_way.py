"""E1: a target whose commit of a part is under way while the next part is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Message, Processor, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import Attempt
from cues_kafka.errors import OutputError
from cues_kafka.targets import TargetMoved, TaskName, TransactionalTarget, Transactions
from cues_kafka.task.parts.part_commits import MOST
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from tests.unit.task.test_guards import Disturbed

SMALL = 2
"""Messages in a part, and under the snapshot of the first batch."""

MESSAGES = SMALL + MOST * SMALL + 5


@dataclass(eq=False)
class System:
    """
    What is committed, and what came of it.

    Attributes:
        kept: bytes of the task.
        rows: what is committed.
        said: what was asked of it and called, in order.
        refuses: rows that it refuses.
        loses: how many commits under way are lost with their connection, from the second one on.
    """

    kept: bytes | None = None
    rows: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    refuses: set[int] = field(default_factory=set)
    loses: int = 0


class Slow(Transactions):
    """A commit that was started is done when it is waited for, or when the connection is closed."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.items: list[int] = []
        self.under_way: Callable[[], None] | None = None

    def ask(self) -> bytes | None:
        self.finish_commit()
        return self.system.kept

    def begin(self) -> None:
        self.items = []

    def write(self, item: int) -> None:
        self.items.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        self.start_commit(kept, over)
        self.finish_commit()

    def start_commit(self, kept: bytes, over: bytes | None) -> None:
        assert self.under_way is None, "one commit is under way already"
        system, items = self.system, self.items
        system.said.append("start")

        def do() -> None:
            if refused := system.refuses.intersection(items):
                raise OutputError(f"{refused} is refused")
            if system.kept != over:
                raise TargetMoved("something else is kept")
            system.kept = kept
            system.rows += items

        self.under_way, self.items = do, []

    def finish_commit(self) -> None:
        do, self.under_way = self.under_way, None
        if do is None:
            return
        self.system.said.append("finish")
        if self.system.loses and self.system.said.count("start") > 3:
            self.system.loses -= 1
            raise ConnectionError("it is lost")
        do()

    def close(self) -> None:
        self.under_way = None


@dataclass(frozen=True)
class Target(TransactionalTarget):
    """The declaration."""

    system: System
    rests_on = "the process lives"

    def open(self, task: TaskName) -> Transactions:
        return Slow(self.system)


class World:
    """A tester with one task that writes each number."""

    def __init__(self) -> None:
        self.system, self.called = System(), list[int]()
        processor = Processor(self.work, name="f", inputs="in", effects={"to": Target(self.system)})
        graph = Graph("g", Source("in"), processor, errors="failed", defaults=Topic(partitions=1))
        self.faults = Disturbed("commit", lambda _: self.system.said.append("kafka"))
        broker = MemoryBroker(clock=VirtualClock(), faults=self.faults)
        self.tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=SMALL))

    def work(self, n: int, to: Any) -> None:
        """Write it."""
        self.called.append(n)
        self.system.said.append(f"call {n}")
        to.write(n)

    def run(self, messages: int, crash: Crash | None = None) -> None:
        """Deliver this number of messages."""
        for n in range(messages):
            self.tester.send("in", Message(n, partition=0))
        self.tester.run(crash=crash)


@pytest.fixture
def world() -> World:
    """A new one."""
    return World()


def test_next_part_is_called_while_the_commit_of_the_one_before_is_under_way(world: World) -> None:
    """It ends before the next one starts, and Kafka's transaction comes behind the end of the last one."""
    world.run(SMALL + 3 * SMALL)

    said = world.system.said
    at = said.index("call 2")
    calls = [["call 2", "call 3", "start"], ["call 4", "call 5", "finish", "start"], ["call 6", "call 7"]]
    assert said[at : at + 9] == [one for some in calls for one in some]
    assert said[at + 9 :] == ["finish", "start", "finish", "kafka"]
    assert world.system.rows == [*range(8)]


@pytest.mark.parametrize("messages", range(SMALL, SMALL + MOST * SMALL + 4))
def test_kafka_commits_only_what_the_target_has_committed(messages: int, world: World) -> None:
    """Wherever the messages end: in a part, or behind one."""
    world.faults.disturb = lambda _: world.system.said.append(f"kafka {len(world.system.rows)}")
    world.run(messages)

    ends = [one.step for one in world.tester.records("f") if isinstance(one, Attempt)]
    committed = [int(one.removeprefix("kafka ")) for one in world.system.said if one.startswith("kafka ")]
    assert committed[-len(ends) :] == ends
    assert world.system.rows == [*range(messages)] == [*range(ends[-1])]


@pytest.mark.parametrize("loses", [1, 2])
def test_commit_that_was_lost_under_way_is_called_again_with_the_part_behind_it(loses: int, world: World) -> None:
    """What was called behind it is void: it was to be committed over bytes that are not there."""
    world.system.loses = loses
    world.run(MESSAGES)

    assert world.system.rows == [*range(MESSAGES)]
    assert len(world.called) > MESSAGES
    assert world.tester.totals("f").deliveries == MESSAGES
    assert world.tester.errors() == []


def test_row_that_is_refused_under_way_becomes_an_error_of_its_own_step(world: World) -> None:
    """The steps of that part are committed one by one."""
    world.system.refuses = {7}
    world.run(MESSAGES)

    assert world.system.rows == [n for n in range(MESSAGES) if n != 7]
    [error] = world.tester.errors()
    assert "{7} is refused" in error.text


@pytest.mark.parametrize("nth", [1, 2, 3, 5])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["CommitTarget", "Begin", "Commit", "Call"])
def test_crash_at_any_moment_leaves_each_row_once(effect: str, moment: str, nth: int, world: World) -> None:
    """A commit that is under way is lost with its process here."""
    world.run(MESSAGES, Crash(moment, effect, nth))
    world.tester.restart().run()

    assert world.system.rows == [*range(MESSAGES)]
    assert world.tester.totals("f").deliveries == MESSAGES
