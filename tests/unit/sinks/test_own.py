"""E1: a target of a user's own in a graph: plans, starts, sinks, errors, and what tools see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from cues_kafka import (
    CodecError,
    CommitPolicy,
    ConfigError,
    Graph,
    GraphError,
    Message,
    OutputError,
    Processor,
    Sink,
    Source,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.errors import RetriableError
from cues_kafka.graph.effects import Effect
from cues_kafka.plan.edges import edges_of
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.kept import Kept
from cues_kafka.sinks.lookup import open_target
from cues_kafka.sinks.traces import AskedAttempt, traces
from cues_kafka.targets import TargetMoved, TargetPart, TaskName, TransactionalTarget, Transactions, Write
from cues_kafka.testing.tester import Tester, VirtualClock
from tests.unit.task.test_guards import Disturbed

RECORD = ("out", 1, b"k", b"v", [("h", None)], 7)
FAULTS: dict[str, Callable[[], None]] = {}
"""What a call of a method does before it does its work, by the method's name."""
KEPT: dict[tuple[str, str], bytes] = {}
STORED: list[Any] = []
REFUSALS: list[str] = []


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Begin and end each test with an empty system."""
    yield
    for one in (FAULTS, KEPT, STORED, REFUSALS):
        one.clear()


class Shelf(Transactions):
    """Transactions in this process."""

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.items: list[Any] = []

    def ask(self) -> bytes | None:
        self._fault("ask")
        return KEPT.get(self.key)

    def begin(self) -> None:
        self.items = []

    def write(self, item: Any) -> None:
        if item == "bad":
            raise OutputError("it is bad")
        self.items.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        self._fault("commit")
        if KEPT.get(self.key) != over:
            raise TargetMoved("another was here")
        KEPT[self.key] = kept
        STORED.extend(self.items)

    def close(self) -> None:
        pass

    def _fault(self, name: str) -> None:
        FAULTS.get(name, lambda: None)()


@dataclass(frozen=True)
class Shelves(TransactionalTarget):
    """A system in this process."""

    name: str = "main"
    password: str = field(default="", metadata={"hidden": True})
    rests_on = "the process lives"

    def open(self, task: TaskName) -> Transactions:
        return Shelf((self.name, task.key))

    def inspect(self) -> Iterable[str]:
        FAULTS.get("inspect", lambda: None)()
        return REFUSALS


@dataclass(frozen=True)
class Board(TargetPart):
    """A part of it, whose writes have its name."""

    shelves: Shelves
    board: str

    @property
    def home(self) -> Shelves:
        return self.shelves

    def value(self, write: Write) -> Any:
        return BoardWriter(write, self.board)


class BoardWriter:
    """What a function gets of a board."""

    def __init__(self, write: Write, board: str) -> None:
        self._write, self._board = write, board

    def write(self, value: Any, message: Any = None) -> None:
        """Write a value with the key of its message."""
        self._write((self._board, value, message and message.key))


class Silent(Shelves):
    """Its value cannot be written to by a sink."""

    def value(self, write: Write) -> Any:
        return write


def keep(order: Any, a: Any, b: Any) -> Any:
    """A function with two parts."""
    a.write(order)
    b.write(order)
    return order


def graph_of(effects: dict[str, Effect], fn: Any = keep) -> Graph:
    """A graph with one function."""
    return Graph("g", Source("in"), Processor(fn, name="p", inputs="in", outputs="out", effects=effects), errors="bad")


def raises(error: Exception) -> Callable[[], None]:
    """Give what raises this."""

    def fault() -> None:
        raise error

    return fault


def test_parts_of_one_target_share_its_transaction_and_are_written_down() -> None:
    """Each has a value of its own. Parts of two targets are refused."""
    graph = graph_of({"a": Board(Shelves(), "a"), "b": Board(Shelves(), "b")})
    tester = Tester(graph)
    tester.send("in", 5)
    tester.run()

    assert STORED == [("a", 5, None), ("b", 5, None)]
    assert Graph.from_dict(graph.to_dict()).to_dict() == graph.to_dict()
    with pytest.raises(GraphError, match="no transaction spans two"):
        graph_of({"a": Board(Shelves(), "a"), "b": Board(Shelves("other"), "b")})
    with pytest.raises(GraphError, match="its address would be in the text"):
        graph_of({"a": Shelves(password="hunter2"), "b": Board(Shelves(password="hunter2"), "b")}).to_dict()


def test_sink_gives_each_value_with_its_message() -> None:
    """Tombstones, too. A target that a sink cannot write to is refused where it is declared."""
    tester = Tester(Graph("g", Source("in"), Sink("s", inputs="in", into=Board(Shelves(), "a"))))
    tester.send("in", Message({"n": 1}, key="k"))
    tester.send("in", Message(None, key="gone"))
    tester.run()

    assert STORED == [("a", {"n": 1}, "k"), ("a", None, "gone")]
    with pytest.raises(GraphError, match=r"has no method write\(value, message\)"):
        Sink("s", inputs="in", into=Silent())


def test_plan_prints_level_and_condition_and_refuses_what_the_target_lacks() -> None:
    """One that does not answer is a warning: its tasks ask it again."""
    graph = graph_of({"a": Shelves(), "b": Board(Shelves(), "b")})
    found = {one.where: (one.level, one.why) for one in edges_of(graph)}
    assert found["p -> Shelves a"] == ("exactly once", "the process lives")
    assert found["p -> part b"] == found["p -> Shelves a"]

    REFUSALS.append("there is no board")
    with pytest.raises(ConfigError, match="there is no board"):
        Tester(graph)
    REFUSALS.clear()
    FAULTS["inspect"] = raises(RetriableError("it sleeps"))
    Tester(graph).run()


def test_error_of_any_kind_makes_the_task_ask_and_go_on() -> None:
    """An error of the user's own code in `commit` is an outage, whose outcome is not known."""
    failures = [KeyError("x"), OSError("y"), TargetMoved("z")]

    def fault() -> None:
        if failures:
            raise failures.pop()

    FAULTS["commit"] = fault
    tester = Tester(graph_of({"a": Shelves(), "b": Board(Shelves(), "b")}), policy=CommitPolicy(max_messages=2))
    for n in range(5):
        tester.send("in", n)
    tester.run()

    assert [one for one in STORED if isinstance(one, int)] == [0, 1, 2, 3, 4]
    assert tester.values("out") == [0, 1, 2, 3, 4]


def test_write_that_is_refused_is_the_error_of_its_own_message() -> None:
    """The steps of its transaction are committed one by one, to find it."""

    def give(order: Any, a: Any) -> None:
        a.write("bad" if order == 3 else order)

    tester = Tester(graph_of({"a": Shelves()}, give))
    for n in range(6):
        tester.send("in", n)
    tester.run()

    assert STORED == [0, 1, 2, 4, 5]
    [error] = tester.errors()
    assert "it is bad" in error.text


def test_writer_of_a_call_that_is_over_is_refused() -> None:
    """What is written then would belong to another step."""
    kept: list[Any] = []

    def give(order: Any, a: Any) -> None:
        kept.append(a)

    tester = Tester(graph_of({"a": Shelves()}, give))
    tester.send("in", 1)
    tester.run()
    with pytest.raises(RuntimeError, match="valid only during the call"):
        kept[0].write(1)
    assert STORED == []


def test_bytes_of_another_program_stop_the_task_and_say_so() -> None:
    """They are never taken for an attempt."""
    for data in (b"", b"\xff", b"{}\n", b'{"version":2,"base":0,"step":0,"owner":0,"attempt":""}\n', b"[1]\n"):
        with pytest.raises(CodecError):
            Kept.read(data)
    for wrong in ('"step":-1', '"step":true', '"step":"1"', '"owner":1.5'):
        name = wrong.partition(":")[0]
        row = {'"base"': '"base":0', '"step"': '"step":0', '"owner"': '"owner":0', name: wrong}
        with pytest.raises(CodecError, match="no task can have"):
            Kept.read(f'{{"version":1,{",".join(row.values())},"attempt":""}}\n'.encode())
    KEPT["main", "g.p/0"] = b"foreign"
    target = open_target({"a": Shelves()}, "g", "p", 0)
    with pytest.raises(RetriableError, match="holds something that is not an attempt"):
        target.ask(1, 0)


def test_kept_bytes_hold_records_and_are_never_equal() -> None:
    """A commit over older bytes fails, also where the attempt is the same; records that are cut off are refused."""
    held = HeldAttempt(1, 2, 3, "x")
    one, other = Kept.of(held, [RECORD]), Kept.of(held, [RECORD])
    assert one.data != other.data
    assert list(Kept.read(one.data).records()) == [RECORD]
    assert list(Kept.read(one.owned(9).data).records()) == [RECORD]
    assert Kept.read(one.owned(9).data).held.owner == 9
    with pytest.raises(CodecError, match="cut off"):
        list(Kept.read(one.data[:-1]).records())


def test_lineage_sees_how_far_the_target_is() -> None:
    """Committed, missing, or nothing kept; and what waits for Kafka."""
    task, declared = TaskName("g", "p", 0), {"a": Shelves()}

    def says(step: int) -> str:
        [found] = traces(declared, AskedAttempt(task, step, (), ""))
        return found.says

    assert "keeps nothing of this task" in says(1)
    target = open_target(declared, *task)
    target.ask(1, 0)
    target.begin_batch(1, 0)
    target.commit(HeldAttempt(0, 2, 1, ""), [RECORD])
    assert says(2) == "committed in the target, whose outbox holds the attempt's 1 message for Kafka"
    assert says(1) == "committed in the target"
    assert "missing: the target is at step 2" in says(3)


def test_tester_says_that_nothing_stands_in_for_transactions() -> None:
    """A target gets an address for tests instead."""
    with pytest.raises(ConfigError, match="Give it an address of its own for tests"):
        Tester(graph_of({"a": Shelves()}, keep_one), effects={"a": object()}).run()


def keep_one(order: Any, a: Any) -> None:
    """A function with one part."""
    a.write(order)


@pytest.mark.parametrize("fails", [(), (2,), (3, 5)])
def test_calls_ahead_of_kafkas_commit_are_written_once(fails: tuple[int, ...]) -> None:
    """Their writes wait until the commit is known, and are dropped if it fails."""
    seen: list[int] = []

    def give(order: Any, a: Any) -> Any:
        seen.append(order)
        a.write(order)
        return order

    def at_commit(nth: int) -> None:
        [worker] = tester._workers
        before, called = list(STORED), len(seen)
        while worker.call_once():
            pass
        ahead.append(len(seen) - called)
        assert before == STORED
        if nth in fails:
            raise RetriableError("no broker answers")

    ahead: list[int] = []
    broker = MemoryBroker(clock=VirtualClock(), faults=Disturbed("commit", at_commit))
    processor = Processor(give, name="f", inputs="in", outputs="out", effects={"a": Shelves()})
    tester = Tester(
        Graph("g", Source("in"), processor, errors="bad"), broker=broker, policy=CommitPolicy(max_messages=2)
    )
    for n in range(8):
        tester.send("in", Message(n, partition=0))
    tester.run()

    assert max(ahead) > 0
    assert list(range(8)) == STORED
    assert tester.values("out") == list(range(8))
