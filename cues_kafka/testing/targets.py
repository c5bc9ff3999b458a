"""The contract suite of targets: run it against a target of your own (docs/targets.md).

.. code-block:: python

    class TestMyTarget(TargetContract):
        @pytest.fixture
        def target(self): ...  # the declaration, of an empty place

        def write(self, into, number): ...  # what a function does; by default into.write(number)
        def read(self, target): ...  # the numbers that others see

Each case runs a graph on a broker in memory, or speaks with the target as the runtime does. It kills the process at
each effect of the runtime and at each line of `Transactions`, loses the answers of commits, and wakes up former owners.
"""

from __future__ import annotations

import inspect
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar, Final
from unittest.mock import patch

from cues_kafka.extras import PYTEST, missing

try:
    import pytest
except ImportError as error:
    raise missing("cues_kafka.testing.targets", PYTEST) from error

from cues_kafka.errors import RetriableError, TaskStopped
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.processor import Processor, Source
from cues_kafka.graph.targets import TransactionalTarget
from cues_kafka.graph.topic import Topic
from cues_kafka.ports import HeldAttempt, TransactionalSink
from cues_kafka.sinks.lookup import open_target
from cues_kafka.testing.tester import Crash, Tester

MESSAGES: Final = 12
"""How many numbers a graph of the suite writes, in two partitions; those that end with 3 fail after their write."""

EFFECTS: Final = ("AskTarget", "Init", "Call", "CommitTarget", "Begin", "Produce", "SendOffsets", "Flush", "Commit")
"""Before and after these effects of the runtime a process is killed."""

RECORDS: Final = [
    ("written", 0, None, b"1", None, 5),
    ("written", None, b"key", None, [("h", b"\x00\n"), ("none", None)], 0),
    ("written", 1, b"\n", b"x" * 600_000, [], 0),
]
"""What Kafka gets with an attempt, as a target must give it back."""

_PROCESSOR: Final = "contract"


@dataclass(slots=True)
class Bench:
    """
    One target, and what the cases do with it.

    Attributes:
        contract: how the target is written and read.
        target: its declaration.
        name: the graph's name, which no other case has.
        first: the first number that is written; others are those of other runs on the same target.
    """

    contract: TargetContract
    target: Any
    name: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:12]}")
    first: int = 0
    _opened: list[TransactionalSink] = field(default_factory=list)

    def again(self) -> Bench:
        """Another run on the same target: another graph, and other numbers."""
        return Bench(self.contract, self.target, first=self.first + 1000)

    def open(self) -> Any:
        """The target of the task, as another process opens it."""
        found = open_target({"into": self.target}, self.name, _PROCESSOR, 0)
        self._opened.append(found)
        return found

    def close(self) -> None:
        """Close all that was opened."""
        for one in self._opened:
            one.close()
        self._opened.clear()

    def seen(self) -> list[int]:
        """The numbers of this run that others see."""
        return sorted(one - self.first for one in self.contract.read(self.target) if 0 <= one - self.first < 1000)

    def attempt(self, sink: Any, owner: int, step: int, *numbers: int, records: Iterable[Any] = ()) -> None:
        """One batch with a step for each number; its row begins where the batch does."""
        self.begin(sink, owner, step, *numbers)
        sink.commit(HeldAttempt(step, step + len(numbers), owner, ""), records)

    def begin(self, sink: Any, owner: int, step: int, *numbers: int) -> None:
        """The same without the commit."""
        sink.begin_batch(owner, step)
        for number in numbers:
            self.step(sink, number)

    def step(self, sink: Any, number: int) -> None:
        """One call of the function."""
        sink.mark()
        self.contract.write(sink.values["into"], self.first + number)
        assert not sink.check(), "the target refuses a number"
        sink.rest()

    def tester(self, **settings: Any) -> Tester:
        """A graph with one function that writes, and messages for it."""
        tester = Tester(self.graph(), policy=CommitPolicy(max_messages=3), **settings)
        self.send(tester, 0, MESSAGES)
        return tester

    def graph(self) -> Graph:
        """The graph: even numbers become messages, those that end with 3 become errors."""

        def deliver(number: int, into: Any) -> int | None:
            self.contract.write(into, self.first + number)
            if number % 10 == 3:
                raise ValueError("three")
            return number if number % 2 == 0 else None

        return Graph(
            self.name,
            Source("numbers"),
            Processor(deliver, name=_PROCESSOR, inputs="numbers", outputs="written", effects={"into": self.target}),
            errors="errors",
            defaults=Topic(partitions=2),
        )

    def send(self, tester: Tester, first: int, last: int) -> None:
        """Send the numbers from `first` to below `last`."""
        for number in range(first, last):
            tester.send("numbers", number, key=str(number))

    def check(self, tester: Tester, messages: int = MESSAGES) -> None:
        """Each message has one outcome, on both sides."""
        kept = [one for one in range(messages) if one % 10 != 3]
        seen = self.seen()
        assert seen == kept, f"the target shows {seen}, and not each of {kept} once"
        assert sorted(tester.values("written")) == [one for one in kept if one % 2 == 0]
        assert len(tester.errors()) == messages - len(kept)
        assert tester.totals(_PROCESSOR).deliveries == messages


@dataclass(frozen=True, slots=True)
class Case:
    """
    One case of the contract.

    Attributes:
        name: what it is about.
        run: does it; it raises where the target breaks the contract.
    """

    name: str
    run: Callable[[Bench], None]

    def check(self, contract: TargetContract, target: Any) -> None:
        """Run it on a target."""
        bench = Bench(contract, target)
        contract.prepare(target)
        try:
            self.run(bench)
        finally:
            bench.close()


# Whole graphs


def _runs(bench: Bench) -> None:
    tester = bench.tester()
    tester.run()
    bench.check(tester)
    tester.stop()


def _restarts(bench: Bench) -> None:
    tester = bench.tester()
    tester.run()
    tester.restart()
    bench.send(tester, MESSAGES, 2 * MESSAGES)
    tester.run()
    bench.check(tester, 2 * MESSAGES)
    tester.stop()


def _killed(moment: str, effect: str) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        for nth in (1, 3):
            tester = bench.tester()
            tester.run(crash=Crash(moment, effect, nth))
            assert tester.crashed or nth > 1, f"{effect} is not reached"
            tester.restart().run()
            bench.check(tester)
            tester.stop()
            bench = bench.again()

    return run


def _killed_at_each_line(bench: Bench) -> None:
    """For a target by `Transactions`: within `ask`, `fence`, `begin`, `write` and `commit`."""
    home = bench.target.home
    if not isinstance(home, TransactionalTarget):
        pytest.skip("the lines of a target that is part of cues-kafka are killed by its own tests")
    lines = _Lines(0, lambda: None)
    tester = bench.tester()
    with lines.of(home):
        tester.run()
    bench.check(tester)
    tester.stop()
    assert lines.passed, "no line of the target's own code was run"
    most = bench.contract.most_lines
    for number in range(1, lines.passed + 1, max(1, -(-lines.passed // most))):
        bench = bench.again()
        tester = bench.tester()
        with _Lines(number, tester.kill).of(home):
            tester.run(crash=_NEVER)
        assert tester.crashed
        tester.restart().run()
        bench.check(tester)
        tester.stop()


_NEVER: Final = Crash("after", "Stop", 10**9)


class _Lines:
    """Kills at the n-th line that the code of a target runs: nothing unwinds, as with SIGKILL."""

    def __init__(self, at: int, kill: Callable[[], None]) -> None:
        self.passed = 0
        self._at, self._kill = at, kill
        self._file = ""

    @contextmanager
    def of(self, home: TransactionalTarget) -> Iterator[None]:
        """While this block runs, `home` opens transactions that are watched."""
        opens, lines = type(home).open, self

        def watched(target: TransactionalTarget, task: Any) -> Any:
            made = opens(target, task)
            lines._file = inspect.getfile(type(made))
            for name in ("ask", "fence", "begin", "write", "commit"):
                stack.enter_context(lines._traced(made, name))
            return made

        with ExitStack() as stack, patch.object(type(home), "open", watched):
            yield

    @contextmanager
    def _traced(self, made: Any, name: str) -> Iterator[None]:
        method = getattr(type(made), name)
        if getattr(method, "traced_by", None) is self:
            yield
            return

        def traced(*given: Any, **named: Any) -> Any:
            former = sys.gettrace()
            sys.settrace(self._enter)
            try:
                return method(*given, **named)
            finally:
                sys.settrace(former)

        traced.traced_by = self  # type: ignore[attr-defined]
        with patch.object(type(made), name, traced):
            yield

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        del event
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        del frame
        if event == "line":
            self.passed += 1
            if self.passed == self._at:
                sys.settrace(None)
                self._kill()
        return self._line


def _answer_lost(*, committed: bool) -> Callable[[Bench], None]:
    """The commit has no answer: the connection was lost behind it, or before it."""

    def run(bench: Bench) -> None:
        kind = type(bench.open())
        commit, count = kind.commit, 0

        def ambiguous(sink: Any, held: HeldAttempt, records: Iterable[Any]) -> None:
            nonlocal count
            count += 1
            if count not in (1, 3):
                commit(sink, held, records)
                return
            if committed:
                commit(sink, held, records)
            raise RetriableError("the contract suite has lost the answer of a commit", code="TARGET")

        tester = bench.tester()
        with patch.object(kind, "commit", ambiguous):
            tester.run()
        assert count > 3
        bench.check(tester)
        tester.stop()

    return run


def _function_fails(bench: Bench) -> None:
    """The third number is written, and its call fails; those beside it stay."""
    tester = Tester(bench.graph())
    bench.send(tester, 0, 5)
    tester.run()
    bench.check(tester, 5)
    [error] = tester.errors()
    assert "three" in error.text
    tester.stop()


def _write_is_refused(bench: Bench) -> None:
    """The message becomes an error message; those beside it have their writes."""
    refused: list[bool] = []

    def deliver(number: int, into: Any) -> None:
        if number == 2:
            refused.append(bench.contract.write_refused(into))
        else:
            bench.contract.write(into, number)

    parts = Source("numbers"), Processor(deliver, name=_PROCESSOR, inputs="numbers", effects={"into": bench.target})
    tester = Tester(Graph(bench.name, *parts, errors="errors"))
    bench.send(tester, 0, 5)
    tester.run()
    tester.stop()
    if not all(refused):
        pytest.skip("the target takes everything: write_refused() returned False")
    assert bench.seen() == [0, 1, 3, 4]
    assert len(tester.errors()) == 1


def _ahead_of_kafka(bench: Bench) -> None:
    """Kafka has lost everything: the task refuses to go on, rather than write again."""
    tester = bench.tester()
    tester.run()
    tester.stop()
    lost = bench.tester()
    with pytest.raises(TaskStopped, match="holds an attempt over step"):
        lost.run()
    bench.check(tester)


def _behind_kafka(bench: Bench) -> None:
    """The target was restored from a backup: the task refuses to go on, rather than leave a gap."""
    tester = bench.tester()
    tester.run()
    tester.stop()
    for partition in range(2):
        sink = open_target({"into": bench.target}, bench.name, _PROCESSOR, partition)
        found = sink.newest()
        assert found is not None
        assert found.step > 1
        assert sink.settle(HeldAttempt(0, 1, found.owner, ""), found)
        sink.close()
    tester.restart()
    with pytest.raises(TaskStopped, match="was restored from a backup, or lost commits"):
        tester.run()


# Two processes


def _zombie_between_batches(bench: Bench) -> None:
    """It had the task, and sleeps. Another one gets it. Then it wakes up, and begins its next batch."""
    zombie, heir = bench.open(), bench.open()
    assert _step(zombie.ask(1, 0)) == 0
    bench.attempt(zombie, 1, 0, 0)
    if _takes(heir, 2, 1, 1):
        _is_void(bench, zombie, 1, 1, 10)
        bench.attempt(heir, 2, 1, 1)
    else:
        bench.attempt(zombie, 1, 1, 1)
        zombie.close(orderly=False)
        assert _step(heir.ask(2, 1)) == 2, "what the former owner has committed is not seen"
    _is_void(bench, zombie, 1, 2, 11)
    heir.close()
    assert bench.seen() == [0, 1]
    assert _step(bench.open().newest()) == 2


def _zombie_in_its_batch(bench: Bench) -> None:
    """It sleeps after its writes and before its commit. Either it commits, or the other one has the task."""
    zombie, heir = bench.open(), bench.open()
    assert _step(zombie.ask(1, 0)) == 0
    bench.begin(zombie, 1, 0, 10)
    taken = _takes(heir, 2, 0, 0)
    try:
        zombie.commit(HeldAttempt(0, 1, 1, ""), [])
    except RetriableError:
        assert bench.seen() == []
        zombie.close()
        assert _step(heir.ask(2, 0)) == 0
        bench.attempt(heir, 2, 0, 0)
        assert bench.seen() == [0]
    else:
        assert not taken, "a former owner has committed after another one got the task"
        zombie.close(orderly=False)
        assert _step(heir.ask(2, 0)) == 1
        assert bench.seen() == [10]


def _two_of_one_number(bench: Bench) -> None:
    """Two processes have read the same record, so both ask with the same number. One of them commits."""
    first, second = bench.open(), bench.open()
    assert _step(first.ask(1, 0)) == 0
    _takes(second, 1, 0, 0)
    done: list[int] = []
    for number, sink in enumerate((second, first)):
        with suppress(RetriableError):
            bench.attempt(sink, 1, 0, number)
            done.append(number)
    assert len(done) == 1, f"{len(done)} of two processes have committed over the same step"
    assert bench.seen() == done


def _heir_publishes(bench: Bench) -> None:
    """A process dies behind its commit. Its successor gets the attempt and its records, and no other one adds."""
    former, heir = bench.open(), bench.open()
    assert _step(former.ask(1, 0)) == 0
    bench.attempt(former, 1, 0, 0, 1, records=RECORDS)
    if not _takes(heir, 3, 0, 2):
        former.close(orderly=False)
        assert heir.ask(3, 0) == HeldAttempt(0, 2, 1, "")
    assert _shown(heir.outbox()) == _shown(RECORDS), "the records of the attempt come back changed"
    if former.parts or former.ahead:  # else it begins no batch before Kafka has the attempt
        _is_void(bench, former, 1, 2, 12)
    bench.attempt(heir, 3, 2, 2)
    assert _shown(heir.outbox()) == []
    assert bench.seen() == [0, 1, 2]


def _looking_changes_nothing(bench: Bench) -> None:
    """A tool looks while a worker has the task, and the worker goes on."""
    worker, tool = bench.open(), bench.open()
    assert _step(worker.ask(1, 0)) == 0
    with suppress(RetriableError):  # it may say that another process has the task
        tool.newest()
    tool.close()
    bench.attempt(worker, 1, 0, 0)
    assert bench.seen() == [0]


def _question_elsewhere(bench: Bench) -> None:
    """A process asks with a place that does not fit. It gets the answer, and takes the task from no process."""
    worker, other = bench.open(), bench.open()
    assert _step(worker.ask(1, 0)) == 0
    bench.attempt(worker, 1, 0, 0)
    bench.attempt(worker, 1, 1, 1)
    worker.close()
    for step in (0, 7):
        assert _step(other.ask(9, step)) == 2
    assert _step(other.ask(1, 2)) == 2
    bench.attempt(other, 1, 2, 2)
    assert bench.seen() == [0, 1, 2]


def _tool_settles(bench: Bench) -> None:
    """An operator moves the task, only from where it was seen."""
    tool = bench.open()
    assert tool.settle(HeldAttempt(0, 5, 4, ""), None)
    assert not tool.settle(HeldAttempt(0, 6, 4, ""), None)
    assert not tool.settle(HeldAttempt(0, 6, 4, ""), HeldAttempt(0, 4, 4, ""))
    assert _step(tool.newest()) == 5
    found = tool.newest()
    assert tool.settle(HeldAttempt(0, 6, 2, ""), found)
    assert tool.newest() == HeldAttempt(0, 6, 4, ""), "a smaller owner takes the place of a greater one"


# One process


def _step_is_taken_back(bench: Bench) -> None:
    """Half of a call was written. The steps before and behind it stay."""
    sink = bench.open()
    assert _step(sink.ask(1, 0)) == 0
    bench.begin(sink, 1, 0, 0)
    sink.mark()
    bench.contract.write(sink.values["into"], bench.first + 10)
    sink.back()
    sink.rest()
    bench.step(sink, 1)
    assert bench.seen() == [], "others see what is not committed"
    sink.commit(HeldAttempt(0, 3, 1, ""), [])
    assert bench.seen() == [0, 1]


def _parts_follow(bench: Bench) -> None:
    """Several transactions of the target come before one of Kafka; the attempt of each covers those before."""
    sink = bench.open()
    assert _step(sink.ask(1, 0)) == 0
    if not sink.parts:
        pytest.skip("the target has one transaction for each of Kafka's")
    for step in range(3):
        bench.begin(sink, 1, step, step)
        sink.commit(HeldAttempt(0, step + 1, 1, ""), RECORDS if step == 2 else [])
    sink.close()
    heir = bench.open()
    assert heir.ask(2, 0) == HeldAttempt(0, 3, 1, "")
    assert _shown(heir.outbox()) == _shown(RECORDS)
    assert bench.seen() == [0, 1, 2]


def _discarded_on_another_thread(bench: Bench) -> None:
    """The task is taken away while its function runs: nothing of the batch is committed, and it can begin again."""
    sink = bench.open()
    assert _step(sink.ask(1, 0)) == 0
    sink.begin_batch(1, 0)
    sink.mark()
    bench.contract.write(sink.values["into"], bench.first + 10)
    other = threading.Thread(target=sink.discard)
    other.start()
    other.join()
    with pytest.raises(RetriableError):
        _commit_of_one(sink)
    sink.rest()
    assert bench.seen() == []
    assert _step(sink.ask(2, 0)) == 0
    bench.attempt(sink, 2, 0, 0)
    assert bench.seen() == [0]


def _closed_in_its_batch(bench: Bench) -> None:
    """The task is given up, in order or at once: nothing of the batch stays, and the next process takes it."""
    for number, orderly in enumerate((True, False)):
        sink = bench.open()
        assert sink.ask(number + 1, number) == (HeldAttempt(0, 1, 1, "") if number else None)
        bench.begin(sink, number + 1, number, 10)
        sink.close(orderly=orderly)
        with pytest.raises(RetriableError):
            sink.begin_batch(number + 1, number)
        heir = bench.open()
        assert _step(heir.ask(number + 1, number)) == number
        bench.attempt(heir, number + 1, number, number)
        heir.close()
    assert bench.seen() == [0, 1]


def _tasks_are_apart(bench: Bench) -> None:
    """What is kept for one task is not what is kept for another one."""
    sink = bench.open()
    assert _step(sink.ask(1, 0)) == 0
    bench.attempt(sink, 1, 0, 0)
    places = [(bench.name, _PROCESSOR, 1), (bench.name, "other", 0), (f"{bench.name}x", _PROCESSOR, 0)]
    for graph, processor, partition in places:
        other = open_target({"into": bench.target}, graph, processor, partition)
        assert other.newest() is None
        other.close()


def _commit_of_one(sink: Any) -> None:
    """What the runtime does behind a call that has ended."""
    sink.check()
    sink.rest()
    sink.commit(HeldAttempt(0, 1, 1, ""), [])


def _step(held: HeldAttempt | None) -> int:
    return 0 if held is None else held.step


def _takes(heir: Any, owner: int, step: int, stands: int) -> bool:
    """
    Whether another process gets the task. False: the target has it wait until the former owner's connection has ended.

    Until then the former owner has the task, and what it commits counts.
    """
    try:
        held = heir.ask(owner, step)
    except RetriableError:
        return False
    assert _step(held) == stands, f"the target stands at step {_step(held)} instead of {stands}"
    return True


def _is_void(bench: Bench, sink: Any, owner: int, step: int, number: int) -> None:
    """A batch of a former owner fails at its beginning or at its commit."""
    try:
        bench.begin(sink, owner, step, number)
        sink.commit(HeldAttempt(step, step + 1, owner, ""), [])
    except RetriableError:
        sink.rest()
        return
    raise AssertionError("a former owner has committed after another one got the task")


def _shown(records: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [
        (topic, partition, key, value, [tuple(one) for one in headers or ()], timestamp)
        for topic, partition, key, value, headers, timestamp in records
    ]


CASES: Final = (
    Case("a run without a failure", _runs),
    Case("a restart", _restarts),
    *(
        Case(f"killed {moment} {effect}", _killed(moment, effect))
        for effect in EFFECTS
        for moment in ("before", "after")
    ),
    Case("killed at each line of the transactions", _killed_at_each_line),
    Case("the answer of a commit is lost", _answer_lost(committed=True)),
    Case("a commit is lost with its answer", _answer_lost(committed=False)),
    Case("the function fails behind its write", _function_fails),
    Case("the target refuses a write", _write_is_refused),
    Case("the target is ahead of Kafka", _ahead_of_kafka),
    Case("the target is behind Kafka", _behind_kafka),
    Case("a former owner wakes up between its batches", _zombie_between_batches),
    Case("a former owner wakes up in its batch", _zombie_in_its_batch),
    Case("two owners with one number", _two_of_one_number),
    Case("a successor publishes what it finds", _heir_publishes),
    Case("a tool looks at the target", _looking_changes_nothing),
    Case("a question with a place that does not fit", _question_elsewhere),
    Case("an operator moves the task", _tool_settles),
    Case("a step is taken back", _step_is_taken_back),
    Case("a batch is committed in parts", _parts_follow),
    Case("discarded on another thread", _discarded_on_another_thread),
    Case("closed in its batch", _closed_in_its_batch),
    Case("tasks are apart", _tasks_are_apart),
)
"""All cases, in the order in which a new target should pass them."""


class TargetContract:
    """
    The cases of the contract, for one target. Subclass it with a name that pytest collects.

    `target` is a fixture that gives the declaration of an empty place: an `Effect` for `effects=`. The suite writes
    under names of its own, so several tests may share a server.
    """

    @pytest.fixture
    def target(self) -> Effect:
        """Give the declaration. Override it; it may use other fixtures."""
        raise NotImplementedError("the contract suite needs a fixture named target, which gives the declaration")

    most_lines: ClassVar[int] = 150
    """At how many lines of `Transactions` a process is killed, at most. Where there are more, every n-th is taken."""

    def write(self, into: Any, number: int) -> None:
        """
        Write a number, as a function does.

        Args:
            into: what the function gets of the target.
            number: from 0; the same number is written again only after it was taken back.
        """
        into.write(number)

    def read(self, target: Any) -> Iterable[int]:
        """All the numbers that others see now, in any order; a number that is there twice comes twice."""
        raise NotImplementedError("the contract suite needs read(), which gives the numbers that others see")

    def write_refused(self, into: Any) -> bool:
        """Write what the target refuses for what it says. Return False where it takes everything, as by default."""
        del into
        return False

    def prepare(self, target: Any) -> None:
        """Make what a target needs before it is asked, such as its tables; by default nothing."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_case(self, case: Case, target: Any) -> None:
        """One case of the contract on this target."""
        case.check(self, target)
